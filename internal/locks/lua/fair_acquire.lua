-- Grants the lock to the first in the queue, or to any caller if nobody waits. Otherwise it adds the caller to the
-- queue, or keeps it there. It may be carried out twice.
-- ARGV[3] the lease in ms  ARGV[4] how long the caller counts as alive, in ms  ARGV[5] 1 if the caller does not wait
-- Returns 0 if the lock was granted, otherwise the ms (1 or more) after which to ask again if no message comes.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return 0
end

-- A late caller keeps its place, unless it has been removed already.
local alive = now + ARGV[4]
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then
  redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f', alive))
end
local first, untilWhen = head()
local lease = redis.call('PTTL', KEYS[1]) -- -2 if nobody holds the lock

if lease == -2 and (not first or first == ARGV[1]) then
  leave()
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  return 0
end

if ARGV[5] == '1' then
  return 1
end

if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0 then
  redis.call('RPUSH', KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f', alive))
  first = first or ARGV[1]
end
redis.call('PEXPIRE', KEYS[2], ARGV[4]) -- by then all waiters are dead, unless one asks again
redis.call('PEXPIRE', KEYS[3], ARGV[4])

if lease == -2 then
  redis.call('PUBLISH', ARGV[2], first) -- its message may have been lost, or sent to a dead waiter
  return math.max(untilWhen - now, 1)
end
if first == ARGV[1] and lease >= 0 then
  return math.max(lease, 1) -- ask when the lease ends: the holder may die
end
return tonumber(ARGV[4])
