-- Grants the lock, or puts the owner into the queue. Returns what acquire in queue.lua does.

-- Free, nobody waits, nothing is remembered against it: the same as acquire and grant, in five calls.
if not redis.call('GET', KEYS[1]) and redis.call('EXISTS', KEYS[2]) == 0 then
  local remembered, time = redis.call('HMGET', KEYS[4], 'token', ARGV[4]), redis.call('TIME')
  local token, left = time[1] * 1000000 + time[2], tonumber(remembered[2] or 0)
  if left and left < tonumber(ARGV[5]) and tonumber(remembered[1] or 0) < token then
    token = string.format('%.0f', token)
    redis.call('SET', KEYS[1], ARGV[4] .. '/' .. ARGV[5] .. ' ' .. token, 'PX', ARGV[1])
    return {1, token}
  end
end

-- include queue.lua
return acquire(ARGV[5])
