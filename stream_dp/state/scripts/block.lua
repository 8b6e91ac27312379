-- Reads the rows of one block. Private.
--
-- KEYS, all of one data set
--   1 control  hash    token, seq, head, ..., retired
--   2 spent    hash    "<block>:rho" and "<block>:delta" -> units of budget / 2^50, decimal; of every block ever sealed
--   3 blocks   list    sealed blocks, the last ones: those before them are erased
-- ARGV
--   1 token   2 the block, from 0, decimal; those that are erased count
-- Returns {"OK", block} | {"FENCED", token} | {"CONFLICT", what, detail} | {"CORRUPT", key}
--
-- Where a block stands in the list changes when blocks before it are erased: place and rows are read in one step.

local TYPES = {'hash', 'hash', 'list'}
for i, expected in ipairs(TYPES) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= expected then
    return {'CORRUPT', KEYS[i]}
  end
end
local token = redis.call('HGET', KEYS[1], 'token')
if token ~= ARGV[1] then
  return {'FENCED', token or ''}
end
local lines = redis.call('HLEN', KEYS[2])
if lines % 2 ~= 0 then
  return {'CORRUPT', KEYS[2]}
end
local stored = redis.call('LLEN', KEYS[3])
local at = tonumber(ARGV[2]) - (lines / 2 - stored)
if at < 0 or at >= stored then
  return {'CONFLICT', 'rows', ARGV[2]}
end
return {'OK', redis.call('LINDEX', KEYS[3], string.format('%d', at))}
