-- What the scripts of redis-queue share. It stands in place of their line "include queue.lua".
--
-- KEYS[1] lock   string, the owner, with the time to live of the lease
-- KEYS[2] queue  sorted set of the owners that wait, by the time of their arrival
-- KEYS[3] heard  sorted set of the same owners, by the time until which they count as alive
-- KEYS[4] memory hash: "token", the last one that was given out; "waits", while there may be a queue; for each process, the
--                last owner of it that has left; and, with " lost", the last one that had lost the lock before it left
--
-- An owner is "process/number". A process counts its owners up, so that one number tells which of them have left: their
-- late commands are refused, and a release that is sent again is told that it has been done.
--
-- ARGV[1] lease, ms  ARGV[2] heartbeat, ms  ARGV[3] tokens a grant  ARGV[4] process  ARGV[5] number
-- All times are the server's. Every call of Redis and every function defined here costs a microsecond or two, in which the
-- server does nothing else: a lock that nobody else wants is served before this is reached.
local lock, queue, heard, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, heartbeat, block = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local process = ARGV[4]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- microseconds

-- The memory outlives every command that may still be on its way.
local function keep()
  redis.call('PEXPIRE', memory, math.max(86400000, 2 * lease))
end

-- grant gives the free lock to the owner, with a block of tokens that begins at the one returned. They count up from the
-- time when the memory began: where it is lost, the time is ahead of them. Both fit the 53 bits of a Lua number.
local function grant(owner, ttl)
  local last = redis.call('HGET', memory, 'token')
  local token = last and last + 1 or now
  redis.call('HSET', memory, 'token', token + block - 1)
  keep()
  redis.call('SET', lock, owner, 'PX', ttl)
  return token
end

-- pass grants the free lock to the first waiter that is alive, and returns it with its token. The grant is short until that one
-- is heard of: a waiter that died since its last heartbeat must not hold the lock for a whole lease.
local function pass()
  for _, owner in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    local alive = tonumber(redis.call('ZSCORE', heard, owner) or 0) > now / 1000
    redis.call('ZREM', queue, owner)
    redis.call('ZREM', heard, owner)
    if alive then
      return owner, grant(owner, math.min(lease, heartbeat))
    end
  end
  redis.call('HDEL', memory, 'waits')
end

-- passAndTell tells the owner too. The message is "number token key".
local function passAndTell()
  local owner, token = pass()
  if owner then
    local to, number = string.match(owner, '^(.*)/(%d+)$')
    redis.call('PUBLISH', 'locks:' .. to, number .. ' ' .. string.format('%.0f', token) .. ' ' .. lock)
  end
end

-- acquire grants the lock to the process's owner or puts it into the queue. Asking again changes nothing but the time: an
-- owner that holds the lock is told the same token, one that waits keeps its place.
-- Returns the token where the owner holds the lock, 0 where it has left, and where it waits -1 less the ms until the lease of
-- the holder ends.
local function acquire(number)
  local owner = process .. '/' .. number
  local holder = redis.call('GET', lock)
  if holder == owner then
    local last = redis.call('HGET', memory, 'token')
    if not last then
      return grant(owner, lease)
    end
    redis.call('PEXPIRE', lock, lease)
    return last - block + 1
  end
  if tonumber(redis.call('HGET', memory, process) or 0) >= tonumber(number) then
    return 0
  end
  if not holder and redis.call('EXISTS', queue) == 0 then
    redis.call('HDEL', memory, 'waits')
    return grant(owner, lease)
  end
  redis.call('ZADD', queue, 'NX', now, owner)
  redis.call('ZADD', heard, now / 1000 + heartbeat, owner)
  redis.call('PEXPIRE', queue, heartbeat)
  redis.call('PEXPIRE', heard, heartbeat)
  redis.call('HSET', memory, 'waits', 1)
  keep()
  if not holder then
    passAndTell()
    if redis.call('GET', lock) == owner then
      return acquire(number)
    end
  end
  return -1 - math.max(redis.call('PTTL', lock), 0)
end

-- leave forgets the owner: what it may still have on its way is refused from now on.
-- Returns 1 where the lock was its own until now, or had been given back by it before, else 0.
local function leave(number)
  local ours = redis.call('GET', lock) == process .. '/' .. number
  if ours then
    redis.call('DEL', lock)
  end
  local left = redis.call('HMGET', memory, process, process .. ' lost')
  if tonumber(left[1] or 0) < tonumber(number) then
    redis.call('HSET', memory, process, number)
    if not ours then
      redis.call('HSET', memory, process .. ' lost', number)
    end
    keep()
  elseif left[2] ~= number then
    ours = true -- it came again
  end
  return ours and 1 or 0
end
