-- Counts the lease anew if, and only if, the lock is still the caller's. In one script, since between a GET and a PEXPIRE
-- the lease can run out and another can be granted the lock, whose lease the PEXPIRE would then change.
-- KEYS[1] the lock  ARGV[1] the owner  ARGV[2] the lease in ms
-- Returns 1 where the lock was the caller's, 0 where it was not.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
