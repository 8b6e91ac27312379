-- Notes up to where a data set's ledger agrees with the ledger topic.
--
-- KEYS, both of one data set
--   1 control  hash    token, seq, head, ..., "compared <partition>" -> offset, decimal
--   2 ledger   list    hash-chained entries
-- ARGV
--   1 field of the partition   2 offset from which the topic was read   3 offset up to which it was, decimal
--   4 seq of the furthest entry found in between   5 that entry; neither when there was none
-- Returns {"OK"} | {"FORGOTTEN"}: the entry is not there, or another one is | {"CORRUPT", key}

for i, expected in ipairs({'hash', 'list'}) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= expected then
    return {'CORRUPT', KEYS[i]}
  end
end
if ARGV[4] then
  if redis.call('LINDEX', KEYS[2], ARGV[4]) ~= ARGV[5] then
    return {'FORGOTTEN'}
  end
elseif (redis.call('HGET', KEYS[1], ARGV[1]) or '0') ~= ARGV[2] then
  return {'OK'} -- another copy of this server than the one that said from where to read
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return {'OK'}
