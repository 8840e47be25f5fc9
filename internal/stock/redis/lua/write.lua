-- Overwrites the stock of an item for the holder of its lock.
-- KEYS[1] the stock  KEYS[2] the fence: "token issuer" of the last sale through the fence
-- KEYS[3] the record of the idempotency key, if the request has one (see sale.lua)  KEYS[4] the epoch of the stock
-- ARGV[1] the units  ARGV[2] the issuer of the token, empty for no fence  ARGV[3] the token of the holder
-- ARGV[4] the units that it has read  ARGV[5] the record without the epoch  ARGV[6] for how many milliseconds it is kept
-- Returns OK, or an error: TAKEN with the record that the key has already; UNKNOWN; or, through a fence, FENCED with the
-- fence if a later holder of the same issuer has written, or CHANGED if the stock is not what was read.
-- It checks everything before it writes: an error undoes nothing.
local fenced, known = ARGV[2] ~= '', KEYS[3] and redis.call('GET', KEYS[3])
if known then
  return redis.error_reply('TAKEN ' .. known)
end
local units = redis.call('GET', KEYS[1])
if not units then
  return redis.error_reply('UNKNOWN item')
elseif fenced then
  local fence = redis.call('GET', KEYS[2])
  local token, issuer = string.match(fence or '', '^(%d+) (.*)$')
  if issuer == ARGV[2] then
    -- Compared as text, since Lua's numbers are exact only up to 2^53: the longer number is greater.
    local own = ARGV[3]
    if #own < #token or #own == #token and own <= token then
      return redis.error_reply('FENCED ' .. fence)
    end
  end
  if tonumber(units) ~= tonumber(ARGV[4]) then
    return redis.error_reply('CHANGED the stock')
  end
end
if KEYS[3] then
  redis.call('SET', KEYS[3], ARGV[5] .. ' ' .. (redis.call('GET', KEYS[4]) or '0'), 'PX', ARGV[6])
end
redis.call('SET', KEYS[1], ARGV[1])
if fenced then
  redis.call('SET', KEYS[2], ARGV[3] .. ' ' .. ARGV[2])
end
return redis.status_reply('OK')
