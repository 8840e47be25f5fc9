-- Overwrites the stock of several items, all or none.
-- KEYS, for each item: the stock, then the fence: "token issuer" of the last sale through the fence
-- KEYS, if the request has an idempotency key: its record (see sale.lua), then the epoch of each item's stock
-- ARGV[1] the issuer of the tokens, empty for no fence  ARGV[2] the number of items
-- ARGV, for each item: the units, then the token of the holder, then the units that it has read
-- ARGV, if there is a record: its beginning, for how many milliseconds it is kept, and for each item its part of the
-- record without the epoch
-- Returns OK, the error TAKEN with the record that the key has already, or an error with the first item to blame,
-- counted from 0: UNKNOWN; or, through a fence, FENCED with the fence if a later holder of the same issuer has written, or
-- CHANGED if the stock is not what was read.
-- It checks every item before it writes the first: an error undoes nothing.
local fenced, items = ARGV[1] ~= '', tonumber(ARGV[2])
local record = KEYS[2 * items + 1]
local known = record and redis.call('GET', record)
if known then
  return redis.error_reply('TAKEN ' .. known)
end
for i = 1, 2 * items, 2 do
  local item, arg = (i - 1) / 2, (i - 1) / 2 * 3 + 3
  local units = redis.call('GET', KEYS[i])
  if not units then
    return redis.error_reply('UNKNOWN ' .. item)
  elseif fenced then
    local fence = redis.call('GET', KEYS[i + 1])
    local token, issuer = string.match(fence or '', '^(%d+) (.*)$')
    if issuer == ARGV[1] then
      -- Compared as text, since Lua's numbers are exact only up to 2^53: the longer number is greater.
      local own = ARGV[arg + 1]
      if #own < #token or #own == #token and own <= token then
        return redis.error_reply('FENCED ' .. item .. ' ' .. fence)
      end
    end
    if tonumber(units) ~= tonumber(ARGV[arg + 2]) then
      return redis.error_reply('CHANGED ' .. item)
    end
  end
end
if record then
  local first = 2 + 3 * items
  local answer = ARGV[first + 1]
  for i = 1, items do
    answer = answer .. ' ' .. ARGV[first + 2 + i] .. ' ' .. (redis.call('GET', KEYS[2 * items + 1 + i]) or '0')
  end
  redis.call('SET', record, answer, 'PX', ARGV[first + 2])
end
for i = 1, 2 * items, 2 do
  local arg = (i - 1) / 2 * 3 + 3
  redis.call('SET', KEYS[i], ARGV[arg])
  if fenced then
    redis.call('SET', KEYS[i + 1], ARGV[arg + 1] .. ' ' .. ARGV[1])
  end
end
return redis.status_reply('OK')
