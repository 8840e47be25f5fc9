-- Deducts units from an item's stock and adds the sale to the item's stream, both or neither.
-- KEYS[1] the stock  KEYS[2] the epoch of the stock  KEYS[3] the stream of sales
-- ARGV[1] the units wanted  ARGV[2] a random number: a Redis that has lost its data, or whose clock was set back, may
-- use an entry id twice
-- Returns {1, units left}, {0, units there} if there are too few, nil if the item is unknown, or the error CLOSED if it
-- has no stream. A stream made here would be missing in the index, and its sales lost from sight with this replica.
local units = redis.call('GET', KEYS[1])
if not units then
  return false
elseif tonumber(units) < tonumber(ARGV[1]) then
  return {0, tonumber(units)}
end
-- Redis does not roll scripts back, so what can fail comes first: DECRBY needs a whole number, and XADD needs memory.
if string.format('%.0f', tonumber(units)) ~= units then
  return redis.error_reply('ERR the stock is not a whole number: ' .. units)
end
local entry = redis.call('XADD', KEYS[3], 'NOMKSTREAM', '*',
  'units', ARGV[1], 'epoch', redis.call('GET', KEYS[2]) or '0', 'nonce', ARGV[2])
if not entry then
  return redis.error_reply('CLOSED the item has no stream')
end
return {1, redis.call('DECRBY', KEYS[1], ARGV[1])}
