-- Runs commands on the view of a data set if it stands where they start from, and no later owner is there.
--
-- KEYS, all of one data set
--   1 state or rewriting: the one that must stand there
--       hash    head -> "owner number trail sum"; "table key" -> value
--   2 the other one of the two
--   3 answers      hash    "table key" -> value, of those since the last rotation
--   4 answers-old  hash    those before it
--   5 kept         hash    name -> private value
-- ARGV
--   1 owner   2 "number trail" to start from; empty for any   3 "number trail" behind the commands; empty if it stays
--   4 ... the commands, each after the number of its words; the last one writes the head
-- Returns 1, also if it stands behind them already | 0: refused, and nothing is written

local function read(key)
  local head = redis.pcall('HGET', key, 'head') or '0 0 ' .. string.rep('0', 64) .. ' 0'
  return string.match(type(head) == 'string' and head or '', '^(%d+) (%d+ %x+) ')
end
local owner, place = read(KEYS[1])
if math.max(tonumber(owner or 0), tonumber(read(KEYS[2]) or 0)) > tonumber(ARGV[1]) then return 0 end
if place == ARGV[3] then return 1 end
if ARGV[2] ~= '' and ARGV[2] ~= place then return 0 end
local at = 4
while ARGV[at] do
  local last = at + tonumber(ARGV[at])
  if ARGV[at + 1] ~= 'RENAME' or redis.call('EXISTS', ARGV[at + 2]) == 1 then
    redis.call(unpack(ARGV, at + 1, last))
  end
  at = last + 1
end
return 1
