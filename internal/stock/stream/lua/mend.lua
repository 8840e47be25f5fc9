-- Sets the stock of an item to what MySQL proves, while sales go on.
-- KEYS[1] the stock  KEYS[2] the epoch of the stock
-- ARGV[1] the epoch that was found  ARGV[2] the stock that was found, empty for none  ARGV[3] the epoch in MySQL
-- ARGV[4] the units to add to a stock of MySQL's epoch  ARGV[5] the units to set if there is no stock, or one of
-- another epoch
-- Returns the units, or nil if the stock has been set meanwhile, or sold from although it is to be overwritten.
local units, epoch = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]) or '0'
if epoch ~= ARGV[1] then
  return false
elseif units and ARGV[2] ~= '' and epoch == ARGV[3] then
  return redis.call('INCRBY', KEYS[1], ARGV[4])
elseif (units or '') ~= ARGV[2] then
  return false
end
redis.call('SET', KEYS[1], ARGV[5])
redis.call('SET', KEYS[2], ARGV[3])
return tonumber(ARGV[5])
