-- Releases the lock and, in the same step, asks for it on behalf of the next owner of the same process: if nobody else
-- waits, that owner is granted it at once.
-- ARGV[6] the first token of the turn  ARGV[7] the number of the next owner, or ''
-- Returns 1 if the lock was the caller's, or was released by it before, otherwise 0. With a next owner, it returns
-- that and what acquire returns.

-- The fast path of leave, in five calls: the lock is the caller's, nobody waits, and the memory knows the process.
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
