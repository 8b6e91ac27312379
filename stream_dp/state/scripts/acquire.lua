-- Takes a data set over: gives it a fencing token, and a beginning if it has none and is to have one.
--
-- KEYS, all of one data set
--   1 control     hash    token, seq, head (hex), last (fingerprint of the last commit), definition, retired, forgotten
--   2 meta        hash    free-form public counters and flags
--   3 cursor      hash    "topic:partition" -> next offset, decimal
--   4 answers     hash    id -> digest of the request and the answer, of those since the last rotation
--   5 batches     hash    id -> what became of the batch, of those since the last rotation
--   6 pending     list    rows that wait for the next phase; private
--   7 blocks      list    sealed blocks, the last ones: those before them are erased; private
--   8 spent       hash    "<block>:rho" and "<block>:delta" -> units of budget / 2^50, decimal
--   9 transcript  list    published measurements
--  10 verified    hash    answers kept for repeats
--  11 intents     hash    seq -> a look that was announced and not settled
--  12 ledger      list    the last of the hash-chained entries
--  13 outbox      hash    seq -> records to release
--  14 vault       hash    name -> a secret drawn once; private
--  15 previous    hash    answers that were stored before the last rotation
--  16 previous_batches  hash  what became of batches, stored before the last rotation
--  17 taken       hash    what is kept of ids of batches for ever, see commit.lua
-- ARGV
--   1 head of an empty ledger, hex   2 "1" to begin a data set that does not exist   3 the token, decimal; empty for
--     the next one
-- Returns {"OK", token}: "0" of one that does not exist, of which nothing is written | {"FENCED", token}: a larger
--   one is stored | {"CORRUPT", key}

local TYPES = {
  'hash', 'hash', 'hash', 'hash', 'hash', 'list', 'list', 'hash', 'list', 'hash', 'hash', 'list', 'hash', 'hash', 'hash',
  'hash', 'hash',
}

for i, expected in ipairs(TYPES) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= expected then
    return {'CORRUPT', KEYS[i]}
  end
end
local control = redis.call('HMGET', KEYS[1], 'token', 'seq')
local token = control[1] or '0'
-- HINCRBY, which counts in 64-bit integers, would fail on these; fewer than 19 digits cannot overflow it.
if not string.match(token, '^%d+$') or #token > 18 then
  return {'CORRUPT', KEYS[1]}
end

if not control[2] and ARGV[2] ~= '1' then
  return {'OK', '0'}
end
local given = ARGV[3]
if given == '' then
  redis.call('HINCRBY', KEYS[1], 'token', '1')
elseif #given < #token or (#given == #token and given < token) then
  return {'FENCED', token}
else
  redis.call('HSET', KEYS[1], 'token', given)
end
if not control[2] then
  redis.call('HSET', KEYS[1], 'seq', '0', 'head', ARGV[1])
end
return {'OK', redis.call('HGET', KEYS[1], 'token')}
