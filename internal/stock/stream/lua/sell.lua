-- Deducts for several requests, one after the other, as long as there is enough, and adds the units that it took to the
-- item's stream, as one sale: both or neither.
-- KEYS[1] the stock  KEYS[2] the epoch of the stock  KEYS[3] the stream of sales
-- ARGV[1] a random number: a Redis that has lost its data, or whose clock was set back, may use an entry id twice
-- ARGV[2], ... the units that each request wants, in the order of arrival
-- Returns two numbers for each request: 1 and the units left, or 0 and the units there if it wants more. Returns nil
-- if the item is unknown, or the error CLOSED if it has no stream and something would be sold. A stream made here would
-- be missing in the index, and its sales lost from sight with this replica.
local stock = redis.call('GET', KEYS[1])
if not stock then
  return false
end
local units, reply, taken = tonumber(stock), {}, 0
for i = 2, #ARGV do
  local wanted = tonumber(ARGV[i])
  local granted = wanted <= units
  if granted then
    units, taken = units - wanted, taken + wanted
  end
  reply[#reply + 1], reply[#reply + 2] = granted and 1 or 0, units
end
if taken == 0 then
  return reply
end
-- Redis does not roll scripts back, so what can fail comes first: DECRBY needs a whole number, and XADD needs memory.
if string.format('%.0f', tonumber(stock)) ~= stock then
  return redis.error_reply('ERR the stock is not a whole number: ' .. stock)
end
local entry = redis.call('XADD', KEYS[3], 'NOMKSTREAM', '*',
  'units', taken, 'epoch', redis.call('GET', KEYS[2]) or '0', 'nonce', ARGV[1])
if not entry then
  return redis.error_reply('CLOSED the item has no stream')
end
redis.call('DECRBY', KEYS[1], taken)
return reply
