-- Grants the lock together with a fencing token, greater than that of every grant before.
-- The token is the server's time in microseconds, or the last token and one where the clock has not moved on since, or has
-- been set back. So it needs neither the clock nor the counter alone: it rises too after the counter was lost. It fits the
-- 53 bits that a number of Lua, and of JSON, holds exactly, for the next 200 years.
-- KEYS[1] the lock  KEYS[2] the last token  ARGV[1] the owner  ARGV[2] the lease in ms
-- Returns the token, or 0 where another holds the lock. An owner that asks again gets the token that it was granted.
local holder = redis.call('GET', KEYS[1])
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
if holder == ARGV[1] and last > 0 then
  return last
end
if holder then
  return 0
end
local now = redis.call('TIME')
local token = math.max(last + 1, now[1] * 1000000 + now[2])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], string.format('%.0f', token)) -- not tostring, which rounds to 14 digits
return token
