-- Erases the next buckets of what the persons of a data set have used, and notes how many are erased. The data set is
-- retired, or has just been rebuilt.
--
-- KEYS, all of one data set
--   1 control  hash    token, seq, head, ..., retired, forgotten (buckets that are erased, decimal)
--   2 persons  no key of its own, but what the names of its buckets begin with:
--              "<persons>:<first 20 bits of a digest, hex>"  hash
-- ARGV
--   1 token   2 the most buckets to erase, at most 4,000: unpack fails near 8,000 values
-- Returns {"OK", "1" if there may be more, else "0"} | {"FENCED", token} | {"CONFLICT", what, detail}
--   | {"CORRUPT", key}

local BUCKETS = 1048576 -- 2^20

local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'none' and found ~= 'hash' then
  return {'CORRUPT', KEYS[1]}
end
local control = redis.call('HMGET', KEYS[1], 'token', 'retired', 'forgotten', 'restored', 'trail')
if control[1] ~= ARGV[1] then
  return {'FENCED', control[1] or ''}
end
if not control[2] and not (control[4] and control[4] == control[5]) then
  return {'CONFLICT', 'kept', ''}
end
local first = control[3] or '0'
if not string.match(first, '^%d+$') or #first > 7 then
  return {'CORRUPT', KEYS[1]}
end
first = tonumber(first)
local next = math.min(first + tonumber(ARGV[2]), BUCKETS)
local names = {}
for bucket = first, next - 1 do
  names[#names + 1] = string.format('%s:%05x', KEYS[2], bucket)
end
if #names > 0 then
  redis.call('UNLINK', unpack(names))
  redis.call('HSET', KEYS[1], 'forgotten', string.format('%d', next))
end
return {'OK', next < BUCKETS and '1' or '0'}
