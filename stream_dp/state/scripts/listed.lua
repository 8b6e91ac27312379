-- Takes what a partition of the journal says beside its commits, and notes up to where it was read for that.
--
-- KEYS
--   1 datasets    set     names
--   2 listed      hash    partition of the journal -> offset, epoch and 0, decimal
--   3 watermarks  hash    "topic:partition" -> offset below which every record is done with, decimal
-- ARGV
--   1 partition   2 the note   3 the offset from which on it was read; empty to compare nothing
--   4 number of names   then the names
--   then topic:partition, offset, topic:partition, offset, ...: raised; one that stands higher already stays
-- Returns {"OK"} | {"FENCED", epoch}: a later epoch is noted | {"CONFLICT", "listed", ""}: an earlier note stands there
--   | {"CORRUPT", key}

local function less(a, b) -- decimal strings without leading zeros, of any length
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

for i, expected in ipairs({'set', 'hash', 'hash'}) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= expected then
    return {'CORRUPT', KEYS[i]}
  end
end
if ARGV[3] ~= '' then
  local noted = redis.call('HGET', KEYS[2], ARGV[1]) or '0 0 0'
  local offset, epoch = string.match(noted, '^(%d+) (%d+) %d+$')
  if not offset then
    return {'CORRUPT', KEYS[2]}
  end
  if less(string.match(ARGV[2], '^%d+ (%d+) %d+$'), epoch) then
    return {'FENCED', epoch}
  end
  if less(offset, ARGV[3]) then
    return {'CONFLICT', 'listed', ''}
  end
end
local marks = 5 + tonumber(ARGV[4])
for i = marks, #ARGV, 2 do
  local stored = redis.call('HGET', KEYS[3], ARGV[i])
  if stored and not string.match(stored, '^%d+$') then
    return {'CORRUPT', KEYS[3]}
  end
end
for i = 5, marks - 1 do
  redis.call('SADD', KEYS[1], ARGV[i])
end
for i = marks, #ARGV, 2 do
  local stored = redis.call('HGET', KEYS[3], ARGV[i])
  if not stored or less(stored, ARGV[i + 1]) then
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return {'OK'}
