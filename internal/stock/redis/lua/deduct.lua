-- Deducts for several requests. Redis runs a script as one step. See sale.lua for the requests.
-- KEYS[1] the stock  KEYS[2] the epoch of the stock, if there are records
-- Returns the reply of allot, or nil if the item is unknown.
local stock = redis.call('GET', KEYS[1])
if not stock then
  return false
end
local reply, taken, new
if #KEYS == 1 then
  reply, taken, new = allot(tonumber(stock), '0', 1, 0, 'done')
else
  reply, taken, new = allot(tonumber(stock), redis.call('GET', KEYS[2]) or '0', 2, 0, 'done')
end
if next(new) then
  -- Redis does not roll scripts back, so what can fail comes first: DECRBY needs a whole number, and SET needs memory.
  if whole(tonumber(stock)) ~= stock then
    return redis.error_reply('ERR the stock is not a whole number: ' .. stock)
  end
  keep(new)
end
if taken > 0 then
  redis.call('DECRBY', KEYS[1], taken)
end
return reply
