-- Brings the stock of a goods to what MySQL proves, beside sales that go on.
-- KEYS[1] the stock  KEYS[2] the epoch of the stock
-- ARGV[1] the epoch that was found  ARGV[2] the epoch in MySQL  ARGV[3] the units to add to a stock of that epoch
-- ARGV[4] the units to set where there is no stock, or one of another epoch
-- Returns the units, and nothing where the stock was set meanwhile.
local epoch = redis.call('GET', KEYS[2]) or '0'
if epoch ~= ARGV[1] then
  return false
elseif epoch == ARGV[2] and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.call('INCRBY', KEYS[1], ARGV[3])
end
redis.call('SET', KEYS[1], ARGV[4])
redis.call('SET', KEYS[2], ARGV[2])
return tonumber(ARGV[4])
