-- Drops the records that are on the journal and of which everything has left, and notes how far the journal is.
--
-- KEYS, all of one data set
--   1 control  hash    token, seq, head, ...
--   2 outbox   hash    seq -> the record of a commit
-- ARGV
--   1 token   2 the seq of the last commit that is done with, decimal
--   3 field of the note   4 the note; neither to note nothing
-- Returns {"OK"} | {"FENCED", token} | {"CONFLICT", "behind", seq}: the store stands before that commit
--   | {"CORRUPT", key}

local CHUNK = 4000 -- unpack fails near 8,000 values

local function less(a, b) -- decimal strings without leading zeros, of any length
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

for i = 1, 2 do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= 'hash' then
    return {'CORRUPT', KEYS[i]}
  end
end
local control = redis.call('HMGET', KEYS[1], 'token', 'seq')
if control[1] ~= ARGV[1] then
  return {'FENCED', control[1] or ''}
end
if less(control[2], ARGV[2]) then
  return {'CONFLICT', 'behind', control[2]}
end
if ARGV[3] then
  redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
end

local gone = {}
for _, seq in ipairs(redis.call('HKEYS', KEYS[2])) do
  if not less(ARGV[2], seq) then
    gone[#gone + 1] = seq
  end
end
for from = 1, #gone, CHUNK do
  redis.call('HDEL', KEYS[2], unpack(gone, from, math.min(from + CHUNK - 1, #gone)))
end
return {'OK'}
