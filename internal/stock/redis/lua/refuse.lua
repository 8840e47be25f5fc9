-- Keeps the refusal of a request with an idempotency key.
-- KEYS[1] the record of the key: see sale.lua
-- ARGV[1] the refusal  ARGV[2] for how many milliseconds it is kept
-- Returns nil, or the record that the key has already.
local known = redis.call('GET', KEYS[1])
if known then
  return known
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
