-- Overwrites the stock of several goods, if all of them are known and the last one to claim each of them is the caller.
-- KEYS, for each goods: the stock, then the fence: "token issuer" of the last claim
-- ARGV[1] the issuer of the tokens, empty where there is no fence to look at  ARGV, for each goods: the units, then the token
-- Returns OK, or an error with the first goods to blame, counted from 0: UNKNOWN, or FENCED with the fence where another has
-- claimed it since. Every goods is looked at before the first is written: an error undoes nothing.
for i = 1, #KEYS, 2 do
  local goods = (i - 1) / 2
  if redis.call('EXISTS', KEYS[i]) == 0 then
    return redis.error_reply('UNKNOWN ' .. goods)
  elseif ARGV[1] ~= '' then
    local fence = redis.call('GET', KEYS[i + 1])
    if fence ~= ARGV[i + 2] .. ' ' .. ARGV[1] then
      return redis.error_reply('FENCED ' .. goods .. ' ' .. (fence or 'by nobody'))
    end
  end
end
for i = 1, #KEYS, 2 do
  redis.call('SET', KEYS[i], ARGV[i + 1])
end
return redis.status_reply('OK')
