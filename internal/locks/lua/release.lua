-- Deletes the lock if, and only if, its owner is the caller. In one script, since between a GET and a DEL the lease can
-- run out and another can be granted the lock, which the DEL would then take from him.
-- KEYS[1] the lock  ARGV[1] the owner
-- Returns 1 where the lock was the caller's, 0 where it was not.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
