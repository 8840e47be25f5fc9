-- What the scripts of redis-queue share. It stands in place of their line "include queue.lua".
--
-- KEYS[1] lock   string "owner token", with the time to live of the lease
-- KEYS[2] queue  sorted set of the owners that wait, by the time of their arrival
-- KEYS[3] heard  sorted set of the same owners, by the time until which they count as alive
-- KEYS[4] memory hash: "token", the last one that may have been used; and for each process the last owner of it that has left
--
-- An owner is "process/number". A process counts its owners up, so that one number tells which of them have left: their
-- late commands are refused, and a release that is sent again is told that it has been done.
--
-- ARGV[1] lease, ms  ARGV[2] heartbeat, ms  ARGV[3] tokens a grant  ARGV[4] process  ARGV[5] number
-- All times are the server's. Every call of Redis and every function defined here costs up to a microsecond, in which the
-- server does nothing else: a lock that nobody else wants is served before this is reached.
local lock, queue, heard, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, heartbeat, block = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local process = ARGV[4]

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- owned returns the token where the lock's value says that the owner holds it.
local function owned(value, owner)
  if value and string.sub(value, 1, #owner + 1) == owner .. ' ' then
    return string.sub(value, #owner + 2)
  end
end

-- The memory outlives every command that may still be on its way.
local function keep()
  redis.call('PEXPIRE', memory, math.max(86400000, 2 * lease))
end

-- grant gives the free lock to the owner, with a block of tokens that begins at the one returned. The time keeps tokens
-- increasing where the memory was lost, the memory does where the clock was set back. The memory is written by the release: a
-- lock that was not given back has run out, and time has passed the tokens by. Both fit the 53 bits of a Lua number.
local function grant(owner, ttl, now, last)
  local token = now
  if last and tonumber(last) >= now then
    token = tonumber(last) + 1
    redis.call('HSET', memory, 'token', string.format('%.0f', token + block - 1))
    keep()
  end
  token = string.format('%.0f', token)
  redis.call('SET', lock, owner .. ' ' .. token, 'PX', ttl)
  return token
end

-- pass grants the free lock to the first waiter that is alive and tells it. The grant is short until that one is heard
-- of: a waiter that died since its last heartbeat must not hold the lock for a whole lease.
local function pass()
  local waiting = redis.call('ZRANGE', queue, 0, -1)
  if #waiting == 0 then
    return
  end
  local now = micros()
  for _, owner in ipairs(waiting) do
    local alive = tonumber(redis.call('ZSCORE', heard, owner) or 0) > now / 1000
    redis.call('ZREM', queue, owner)
    redis.call('ZREM', heard, owner)
    if alive then
      local token = grant(owner, math.min(lease, heartbeat), now, redis.call('HGET', memory, 'token'))
      local to, number = string.match(owner, '^(.*)/(%d+)$')
      redis.call('PUBLISH', 'locks:' .. to, number .. ' ' .. token .. ' ' .. lock)
      return
    end
  end
end

-- acquire grants the lock to the process's owner or puts it into the queue. Asking again changes nothing but the time: an
-- owner that holds the lock is told the same token, one that waits keeps its place.
-- Returns {1, token} where the owner holds the lock, {0, ms until the lease of the holder ends} where it waits,
-- {-1} where it has left.
local function acquire(number)
  local owner = process .. '/' .. number
  local value = redis.call('GET', lock)
  local token = owned(value, owner)
  if token then
    redis.call('PEXPIRE', lock, lease)
    return {1, token}
  end
  local remembered = redis.call('HMGET', memory, 'token', process)
  if remembered[2] and tonumber(string.match(remembered[2], '^%d+')) >= tonumber(number) then
    return {-1}
  end
  local now = micros()
  if not value and redis.call('EXISTS', queue) == 0 then
    return {1, grant(owner, lease, now, remembered[1])}
  end
  redis.call('ZADD', queue, 'NX', now, owner)
  redis.call('ZADD', heard, now / 1000 + heartbeat, owner)
  redis.call('PEXPIRE', queue, heartbeat)
  redis.call('PEXPIRE', heard, heartbeat)
  if not value then
    pass()
    token = owned(redis.call('GET', lock), owner)
    if token then
      redis.call('PEXPIRE', lock, lease)
      return {1, token}
    end
  end
  return {0, redis.call('PTTL', lock)}
end

-- leave forgets the owner: what it may still have on its way is refused from now on.
-- Returns 1 where the lock was its own until now, or had been given back by it before, else 0.
local function leave(number)
  local value = redis.call('GET', lock)
  local token = owned(value, process .. '/' .. number)
  if token then
    redis.call('HSET', memory, process, number, 'token', string.format('%.0f', tonumber(token) + block - 1))
    redis.call('DEL', lock)
    keep()
    return 1
  end
  local left = redis.call('HGET', memory, process)
  local last = left and tonumber(string.match(left, '^%d+')) or 0
  if last >= tonumber(number) then
    return string.find(left, 'lost') and 0 or 1
  end
  -- The mark tells a release that comes again what the first one was told.
  redis.call('HSET', memory, process, number .. ' lost')
  keep()
  return 0
end
