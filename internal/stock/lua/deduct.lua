-- Takes units of a goods, if there are enough: Redis runs a script as one step.
-- KEYS[1] the stock
-- ARGV[1] the units wanted
-- Returns {1, the units left} or, where there are fewer, {0, the units there}; nothing where the goods is unknown.
local units = redis.call('GET', KEYS[1])
if not units then
  return false
elseif tonumber(units) < tonumber(ARGV[1]) then
  return {0, tonumber(units)}
end
return {1, redis.call('DECRBY', KEYS[1], ARGV[1])}
