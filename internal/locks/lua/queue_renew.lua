-- Counts the lease anew. It stands alone: one is sent for every lock that is held, several hundred at once.
-- KEYS[1] lock  ARGV[1] lease, ms  ARGV[2] process  ARGV[3] number
-- Returns 1, or 0 where the lock is not the owner's any more.
local value, owner = redis.call('GET', KEYS[1]), ARGV[2] .. '/' .. ARGV[3] .. ' '
if value and string.sub(value, 1, #owner) == owner then
  return redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 0
