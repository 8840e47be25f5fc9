-- Replaces the record of an idempotency key, and puts units back into the stock that they were sold from: both or
-- neither, and only if everything is as it was read.
-- KEYS[1] the record: see sale.lua
-- KEYS, if units are put back: [2] the stock  [3] the epoch of the stock  [4] the stream of sales
-- ARGV[1] the record that was read, empty for none  ARGV[2] the new one  ARGV[3] for how many milliseconds it is kept
-- ARGV, if units are put back: [4] the units  [5] the epoch of the stock that they were sold from  [6] the largest stock:
-- see restock.lua  [7] a random number, as in stream/lua/sell.lua, if MySQL gets the units too, or else empty
-- Returns OK, or an error: CHANGED if the record or the epoch of the stock is another, OVERSTOCKED with the stock, CLOSED
-- if the item needs a stream and has none, or ERR if the stock is not a whole number.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return redis.error_reply('CHANGED the record')
end
if KEYS[2] then
  local units = redis.call('GET', KEYS[2])
  if not units or (redis.call('GET', KEYS[3]) or '0') ~= ARGV[5] then
    return redis.error_reply('CHANGED the stock')
  elseif tonumber(units) > tonumber(ARGV[6]) - tonumber(ARGV[4]) then
    return redis.error_reply('OVERSTOCKED ' .. units)
  elseif string.format('%.0f', tonumber(units)) ~= units then
    return redis.error_reply('ERR the stock is not a whole number: ' .. units)
  elseif ARGV[7] ~= '' and redis.call('EXISTS', KEYS[4]) == 0 then
    return redis.error_reply('CLOSED the item has no stream')
  end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if KEYS[2] then
  if ARGV[7] ~= '' then
    redis.call('XADD', KEYS[4], '*', 'units', '-' .. ARGV[4], 'epoch', ARGV[5], 'nonce', ARGV[7])
  end
  redis.call('INCRBY', KEYS[2], ARGV[4])
end
return redis.status_reply('OK')
