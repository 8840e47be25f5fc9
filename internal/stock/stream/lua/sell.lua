-- Deducts for several requests, and adds the units that it took to the item's stream, as one sale: both or neither. See
-- sale.lua for the requests.
-- KEYS[1] the stock  KEYS[2] the epoch of the stock  KEYS[3] the stream of sales
-- ARGV[1] a random number: a Redis that has lost its data, or whose clock was set back, may use an entry id twice
-- Returns the reply of allot, nil if the item is unknown, or the error CLOSED if it has no stream and something would be
-- sold. A stream made here would be missing in the index, and its sales lost from sight with this replica.
local stock = redis.call('GET', KEYS[1])
if not stock then
  return false
end
local epoch = redis.call('GET', KEYS[2]) or '0'
local reply, taken, new = allot(tonumber(stock), epoch, 3, 1, 'streamed')
if taken > 0 then
  -- Redis does not roll scripts back, so what can fail comes first: DECRBY needs a whole number, and SET needs memory.
  if whole(tonumber(stock)) ~= stock then
    return redis.error_reply('ERR the stock is not a whole number: ' .. stock)
  end
  if redis.call('EXISTS', KEYS[3]) == 0 then
    return redis.error_reply('CLOSED the item has no stream')
  end
end
keep(new)
if taken > 0 then
  redis.call('XADD', KEYS[3], '*', 'units', taken, 'epoch', epoch, 'nonce', ARGV[1])
  redis.call('DECRBY', KEYS[1], taken)
end
return reply
