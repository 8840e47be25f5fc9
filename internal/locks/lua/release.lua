-- Deletes the lock if the caller owns it. One script, because between a GET and a DEL the lease can end and another
-- client be granted the lock, which the DEL would take from it.
-- KEYS[1] the lock  ARGV[1] the owner
-- Returns 1 if the lock was the caller's, otherwise 0.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
