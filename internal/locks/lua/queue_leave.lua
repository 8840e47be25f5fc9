-- Removes an owner that has given up from the queue, and releases the lock if it was granted meanwhile.

-- include queue.lua
local owner = process .. '/' .. ARGV[3]
redis.call('ZREM', queue, owner)
redis.call('ZREM', heard, owner)
leave(ARGV[3])
if redis.call('EXISTS', lock) == 0 then
  pass()
end
remember()
return 1
