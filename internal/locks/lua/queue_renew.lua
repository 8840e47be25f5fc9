-- Starts the lease anew. Does not include queue.lua, to stay small: it is sent for every held lock.
-- KEYS[1] lock  ARGV[1] lease, ms  ARGV[2] "owner token"
-- Returns 1, or 0 if the lock is not the owner's any more.
if redis.call('GET', KEYS[1]) == ARGV[2] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 0
