-- Grants a hold of the lock to whoever finds it free, or shows a hold that is still there. The holds are a set of ids rather
-- than a count, so that a command that is carried out twice does no harm: the lock is held until the set is empty, which is
-- when Redis deletes it.
-- KEYS[1] the set of holds  ARGV[1] the new hold  ARGV[2] the lease in ms  ARGV[3] the hold that it is asked under, or ''
-- Returns 0 where another holds the lock, 1 where it was granted, 2 where it was entered again.
local again = redis.call('SISMEMBER', KEYS[1], ARGV[3])
local asked = redis.call('SISMEMBER', KEYS[1], ARGV[1]) -- the same command once more
if again == 0 and asked == 0 and redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1 + again
