-- Lists names, and notes up to where every name on a partition of the journal is listed.
--
-- KEYS
--   1 datasets  set     names
--   2 listed    hash    partition of the journal -> offset, epoch and 0, decimal
-- ARGV
--   1 partition   2 the note   3 ... names
-- Returns {"OK"} | {"CORRUPT", key}

for i, expected in ipairs({'set', 'hash'}) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= expected then
    return {'CORRUPT', KEYS[i]}
  end
end
for i = 3, #ARGV do
  redis.call('SADD', KEYS[1], ARGV[i])
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return {'OK'}
