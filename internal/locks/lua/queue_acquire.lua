-- Returns what acquire does.
return acquire(ARGV[4])
