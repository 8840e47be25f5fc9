-- Sets the stock of an item and resets its fence.
-- KEYS[1] the stock  KEYS[2] the fence  KEYS[3] the epoch of the stock
-- ARGV[1] the units  ARGV[2] the epoch, 0 if MySQL is not there to make one
-- Returns the epoch of the stock. If a stock of the same or a later epoch is there already, that one stays.
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[3])
else
  local epoch = redis.call('GET', KEYS[3])
  if epoch and tonumber(epoch) >= tonumber(ARGV[2]) then
    return tonumber(epoch)
  end
  redis.call('SET', KEYS[3], ARGV[2])
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return tonumber(ARGV[2])
