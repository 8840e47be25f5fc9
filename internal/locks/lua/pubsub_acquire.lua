-- Grants the lock if it is free, or says for how long its lease still runs: in one script, so that a waiter learns until
-- when it need not ask.
-- KEYS[1] the lock  ARGV[1] the owner  ARGV[2] the lease in ms
-- Returns 0 where the lock was granted, else the ms (1 or more) until the holder's lease ends by itself.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
local ttl = redis.call('PTTL', KEYS[1])
if ttl < 0 then
  return tonumber(ARGV[2]) -- not a lock of this kind: it does not end by itself
end
return math.max(ttl, 1)
