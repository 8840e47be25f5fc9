-- Makes another owner of the same process the holder of the lock, with a whole lease, if the caller owns it.
-- KEYS[1] the lock  ARGV[1] the owner  ARGV[2] the next owner  ARGV[3] the lease in ms
-- Returns 1 if the lock was the caller's, otherwise 0.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return 0
