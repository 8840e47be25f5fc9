-- Grants the lock, or adds the owner to the queue. Returns what acquire in queue.lua does.
-- ARGV[6] is set if the owner does not wait: instead of joining the queue, it leaves, so that a late repetition of this
-- command is refused.

-- The fast path of acquire and grant, in three calls: the lock is free, nobody waits, the token rises, and the owner
-- has not left. It does not store the token: the release does, or else the clock has passed it when the lease ends.
local remembered, time = redis.call('HMGET', KEYS[4], 'token', 'waits', ARGV[4]), redis.call('TIME')
local token = time[1] * 1000000 + time[2]
if not remembered[2] and tonumber(remembered[1] or 0) < token and tonumber(remembered[3] or 0) < tonumber(ARGV[5])
  and redis.call('SET', KEYS[1], string.format('%s/%s %.0f', ARGV[4], ARGV[5], token), 'NX', 'PX', ARGV[1]) then
  return token
end

-- include queue.lua
local reply = acquire(ARGV[5], ARGV[6])
if ARGV[6] and type(reply) == 'table' then
  leave(ARGV[5])
end
return reply
