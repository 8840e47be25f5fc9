-- Registers the holder of a lock with an item's fence, if the item has enough units, and reads its stock.
-- KEYS[1] the stock  KEYS[2] the fence: "token issuer" of the registered holder
-- ARGV[1] the issuer of the token  ARGV[2] the token  ARGV[3] the units wanted
-- Returns the units, nil if the item is unknown, or the error FENCED with the fence if a later holder has registered.
local units = redis.call('GET', KEYS[1])
if not units then
  return false
elseif tonumber(units) < tonumber(ARGV[3]) then
  return units
end
local fence = redis.call('GET', KEYS[2])
if fence then
  local token, issuer = string.match(fence, '^(%d+) (.*)$')
  -- Compared as text, since Lua's numbers are exact only up to 2^53: the longer number is greater.
  local later = #ARGV[2] > #token or #ARGV[2] == #token and ARGV[2] > token
  if issuer == ARGV[1] and not later then
    return redis.error_reply('FENCED ' .. fence)
  end
end
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[1])
return units
