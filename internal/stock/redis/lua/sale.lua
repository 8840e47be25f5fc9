-- What the scripts that sell to several requests have in common. This text comes before theirs.
--
-- A request may have an idempotency key. The record of a key is the answer to the first request that had it:
-- "fingerprint outcome item count remaining epoch". After a cancellation, the record goes on with
-- " / cancelled given-back", in units. "- cancelled" is that of a key that was cancelled before it was used, and
-- "fingerprint cancelled" that of a refusal that was cancelled.
-- KEYS, after those of the script: the records of the requests that have keys
-- ARGV, after those of the script: the units that each request wants, in the order of arrival; and then, if there are
-- records: for each of them the number of its request, counted from 1, and the fingerprint; and at the end the id of
-- the item, and for how many milliseconds records of sales and of refusals are kept

-- A whole number as text: Lua would write large ones with an exponent.
local function whole(number)
  return string.format('%.0f', number)
end

-- allot decides on the requests, one after the other, as long as there is enough. keys and args are the numbers of the
-- script's own, and sold is the outcome in the records of those that are granted. It returns the reply, the units that
-- it took, and the records to keep. The reply has two values for each request: 1 and the units left, or 0 and the units
-- there if it wants more, or its record and 0 if its key is taken.
local function allot(units, epoch, keys, args, sold)
  local records, last, asked = #KEYS - keys, #ARGV, {}
  if records > 0 then
    last = #ARGV - 3 - 2 * records
    for i = 1, records do
      local at = last + 2 * i - 1
      asked[tonumber(ARGV[at])] = { key = KEYS[keys + i], fingerprint = ARGV[at + 1], index = i }
    end
  end
  local present = records > 0 and redis.call('MGET', unpack(KEYS, keys + 1))
  local reply, taken, new = {}, 0, {}
  for i = 1, last - args do
    local wanted, own = tonumber(ARGV[args + i]), asked[i]
    local known = own and (new[own.key] and new[own.key].record or present[own.index])
    if known then
      reply[2 * i - 1], reply[2 * i] = known, 0
    else
      local granted = wanted <= units
      if granted then
        units, taken = units - wanted, taken + wanted
      end
      reply[2 * i - 1], reply[2 * i] = granted and 1 or 0, units
      if own then
        local answer = ' ' .. (granted and sold or 'sold-out') .. ' '
        local record = own.fingerprint .. answer .. ARGV[#ARGV - 2] .. ' ' .. (granted and whole(wanted) or '0')
          .. ' ' .. whole(units) .. ' ' .. epoch
        new[own.key] = { record = record, ttl = granted and ARGV[#ARGV - 1] or ARGV[#ARGV] }
      end
    end
  end
  return reply, taken, new
end

-- keep stores the records that allot has returned.
local function keep(new)
  for key, answer in pairs(new) do
    redis.call('SET', key, answer.record, 'PX', answer.ttl)
  end
end

