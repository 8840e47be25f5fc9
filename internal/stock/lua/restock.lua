-- Adds units to a goods, and forgets who has claimed it: that holder has read the stock before.
-- MySQL is told by the stream of redis-stream: of the sale of less than nothing. It is told of every stock that it has set,
-- which has an epoch, also where nothing was sold yet.
-- KEYS[1] the stock  KEYS[2] the fence  KEYS[3] the epoch of the stock  KEYS[4] the stream of sales
-- ARGV[1] the units  ARGV[2] the most that may be there afterwards, at most 2^53 - 1: Lua's numbers are exact up to there
-- ARGV[3] a random number, as in stream_sell.lua
-- Returns the units after, nothing where the goods is unknown, and the error OVERSTOCKED with the units that are there.
local units = redis.call('GET', KEYS[1])
if not units then
  return false
elseif tonumber(units) > tonumber(ARGV[2]) - tonumber(ARGV[1]) then
  return redis.error_reply('OVERSTOCKED ' .. units)
elseif string.format('%.0f', tonumber(units)) ~= units then
  return redis.error_reply('ERR the stock is no whole number: ' .. units)
end
if redis.call('EXISTS', KEYS[3], KEYS[4]) > 0 then
  redis.call('XADD', KEYS[4], '*', 'units', '-' .. ARGV[1], 'epoch', redis.call('GET', KEYS[3]) or '0', 'nonce', ARGV[3])
end
redis.call('DEL', KEYS[2])
return redis.call('INCRBY', KEYS[1], ARGV[1])
