-- Grants the lock, or adds the owner to the queue. Returns what acquire in queue.lua does.
-- ARGV[4] is set if the owner does not wait: instead of joining the queue, it leaves, so that a late repetition of this
-- command is refused.

-- The fast path of acquire and grant: nobody waits, the token rises, the owner has not left, and the lock is free. It
-- does not store the token: the release does, or else the clock has passed it when the lease ends. The first lock of
-- each hour takes the other path, which makes the memory last for another day.
local remembered, time = redis.call('HMGET', KEYS[4], 'token', ARGV[2]), redis.call('TIME')
local last, token = remembered[1], time[1] * 1000000 + time[2]
if last and last + block <= token and token - last <= token % 3600000000 and (remembered[2] or 0) - ARGV[3] < 0
  and redis.call('SET', KEYS[1], ARGV[2] .. '/' .. ARGV[3] .. ' ' .. time[1] .. string.sub('00000' .. time[2], -6),
    'NX', 'PX', ARGV[1]) then
  return token
end

-- include queue.lua
local reply = acquire(ARGV[3], ARGV[4])
if ARGV[4] and type(reply) == 'table' then
  leave(ARGV[3])
end
remember()
return reply
