-- Releases the caller's lock or removes it from the queue, and wakes the first waiter if the lock is free then.
-- Returns 1 if the lock was the caller's, otherwise 0.
local ours = redis.call('GET', KEYS[1]) == ARGV[1]
if ours then
  redis.call('DEL', KEYS[1])
end
leave()
if redis.call('EXISTS', KEYS[1]) == 0 then
  local first = head()
  if first then
    redis.call('PUBLISH', ARGV[2], first)
  end
end
return ours and 1 or 0
