-- Raises watermarks; one that stands higher already stays.
--
-- KEYS
--   1 watermarks  hash    "topic:partition" -> offset below which every record is done with, decimal
-- ARGV
--   topic:partition, offset, topic:partition, offset, ...
-- Returns {"OK"} | {"CORRUPT", key}

local function less(a, b) -- decimal strings without leading zeros, of any length
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
  return {'CORRUPT', KEYS[1]}
end
for i = 1, #ARGV, 2 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  if stored and not string.match(stored, '^%d+$') then
    return {'CORRUPT', KEYS[1]}
  end
end
for i = 1, #ARGV, 2 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  if not stored or less(stored, ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return {'OK'}
