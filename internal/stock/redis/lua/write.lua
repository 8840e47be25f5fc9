-- Overwrites the stock of an item, if the caller is the holder that is registered with its fence.
-- KEYS[1] the stock  KEYS[2] the fence: "token issuer" of the registered holder
-- ARGV[1] the issuer of the token  ARGV[2] the token  ARGV[3] the units
-- Returns OK, nil if the item is unknown, or the error FENCED with the fence if another holder is registered.
local fence = redis.call('GET', KEYS[2])
if fence ~= ARGV[2] .. ' ' .. ARGV[1] then
  return redis.error_reply('FENCED ' .. (fence or 'by nobody'))
end
return redis.call('SET', KEYS[1], ARGV[3], 'XX')
