-- Runs commands on the view of a data set if it stands where they start from.
--
-- KEYS, all of one data set
--   1 state        hash    head -> "number trail sum journal"; "table key" -> value
--   2 answers      hash    "table key" -> value, of those since the last rotation
--   3 answers-old  hash    those before it
-- ARGV
--   1 "number trail" to start from; empty for any   2 "number trail" behind the commands
--   3 ... the commands, each after the number of its words; the last one writes the head
-- Returns 1, also if it stands behind them already | 0: refused, and nothing is written

local head = redis.pcall('HGET', KEYS[1], 'head') or '0 ' .. string.rep('0', 64) .. ' '
local place = type(head) == 'string' and string.match(head, '^(%d+ %x+) ')
if ARGV[1] ~= '' then
  if place == ARGV[2] then return 1 end
  if place ~= ARGV[1] then return 0 end
end
local at = 3
while ARGV[at] do
  local last = at + tonumber(ARGV[at])
  if ARGV[at + 1] ~= 'RENAME' or redis.call('EXISTS', ARGV[at + 2]) == 1 then
    redis.call(unpack(ARGV, at + 1, last))
  end
  at = last + 1
end
return 1
