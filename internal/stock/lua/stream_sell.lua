-- Takes units out of a goods' stock and puts the sale into the goods' stream, both or none.
-- KEYS[1] the stock  KEYS[2] the epoch of the stock  KEYS[3] the stream of sales
-- ARGV[1] the units wanted  ARGV[2] a random number: a Redis that has lost its data, or whose clock was set back, may give
-- an entry's id a second time
-- Returns {1, units left}, {0, units left} where they are too few, and nothing where the goods is unknown.
local units = redis.call('GET', KEYS[1])
if not units then
  return false
elseif tonumber(units) < tonumber(ARGV[1]) then
  return {0, tonumber(units)}
end
-- Redis does not roll a script back: what can fail comes first. DECRBY takes whole numbers only, and XADD needs memory.
if string.format('%.0f', tonumber(units)) ~= units then
  return redis.error_reply('ERR the stock is no whole number: ' .. units)
end
redis.call('XADD', KEYS[3], '*', 'units', ARGV[1], 'epoch', redis.call('GET', KEYS[2]) or '0', 'nonce', ARGV[2])
return {1, redis.call('DECRBY', KEYS[1], ARGV[1])}
