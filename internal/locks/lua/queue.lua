-- What the scripts of redis-queue share. It is prepended to each of them.
--
-- KEYS[1] lock   string "owner token", with the time to live of the lease
-- KEYS[2] queue  sorted set of the owners that wait, by the time of their arrival
-- KEYS[3] heard  sorted set of the same owners, by the time until which they count as alive
-- KEYS[4] memory hash: "token", the last one minted; and for each process the last owner of it that has left
--
-- An owner is "process/number". A process counts its owners up, so that one number tells which of them have left: their
-- late commands are refused, and a release that is sent again is told that it has been done.
--
-- ARGV[1] lease, ms  ARGV[2] heartbeat, ms  ARGV[3] tokens a grant  ARGV[4] owner
-- All times are the server's.
local lock, queue, heard, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, heartbeat, block = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- The memory outlives every command that may still be on its way.
local remembered = math.max(86400000, 2 * lease)

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local millis = math.floor(micros / 1000)

local function split(owner)
  local process, number = string.match(owner, '^(.*)/(%d+)$')
  return process, tonumber(number)
end

-- holder returns the owner that holds the lock and its first token, or nothing.
local function holder()
  local value = redis.call('GET', lock)
  if value then
    return string.match(value, '^(%S+) (%d+)$')
  end
end

-- The time keeps tokens increasing where the memory was lost; the memory does where the clock was set back. Both fit the 53
-- bits of a Lua number.
local function grant(owner, ttl)
  local token = math.max((tonumber(redis.call('HGET', memory, 'token')) or 0) + 1, micros)
  redis.call('HSET', memory, 'token', string.format('%.0f', token + block - 1))
  redis.call('PEXPIRE', memory, remembered)
  token = string.format('%.0f', token)
  redis.call('SET', lock, owner .. ' ' .. token, 'PX', ttl)
  return token
end

-- pass grants the free lock to the first waiter that is alive and tells it. The grant is short until that one is heard
-- of: a waiter that died since its last heartbeat must not hold the lock for a whole lease.
local function pass()
  for _, owner in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    local alive = tonumber(redis.call('ZSCORE', heard, owner) or 0) > millis
    redis.call('ZREM', queue, owner)
    redis.call('ZREM', heard, owner)
    if alive then
      local token = grant(owner, math.min(lease, heartbeat))
      local process, number = split(owner)
      redis.call('PUBLISH', 'locks:' .. process, string.format('%.0f', number) .. ' ' .. token .. ' ' .. lock)
      return
    end
  end
end

-- acquire grants the lock to the owner or puts it into the queue. Asking again changes nothing but the time: an owner that
-- holds the lock is told the same token, one that waits keeps its place.
-- Returns {1, token} where the owner holds the lock, {0, ms until the lease of the holder ends} where it waits,
-- {-1} where it has left.
local function acquire(owner)
  local current, token = holder()
  if current == owner then
    redis.call('PEXPIRE', lock, lease)
    return {1, token}
  end
  local process, number = split(owner)
  local left = redis.call('HGET', memory, process)
  if left and tonumber(string.match(left, '%d+')) >= number then
    return {-1}
  end
  if not current and redis.call('EXISTS', queue) == 0 then
    return {1, grant(owner, lease)}
  end
  redis.call('ZADD', queue, 'NX', micros, owner)
  redis.call('ZADD', heard, millis + heartbeat, owner)
  redis.call('PEXPIRE', queue, heartbeat)
  redis.call('PEXPIRE', heard, heartbeat)
  if not current then
    pass()
    current, token = holder()
    if current == owner then
      redis.call('PEXPIRE', lock, lease)
      return {1, token}
    end
  end
  return {0, redis.call('PTTL', lock)}
end

-- leave forgets the owner: what it may still have on its way is refused from now on.
-- Returns whether the lock was its own until now, or had been given back by it before.
local function leave(owner)
  local process, number = split(owner)
  local ours = holder() == owner
  if ours then
    redis.call('DEL', lock)
  end
  local left = redis.call('HGET', memory, process)
  local last = left and tonumber(string.match(left, '%d+')) or 0
  if last < number then
    -- The mark tells a release that comes again whether the first one had found the lock lost.
    if redis.call('HSET', memory, process, string.format('%.0f', number) .. (ours and '' or ' lost')) == 1 then
      redis.call('PEXPIRE', memory, remembered)
    end
    return ours
  end
  return ours or last > number or not string.find(left, 'lost')
end
