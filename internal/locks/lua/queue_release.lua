-- Gives the lock back and, in the same step, asks for it on behalf of another owner of the same process: where nobody else
-- waits, that one is granted it at once.
-- ARGV[6] the number of the next owner, or empty
-- Returns 1 where the lock was the caller's or had been given back by it, else 0. With a next owner, it returns both that
-- and what acquire does.

-- Ours, and nobody waits: the same as leave, in four calls.
if ARGV[6] == '' and redis.call('GET', KEYS[1]) == ARGV[4] .. '/' .. ARGV[5] and not redis.call('HGET', KEYS[4], 'waits') then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[4], ARGV[4], ARGV[5])
  return 1
end

-- include queue.lua
local released = leave(ARGV[5])
if ARGV[6] ~= '' then
  return {released, acquire(ARGV[6])}
end
if redis.call('EXISTS', lock) == 0 then
  passAndTell()
end
return released
