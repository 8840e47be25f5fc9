-- Grants a hold of the lock if it is free, or if the caller names a hold that still exists. The holds are a set of
-- ids, not a count, so that a command that is carried out twice does no harm. The lock is held until the set is empty;
-- Redis deletes it then.
-- KEYS[1] the set of holds  ARGV[1] the new hold  ARGV[2] the lease in ms  ARGV[3] the existing hold, or ''
-- Returns 0 if another client holds the lock, 1 if it was granted, 2 if it was entered again.
local again = redis.call('SISMEMBER', KEYS[1], ARGV[3])
local asked = redis.call('SISMEMBER', KEYS[1], ARGV[1]) -- this command is being repeated
if again == 0 and asked == 0 and redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1 + again
