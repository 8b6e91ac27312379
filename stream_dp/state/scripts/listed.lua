-- Notes up to where every data set on the ledger topic is listed.
--
-- KEYS
--   1 datasets  set     names
--   2 compared  hash    partition -> offset, decimal
-- ARGV
--   1 partition   2 offset from which the topic was read   3 offset up to which it was, decimal
--   4 ... names found in between
-- Returns {"OK"} | {"CORRUPT", key}

for i, expected in ipairs({'set', 'hash'}) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= expected then
    return {'CORRUPT', KEYS[i]}
  end
end
if (redis.call('HGET', KEYS[2], ARGV[1]) or '0') ~= ARGV[2] then
  return {'OK'} -- another copy of this server than the one that said from where to read
end
for i = 4, #ARGV do
  if redis.call('SISMEMBER', KEYS[1], ARGV[i]) == 0 then
    return {'OK'}
  end
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return {'OK'}
