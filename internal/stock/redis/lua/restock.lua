-- Adds units to the stock of an item.
-- If the stock has an epoch or a stream, MySQL knows it, and must learn of the new units through the stream of
-- redis-stream: as a negative sale.
-- KEYS[1] the stock  KEYS[2] the epoch of the stock  KEYS[3] the stream of sales
-- ARGV[1] the units  ARGV[2] the largest stock, at most 2^53 - 1: Lua's numbers are exact up to there
-- ARGV[3] a random number, as in stream/lua/sell.lua
-- Returns the new stock, nil if the item is unknown, or an error: OVERSTOCKED with the current stock, CLOSED if the
-- item needs a stream and has none, or ERR if the stock is not a whole number.
local units = redis.call('GET', KEYS[1])
if not units then
  return false
elseif tonumber(units) > tonumber(ARGV[2]) - tonumber(ARGV[1]) then
  return redis.error_reply('OVERSTOCKED ' .. units)
elseif string.format('%.0f', tonumber(units)) ~= units then
  return redis.error_reply('ERR the stock is not a whole number: ' .. units)
end
if redis.call('EXISTS', KEYS[2], KEYS[3]) > 0 then
  local entry = redis.call('XADD', KEYS[3], 'NOMKSTREAM', '*',
    'units', '-' .. ARGV[1], 'epoch', redis.call('GET', KEYS[2]) or '0', 'nonce', ARGV[3])
  if not entry then
    return redis.error_reply('CLOSED the item has no stream')
  end
end
return redis.call('INCRBY', KEYS[1], ARGV[1])
