-- What the scripts of redis-queue share. It replaces their line "include queue.lua".
--
-- KEYS[1] lock   string "owner token", which expires with the lease
-- KEYS[2] queue  sorted set of the waiting owners, in order of arrival
-- KEYS[3] heard  sorted set of the same owners, by the time until which they count as alive, ms
-- KEYS[4] memory hash with these fields:
--                "token"         the first token of the last turn, while nobody waits
--                "waits"         the same, while somebody may wait: there is no field "token" then
--                PROCESS         the number of the last owner of the process that has left
--                PROCESS " lost" the number of its last owner that did not hold the lock when it left
--
-- An owner is "process/number", and "process" is also the channel of the process. It numbers its owners in ascending
-- order, so that one number tells which of them have left: their late commands are refused, and a release that is
-- repeated still reports that the lock was released.
--
-- ARGV[1] lease, ms  ARGV[2] process  ARGV[3] number
-- Go defines, before each script, block, the number of tokens of a turn, and patience, the longest heartbeat, ms.
--
-- All times are the server's. Every Redis call, and every function defined here, costs a microsecond or two, during
-- which the server does nothing else. The scripts therefore serve a lock without contention before they reach this, in
-- three calls each. They need not look at the queue, because the field "token" exists only while nobody waits.
local lock, queue, heard, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, process = tonumber(ARGV[1]), ARGV[2]
local heartbeat = math.min(patience, lease)

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local millis = math.floor(micros / 1000)

local remembered = redis.call('HMGET', memory, 'token', 'waits')
local last = math.max(tonumber(remembered[1] or 0), tonumber(remembered[2] or 0)) -- first token of the last turn

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
  last = math.max(last + block, micros)
  redis.call('SET', lock, owner .. ' ' .. string.format('%.0f', last), 'PX', ttl)
  return last
end

-- pass grants the free lock to the first waiter that is alive, and sends it "number ttl token key". The grant is short
-- until the waiter confirms it: a waiter that died since its last heartbeat must not hold the lock for a whole lease.
local function pass()
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then
      return
    end
    local alive = tonumber(redis.call('ZSCORE', heard, owner) or 0) > millis
    redis.call('ZREM', queue, owner)
    redis.call('ZREM', heard, owner)
    if alive then
      local ttl = math.min(lease, heartbeat)
      local token = grant(owner, ttl)
      local to, number = string.match(owner, '^(.*)/(%d+)$')
      redis.call('PUBLISH', to, string.format('%s %.0f %.0f %s', number, ttl, token, lock))
      return
    end
  end
end

-- acquire grants the lock to an owner of the process, or adds it to the queue unless once is set. Asking again changes
-- nothing but the times: an owner that holds the lock gets the same token, one that waits keeps its place.
-- Returns the token if the owner holds the lock, 0 if it has left, and if it waits {ms until the holder's lease ends,
-- the first token of the last turn}.
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
    return grant(owner, lease)
  end
  if once then
    return {0, 0}
  end
  if not redis.call('ZSCORE', queue, owner) then
    -- By time, but never before the last in the queue: the clock may have been set back.
    local latest = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', queue, math.max(micros, tonumber(latest or 0) + 1), owner)
  end
  redis.call('ZADD', heard, millis + heartbeat, owner)
  lengthen(queue, heartbeat)
  lengthen(heard, heartbeat)
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
  return {ttl, last}
end

-- leave marks the owner as having left: its commands that are still on their way will be refused.
-- Returns 1 if the owner held the lock until now, or released it before, otherwise 0. If a later owner of the process
-- has left already, this one has lost the lock: a process asks for a new owner only when the one before has ended.
local function leave(number)
  local token = held(process .. '/' .. number)
  local ours = token ~= nil
  local left = redis.call('HMGET', memory, process, process .. ' lost')
  if ours then
    redis.call('DEL', lock)
    last = math.max(last, token)
  end
  if tonumber(left[1] or 0) < tonumber(number) then
    redis.call('HSET', memory, process, number)
    if not ours then
      redis.call('HSET', memory, process .. ' lost', number)
    end
  elseif left[1] == number and left[2] ~= number then
    ours = true -- a repeated release
  end
  return ours and 1 or 0
end

-- remember ends each script. It stores the last token under the field that tells whether somebody may wait, and makes
-- the memory outlast every command that may still be on its way.
local function remember()
  local field, other = 'token', 'waits'
  if redis.call('EXISTS', queue) == 1 then
    field, other = other, field
  end
  redis.call('HSET', memory, field, string.format('%.0f', last))
  redis.call('HDEL', memory, other)
  redis.call('PEXPIRE', memory, math.max(90000000, 2 * lease)) -- 25 h
  if redis.call('HLEN', memory) <= 256 then
    return
  end
  -- Forget the other processes. Most of them have ended by now, and none of their commands is still on its way.
  for _, name in ipairs(redis.call('HKEYS', memory)) do
    if name ~= field and string.sub(name, 1, #process) ~= process then
      redis.call('HDEL', memory, name)
    end
  end
end
