#!lua
-- Runs commands on the view of a data set if it stands where they start from.
--
-- KEYS, all of one data set
--   1 state        hash    head -> "number trail sum journal"; "table key" -> value
--   2 answers      hash    "table key" -> value, of those since the last rotation
--   3 answers-old  hash    those before it
--   4 kept         hash    name of a private value, and the number of the part unless it is the first -> part
-- ARGV
--   1 "number trail" to start from; empty for any   2 "number trail" behind the commands
--   3 ... the commands, each after the number of its words; one of them writes the head, unless it stays
--         RETAIN, key, names of 16 bytes: drops the fields of a hash that begin with none of them
-- Returns 1, also if it stands behind them already | 0: refused, and nothing is written

local head = redis.pcall('HGET', KEYS[1], 'head') or '0 ' .. string.rep('0', 64) .. ' '
local place = type(head) == 'string' and string.match(head, '^(%d+ %x+) ')
if ARGV[1] ~= '' then
  if place ~= ARGV[1] then return place == ARGV[2] and 1 or 0 end
end
local at = 3
while ARGV[at] do
  local last = at + tonumber(ARGV[at])
  local command, key = ARGV[at + 1], ARGV[at + 2]
  if command == 'RETAIN' then
    local stays = {}
    for word = at + 3, last do stays[ARGV[word]] = true end
    for _, name in ipairs(redis.call('HKEYS', key)) do
      if not stays[string.sub(name, 1, 16)] then redis.call('HDEL', key, name) end
    end
  elseif command ~= 'RENAME' or redis.call('EXISTS', key) == 1 then
    redis.call(unpack(ARGV, at + 1, last))
  end
  at = last + 1
end
return 1
