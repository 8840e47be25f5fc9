-- Starts the lease anew if the caller owns the lock. One script, because between a GET and a PEXPIRE the lease can end
-- and another client be granted the lock, whose lease the PEXPIRE would change.
-- KEYS[1] the lock  ARGV[1] the owner  ARGV[2] the lease in ms
-- Returns 1 if the lock was the caller's, otherwise 0.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
