-- Grants the lock to the first in the queue, or to anybody where nobody waits; else puts the caller in the queue, or keeps
-- it there. It may be carried out twice.
-- ARGV[3] the lease in ms  ARGV[4] how long the caller is taken for alive, in ms
-- Returns 0 where the lock was granted, else in how many ms (1 or more) it is worth asking again without a message.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return 0
end

-- A late caller keeps its place unless it has been passed already: it is alive, after all.
local alive = now + ARGV[4]
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then
  redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f', alive))
end
local first, untilWhen = head()
local lease = redis.call('PTTL', KEYS[1]) -- -2 where nobody holds the lock

if lease == -2 and (not first or first == ARGV[1]) then
  leave()
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  return 0
end

if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0 then
  redis.call('RPUSH', KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f', alive))
  first = first or ARGV[1]
end
redis.call('PEXPIRE', KEYS[2], ARGV[4]) -- by then all are dead, unless one has asked again
redis.call('PEXPIRE', KEYS[3], ARGV[4])

if lease == -2 then
  redis.call('PUBLISH', ARGV[2], first) -- its message may have been lost, or gone to one that was dead
  return math.max(untilWhen - now, 1)
end
if first == ARGV[1] and lease >= 0 then
  return math.max(lease, 1) -- the holder may die
end
return tonumber(ARGV[4])
