-- Gives the lock back and, in the same step, puts another owner of the same process into the queue: where nobody else
-- waits, that one is granted the lock at once.
-- ARGV[5] the next owner, or empty
-- Returns {1 where the lock was the caller's or had been given back by him, else 0; then what acquire does for the next}.
local released = leave(ARGV[4]) and 1 or 0
if ARGV[5] ~= '' then
  local reply = acquire(ARGV[5])
  return {released, reply[1], reply[2]}
end
if redis.call('EXISTS', lock) == 0 then
  pass()
end
return {released}
