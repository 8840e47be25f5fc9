-- Releases the lock and, in the same step, asks for it on behalf of the next owner of the same process: if nobody else
-- waits, that owner is granted it at once.
-- ARGV[4] the first token of the turn  ARGV[5] the number of the next owner, if there is one
-- Returns 1 if the lock was the caller's, or was released by it before, otherwise 0. With a next owner, it returns
-- that and what acquire returns.

-- The fast path of leave: the lock is the caller's, nobody waits, and the memory knows the process. HSET returns how
-- many fields it has added. If it has added "token", somebody may wait; if it has added the process, the memory may
-- have to forget others. Then the rest of the script does that, and releases the lock.
if not ARGV[5] and redis.call('GET', KEYS[1]) == ARGV[2] .. '/' .. ARGV[3] .. ' ' .. ARGV[4]
  and redis.call('HSET', KEYS[4], ARGV[2], ARGV[3], 'token', ARGV[4]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end

-- include queue.lua
local reply = leave(ARGV[3])
if ARGV[5] then
  reply = {reply, acquire(ARGV[5])}
elseif redis.call('EXISTS', lock) == 0 then
  pass()
end
remember()
return reply
