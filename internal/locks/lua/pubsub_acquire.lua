-- Grants the lock if it is free, or returns the rest of the holder's lease. One script, so that a waiter knows how
-- long it need not ask again.
-- KEYS[1] the lock  ARGV[1] the owner  ARGV[2] the lease in ms
-- Returns 0 if the lock was granted, otherwise the ms (1 or more) until the holder's lease ends.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
local ttl = redis.call('PTTL', KEYS[1])
if ttl < 0 then
  return tonumber(ARGV[2]) -- a lock of another kind, which does not end by itself
end
return math.max(ttl, 1)
