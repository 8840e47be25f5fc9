-- Overwrites the stock of a goods, if the last one to claim it is the caller.
-- KEYS[1] the stock  KEYS[2] the fence: "token issuer" of the last claim
-- ARGV[1] the issuer of the token  ARGV[2] the token  ARGV[3] the units
-- Returns OK, nothing where the goods is unknown, and the error FENCED with the fence where another has claimed it since.
local fence = redis.call('GET', KEYS[2])
if fence ~= ARGV[2] .. ' ' .. ARGV[1] then
  return redis.error_reply('FENCED ' .. (fence or 'by nobody'))
end
return redis.call('SET', KEYS[1], ARGV[3], 'XX')
