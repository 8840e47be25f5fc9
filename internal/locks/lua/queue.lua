-- What the scripts of redis-queue share. It replaces their line "include queue.lua".
--
-- KEYS[1] lock   string "owner token", which expires with the lease
-- KEYS[2] queue  sorted set of the waiting owners, in order of arrival
-- KEYS[3] heard  sorted set of the same owners, by the time until which they count as alive, ms
-- KEYS[4] memory hash with these fields:
--                "token"         the last token that was given out
--                "waits"         present while there may be a queue
--                PROCESS         the number of the last owner of the process that has left
--                PROCESS " lost" the number of its last owner that did not hold the lock when it left
--
-- An owner is "process/number". A process numbers its owners in ascending order, so that one number tells which of
-- them have left: their late commands are refused, and a release that is repeated still reports that the lock was
-- released.
--
-- ARGV[1] lease, ms  ARGV[2] heartbeat, ms  ARGV[3] tokens per grant  ARGV[4] process  ARGV[5] number
-- All times are the server's. Every Redis call, and every function defined here, costs a microsecond or two, during
-- which the server does nothing else. The scripts therefore serve a lock without contention before they reach this.
local lock, queue, heard, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, heartbeat, block = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local process = ARGV[4]

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local millis = math.floor(micros / 1000)

-- keep makes the memory outlast every command that may still be on its way.
local function keep()
  redis.call('PEXPIRE', memory, math.max(86400000, 2 * lease))
end

-- lengthen makes key live for at least ms. It never shortens its life, since processes may differ in their heartbeats.
local function lengthen(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- held returns the first token of the owner's turn if it holds the lock.
local function held(owner)
  local value = redis.call('GET', lock)
  if value and string.sub(value, 1, #owner + 1) == owner .. ' ' then
    return tonumber(string.sub(value, #owner + 2))
  end
end

-- grant grants the free lock to the owner, with a block of tokens, and returns the first of them. Tokens rise even if
-- the memory was lost, because of the time, and if the clock was set back, because of the memory. They fit the 53 bits
-- of an integer in Lua.
local function grant(owner, ttl)
  local last = tonumber(redis.call('HGET', memory, 'token') or 0)
  local token = math.max(last + 1, micros)
  redis.call('HSET', memory, 'token', string.format('%.0f', token + block - 1))
  keep()
  redis.call('SET', lock, owner .. ' ' .. string.format('%.0f', token), 'PX', ttl)
  return token
end

-- pass grants the free lock to the first waiter that is alive, and sends it "number ttl token key". The grant is short
-- until the waiter confirms it: a waiter that died since its last heartbeat must not hold the lock for a whole lease.
local function pass()
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then
      redis.call('HDEL', memory, 'waits')
      return
    end
    local alive = tonumber(redis.call('ZSCORE', heard, owner) or 0) > millis
    redis.call('ZREM', queue, owner)
    redis.call('ZREM', heard, owner)
    if alive then
      local ttl = math.min(lease, heartbeat)
      local token = grant(owner, ttl)
      local to, number = string.match(owner, '^(.*)/(%d+)$')
      redis.call('PUBLISH', 'locks:' .. to, string.format('%s %.0f %.0f %s', number, ttl, token, lock))
      return
    end
  end
end

-- acquire grants the lock to an owner of the process, or adds it to the queue unless once is set. Asking again changes
-- nothing but the times: an owner that holds the lock gets the same token, one that waits keeps its place.
-- Returns the token if the owner holds the lock, 0 if it has left, and if it waits {ms until the holder's lease ends,
-- the last token that was given out}.
local function acquire(number, once)
  local owner = process .. '/' .. number
  local token = held(owner)
  if token then
    redis.call('PEXPIRE', lock, lease)
    return token
  end
  if tonumber(redis.call('HGET', memory, process) or 0) >= tonumber(number) then
    return 0
  end
  local free = redis.call('EXISTS', lock) == 0
  if free and once then
    pass() -- passes over waiters that died
    free = redis.call('EXISTS', lock) == 0
  end
  if free and redis.call('EXISTS', queue) == 0 then
    redis.call('HDEL', memory, 'waits')
    return grant(owner, lease)
  end
  if once then
    return {0, 0}
  end
  if not redis.call('ZSCORE', queue, owner) then
    -- By time, but never before the last in the queue: the clock may have been set back.
    local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', queue, math.max(micros, tonumber(last or 0) + 1), owner)
  end
  redis.call('ZADD', heard, millis + heartbeat, owner)
  lengthen(queue, heartbeat)
  lengthen(heard, heartbeat)
  redis.call('HSET', memory, 'waits', 1)
  keep()
  if free then
    pass()
    token = held(owner)
    if token then
      redis.call('PEXPIRE', lock, lease)
      return token
    end
  end
  local ttl = redis.call('PTTL', lock)
  if ttl < 0 then
    ttl = heartbeat -- a lock of another kind, which does not end by itself
  end
  return {ttl, tonumber(redis.call('HGET', memory, 'token') or 0)}
end

-- forget bounds the memory: when there are many processes, it forgets the others. Most of them have ended by then, and
-- none of their commands is still on its way.
local function forget()
  if redis.call('HLEN', memory) <= 256 then
    return
  end
  for _, field in ipairs(redis.call('HKEYS', memory)) do
    if field ~= 'token' and field ~= 'waits' and string.sub(field, 1, #process) ~= process then
      redis.call('HDEL', memory, field)
    end
  end
end

-- leave marks the owner as having left: its commands that are still on their way will be refused.
-- Returns 1 if the owner held the lock until now, or released it before, otherwise 0. If a later owner of the process
-- has left already, this one has lost the lock: a process asks for a new owner only when the one before has ended.
local function leave(number)
  local token = held(process .. '/' .. number)
  local ours = token ~= nil
  local left = redis.call('HMGET', memory, process, process .. ' lost', 'token')
  if ours then
    redis.call('DEL', lock)
    redis.call('HSET', memory, 'token', string.format('%.0f', math.max(tonumber(left[3] or 0), token + block - 1)))
  end
  if tonumber(left[1] or 0) < tonumber(number) then
    redis.call('HSET', memory, process, number)
    if not ours then
      redis.call('HSET', memory, process .. ' lost', number)
    end
    if not left[1] then
      forget()
    end
    keep()
  elseif left[1] == number and left[2] ~= number then
    ours = true -- a repeated release
  end
  return ours and 1 or 0
end
