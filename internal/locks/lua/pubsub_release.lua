-- Deletes the lock if the caller owns it, as release.lua does, and notifies the waiters of its key.
-- KEYS[1] the lock  ARGV[1] the owner  ARGV[2] the channel
-- Returns 1 if the lock was the caller's, otherwise 0.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], KEYS[1])
  return 1
end
return 0
