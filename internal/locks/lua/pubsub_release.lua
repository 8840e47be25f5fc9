-- Deletes the lock if it is the caller's, as release.lua does, and tells the waiters of its key.
-- KEYS[1] the lock  ARGV[1] the owner  ARGV[2] the channel
-- Returns 1 where the lock was the caller's, 0 where it was not.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], KEYS[1])
  return 1
end
return 0
