-- Drops the outbox records that have been released.
--
-- KEYS, all of one data set
--   1 control  hash    token, seq, head, ...
--   2 outbox   hash    seq -> records to release
-- ARGV
--   1 token   2 the last seq whose records have been released, decimal
-- Returns {"OK"} | {"FENCED", token} | {"CORRUPT", key}

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
local token = redis.call('HGET', KEYS[1], 'token')
if token ~= ARGV[1] then
  return {'FENCED', token or ''}
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
