-- Deducts for several requests, one after the other, as long as there is enough. Redis runs a script as one step.
-- KEYS[1] the stock
-- ARGV the units that each request wants, in the order of arrival
-- Returns two numbers for each request: 1 and the units left, or 0 and the units there if it wants more. Returns nil
-- if the item is unknown.
local units = redis.call('GET', KEYS[1])
if not units then
  return false
end
units = tonumber(units)
local reply, taken = {}, 0
for i, wanted in ipairs(ARGV) do
  wanted = tonumber(wanted)
  local granted = wanted <= units
  if granted then
    units, taken = units - wanted, taken + wanted
  end
  reply[2 * i - 1], reply[2 * i] = granted and 1 or 0, units
end
if taken > 0 then
  redis.call('DECRBY', KEYS[1], taken)
end
return reply
