-- Grants the lock, or puts the owner into the queue. Returns what acquire in queue.lua does.

-- Free, nobody waits, and nothing is remembered against it: the same as acquire and grant, in three calls.
local owner = ARGV[4] .. '/' .. ARGV[5]
if redis.call('SET', KEYS[1], owner, 'NX', 'PX', ARGV[1]) then
  local remembered = redis.call('HMGET', KEYS[4], 'token', 'waits', ARGV[4])
  if remembered[1] and not remembered[2] and tonumber(remembered[3] or 0) < tonumber(ARGV[5]) then
    redis.call('HSET', KEYS[4], 'token', remembered[1] + ARGV[3])
    return remembered[1] + 1
  end
  redis.call('DEL', KEYS[1])
end

-- include queue.lua
return acquire(ARGV[5])
