-- Gives the lock back and, in the same step, asks for it on behalf of another owner of the same process: where nobody else
-- waits, that one is granted it at once.
-- ARGV[6] the first token of the turn  ARGV[7] the number of the next owner, or empty
-- Returns 1 where the lock was the caller's or had been given back by it, else 0. With a next owner, it returns both that
-- and what acquire does.

-- Ours, nobody waits, and the process is known: the same as leave, in five calls.
if ARGV[7] == '' and redis.call('GET', KEYS[1]) == ARGV[4] .. '/' .. ARGV[5] .. ' ' .. ARGV[6] then
  local remembered = redis.call('HMGET', KEYS[4], 'waits', ARGV[4])
  if not remembered[1] and remembered[2] then
    redis.call('HSET', KEYS[4], ARGV[4], ARGV[5], 'token', string.format('%.0f', ARGV[6] + ARGV[3] - 1))
    redis.call('PEXPIRE', KEYS[4], math.max(86400000, 2 * ARGV[1]))
    redis.call('DEL', KEYS[1])
    return 1
  end
end

-- include queue.lua
local released = leave(ARGV[5])
if ARGV[7] ~= '' then
  return {released, acquire(ARGV[7])}
end
if redis.call('EXISTS', lock) == 0 then
  pass()
end
return released
