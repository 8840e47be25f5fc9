-- What the scripts of redis-fair share; it precedes each of them.
-- KEYS[1] the lock  KEYS[2] the list of waiting ids, in order of arrival
-- KEYS[3] a hash from each waiting id to the time until which it counts as alive, in ms since 1970
-- ARGV[1] the caller's id, as a waiter and as the owner  ARGV[2] the channel
-- All times are the server's. TIME does not advance while a script runs.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- head removes dead waiters from the head of the queue. It returns the first that is alive, and until when it counts as
-- alive, or false.
local function head()
  while true do
    local first = redis.call('LINDEX', KEYS[2], 0)
    local alive = first and tonumber(redis.call('HGET', KEYS[3], first) or 0)
    if not first or alive > now then
      return first, alive
    end
    redis.call('LPOP', KEYS[2])
    redis.call('HDEL', KEYS[3], first)
  end
end

-- leave removes the caller from the queue.
local function leave()
  redis.call('LREM', KEYS[2], 1, ARGV[1])
  redis.call('HDEL', KEYS[3], ARGV[1])
end
