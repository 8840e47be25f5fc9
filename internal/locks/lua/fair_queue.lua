-- What the scripts of redis-fair share; it stands before each of them.
-- KEYS[1] the lock  KEYS[2] the waiters, a list of ids in order of arrival  KEYS[3] by id, until when a waiter is taken for
-- alive (ms since 1970)  ARGV[1] the caller's id, as a waiter and as the owner  ARGV[2] the channel
-- Only the server's clock counts. TIME stands still while a script runs.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- head returns the first waiter that is alive, and until when, or false. The dead ones before it lose their place.
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

-- leave takes the caller out of the queue.
local function leave()
  redis.call('LREM', KEYS[2], 1, ARGV[1])
  redis.call('HDEL', KEYS[3], ARGV[1])
end
