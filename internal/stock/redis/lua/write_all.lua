-- Overwrites the stock of several items, if all are known and the caller is registered with the fence of each.
-- KEYS, for each item: the stock, then the fence: "token issuer" of the registered holder
-- ARGV[1] the issuer of the tokens, empty for no fence  ARGV, for each item: the units, then the token
-- Returns OK, or an error with the first item to blame, counted from 0: UNKNOWN, or FENCED with the fence if another
-- holder is registered. It checks every item before it writes the first: an error undoes nothing.
for i = 1, #KEYS, 2 do
  local item = (i - 1) / 2
  if redis.call('EXISTS', KEYS[i]) == 0 then
    return redis.error_reply('UNKNOWN ' .. item)
  elseif ARGV[1] ~= '' then
    local fence = redis.call('GET', KEYS[i + 1])
    if fence ~= ARGV[i + 2] .. ' ' .. ARGV[1] then
      return redis.error_reply('FENCED ' .. item .. ' ' .. (fence or 'by nobody'))
    end
  end
end
for i = 1, #KEYS, 2 do
  redis.call('SET', KEYS[i], ARGV[i + 1])
end
return redis.status_reply('OK')
