-- Deletes the stream of an item if it is empty. The next sale opens it again.
-- KEYS[1] the stream of sales
if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
end
return 1
