-- Replaces what is recorded under a name, if that is still what it is said to be.
--
-- KEYS
--   1 marks  hash    name -> any bytes
-- ARGV
--   1 name   2 what is recorded, "" for nothing   3 what to record in its place
-- Returns {"OK", what is recorded now} | {"CORRUPT", key}

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
  return {'CORRUPT', KEYS[1]}
end
local found = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if found == ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  found = ARGV[3]
end
return {'OK', found}
