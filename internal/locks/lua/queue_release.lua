-- Gives the lock back and, in the same step, asks for it on behalf of another owner of the same process: where nobody else
-- waits, that one is granted it at once.
-- ARGV[6] the number of the next owner, or empty
-- Returns {1 where the lock was the caller's or had been given back by it, else 0; then what acquire does for the next}.

-- Ours, nobody waits, and no memory is begun: the same as leave, in four calls.
local value, holder = redis.call('GET', KEYS[1]), ARGV[4] .. '/' .. ARGV[5] .. ' '
if ARGV[6] == '' and value and string.sub(value, 1, #holder) == holder and redis.call('EXISTS', KEYS[2]) == 0 then
  local last = string.format('%.0f', tonumber(string.sub(value, #holder + 1)) + ARGV[3] - 1)
  if redis.call('HSET', KEYS[4], ARGV[4], ARGV[5], 'token', last) == 0 then
    redis.call('DEL', KEYS[1])
    return {1}
  end
end

-- include queue.lua
local released = leave(ARGV[5])
if ARGV[6] ~= '' then
  local reply = acquire(ARGV[6])
  return {released, reply[1], reply[2]}
end
if redis.call('EXISTS', lock) == 0 then
  pass()
end
return {released}
