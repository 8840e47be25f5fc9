-- Takes an owner out of the queue that waits no more, and the lock from it if it was granted meanwhile.
redis.call('ZREM', queue, ARGV[4])
redis.call('ZREM', heard, ARGV[4])
leave(ARGV[4])
if redis.call('EXISTS', lock) == 0 then
  pass()
end
return 1
