-- Sets the stock of a goods and forgets who has claimed it.
-- KEYS[1] the stock  KEYS[2] the fence  KEYS[3] the epoch of the stock
-- ARGV[1] the units  ARGV[2] the epoch, 0 where MySQL has none to give
-- Returns the epoch of the stock that is there then: a later one where that was set already, which stays.
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
