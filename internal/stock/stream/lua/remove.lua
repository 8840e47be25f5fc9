-- Deletes sales that are in MySQL from an item's stream, and acknowledges them.
-- KEYS[1] the stream of sales
-- ARGV[1] the consumer group  ARGV, for each sale: the entry's id, then its random number. A Redis that has lost the
-- entry may have given its id to another sale, which must stay.
-- Returns how many entries were there.
local deleted = 0
for i = 2, #ARGV, 2 do
  local entry = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  local fields = entry and entry[2] or {}
  for f = 1, #fields, 2 do
    if fields[f] == 'nonce' and fields[f + 1] == ARGV[i + 1] then
      -- In this order: an entry that is acknowledged but not deleted would never be delivered again.
      deleted = deleted + redis.call('XDEL', KEYS[1], ARGV[i])
      redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
    end
  end
end
return deleted
