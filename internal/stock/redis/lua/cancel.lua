-- Replaces the record of an idempotency key, and puts units back into the stocks that they were sold from: both or
-- neither, and only if everything is as it was read.
-- KEYS[1] the record: see sale.lua
-- KEYS, for each item whose units are put back: the stock, then the epoch of the stock, then the stream of sales
-- ARGV[1] the record that was read, empty for none  ARGV[2] the new one  ARGV[3] for how many milliseconds it is kept
-- ARGV[4] a random number, as in stream/lua/sell.lua, if MySQL gets the units too, or else empty
-- ARGV[5] the largest stock: see restock.lua
-- ARGV, for each item: the units, then the epoch of the stock that they were sold from
-- Returns OK, or an error: CHANGED if the record or the epoch of a stock is another, OVERSTOCKED with the item, counted
-- from 0, and its stock, CLOSED if an item needs a stream and has none, or ERR if a stock is not a whole number.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return redis.error_reply('CHANGED the record')
end
for key = 2, #KEYS, 3 do
  local arg = (key - 2) / 3 * 2 + 6
  local units = redis.call('GET', KEYS[key])
  if not units or (redis.call('GET', KEYS[key + 1]) or '0') ~= ARGV[arg + 1] then
    return redis.error_reply('CHANGED the stock')
  elseif tonumber(units) > tonumber(ARGV[5]) - tonumber(ARGV[arg]) then
    return redis.error_reply('OVERSTOCKED ' .. (key - 2) / 3 .. ' ' .. units)
  elseif string.format('%.0f', tonumber(units)) ~= units then
    return redis.error_reply('ERR the stock is not a whole number: ' .. units)
  elseif ARGV[4] ~= '' and redis.call('EXISTS', KEYS[key + 2]) == 0 then
    return redis.error_reply('CLOSED the item has no stream')
  end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
for key = 2, #KEYS, 3 do
  local arg = (key - 2) / 3 * 2 + 6
  if ARGV[4] ~= '' then
    redis.call('XADD', KEYS[key + 2], '*', 'units', '-' .. ARGV[arg], 'epoch', ARGV[arg + 1], 'nonce', ARGV[4])
  end
  redis.call('INCRBY', KEYS[key], ARGV[arg])
end
return redis.status_reply('OK')
