-- Grants the lock with a fencing token that is greater than that of every earlier grant. The token is the server's
-- time in microseconds, or the last token plus one if the clock has not advanced since then or was set back. It
-- therefore rises even if the last token was lost. For the next 200 years it fits the 53 bits of an integer that
-- numbers in Lua and JSON represent exactly.
-- Redis keeps the last token for a day after the grant, or for two leases if that is longer. From then on, the time
-- alone makes greater tokens, unless the clock is set back by more than a day.
-- KEYS[1] the lock  KEYS[2] the last token  ARGV[1] the owner  ARGV[2] the lease in ms
-- Returns the token, or 0 if another client holds the lock. An owner that asks again gets the same token.
local holder = redis.call('GET', KEYS[1])
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
if holder == ARGV[1] and last > 0 then
  return last
end
if holder then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local token = math.max(last + 1, now)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
-- Not tostring, which rounds to 14 digits.
redis.call('SET', KEYS[2], string.format('%.0f', token), 'PX', string.format('%.0f', math.max(86400000, 2 * ARGV[2])))
return token
