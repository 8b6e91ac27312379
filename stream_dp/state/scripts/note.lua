-- Notes up to where the journal is contained in what is stored of a data set.
--
-- KEYS, of one data set
--   1 control  hash    token, seq, head, ..., trail (hex), "journal <partition>" -> offset, epoch and seq, decimal
-- ARGV
--   1 field of the partition   2 the note   3 seq at which that was found   4 trail, hex
-- Returns {"OK"} | {"CORRUPT", key}

local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'none' and found ~= 'hash' then
  return {'CORRUPT', KEYS[1]}
end
local control = redis.call('HMGET', KEYS[1], 'seq', 'trail')
if control[1] == ARGV[3] and (control[2] or string.rep('0', 64)) == ARGV[4] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return {'OK'}
