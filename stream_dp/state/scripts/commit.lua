-- One transition of one data set: all checks first, then all writes. A run-time error would keep the writes
-- before it, so nothing after the line "writes" can fail: types and numbers are checked above it.
--
-- KEYS, all of one data set
--   1 control     hash    token, seq, head (hex), last (fingerprint of the last commit), definition, retired, forgotten,
--                         trail (hex), restored, reserved (see reserve.lua), "journal <partition>" (note)
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
--  17 taken       hash    first 2 of the 16 bytes that are kept of an id of a batch for ever -> the other 14 of each,
--                         one after the other; "n" -> their number
--  18 to 22      only where something is erased: pending, blocks, vault, transcript and verified of a history that
--                rebuild.lua has set aside
-- ARGV
--   1 fingerprint of this transition
--   2 the transition, a MessagePack array of strings, each any bytes:
--     1 token   2 seq   3 seq + 1   4 head, hex   5 new head, hex   6 "1" to erase   7 budget in units
--     8 number of first blocks whose rows are gone from now on   9 trail, hex   10 new trail, hex   11 "1" to rotate
--     12 number of calls of reserve.lua that the seal follows from, 0 if from none
--     then sections, each the number of its items and the items: definition, meta (field, value), cursor
--     (topic:partition, offset), answers (id, bytes), batches (id, bytes), pending, seal, charges (block, rho, delta;
--     a block once), transcript, verified (key, bytes), intent, settles, ledger, outbox, vault
--     (name, bytes; empty bytes drop it), taken (16 bytes), limits (field of meta, block, most rho, most delta: what
--     an account may have charged to a block with this commit, a block once; the field has "<rho> <delta>")
-- Returns {"OK"} | {"FENCED", token} | {"CONFLICT", what, detail} | {"DUPLICATE", "answer"|"batch"|"taken", position}
--   | {"BUDGET", block, "rho"|"delta"} | {"SHARE", block, "rho"|"delta"} | {"CORRUPT", key}
--
-- Every number stays a decimal string, for a Lua number rounds at 2^53. The exception is the budget: what is
-- spent is at most 2^50 and a charge at most 2^50 + 1, so both and their sum are exact.

local CONTROL, META, CURSOR, ANSWERS, BATCHES, PENDING, BLOCKS = unpack(KEYS, 1, 7)
local SPENT, TRANSCRIPT, VERIFIED, INTENTS, LEDGER, OUTBOX, VAULT, PREVIOUS, PREVIOUS_BATCHES, TAKEN =
  unpack(KEYS, 8, 17)
local TYPES = {
  'hash', 'hash', 'hash', 'hash', 'hash', 'list', 'list', 'hash', 'list', 'hash', 'hash', 'list', 'hash', 'hash', 'hash',
  'hash', 'hash',
}
local CHUNK = 4000 -- unpack fails near 8,000 values; even, so that pairs stay together
local LEDGER_TAIL = 1000 -- entries that are kept, as in store.py

local fingerprint = ARGV[1]
local ITEM = cmsgpack.unpack(ARGV[2])
local token, seq, next_seq, head, new_head = unpack(ITEM, 1, 5)
local erase = ITEM[6] == '1'
local budget = tonumber(ITEM[7])
local erased = tonumber(ITEM[8])
local trail, new_trail = ITEM[9], ITEM[10]
local ORIGIN = string.rep('0', 64) -- of what was stored before there was a journal

local rotate = ITEM[11] == '1'
local reserved = tonumber(ITEM[12])

local at = 13
local function section()
  local first = at + 1
  at = first + tonumber(ITEM[at])
  return {first = first, last = at - 1}
end
local definition, meta, cursor, answers, batches = section(), section(), section(), section(), section()
local pending, seal, charges, transcript, verified = section(), section(), section(), section(), section()
local intent, settles, ledger, outbox, vault = section(), section(), section(), section(), section()
local taken, limits = section(), section()

local function given(part)
  return part.first <= part.last
end

local function less(a, b) -- decimal strings without leading zeros, of any length
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local function number(text)
  return text and string.match(text, '^%d+$') ~= nil
end

local function first_known(key, part) -- position of the first field that exists, from 1
  for from = part.first, part.last, CHUNK do
    local fields = {}
    for i = from, math.min(from + CHUNK - 2, part.last), 2 do
      fields[#fields + 1] = ITEM[i]
    end
    local found = redis.call('HMGET', key, unpack(fields))
    for i = 1, #fields do
      if found[i] then
        return (from - part.first) / 2 + i
      end
    end
  end
  return nil
end

local function put(command, key, part)
  for from = part.first, part.last, CHUNK do
    redis.call(command, key, unpack(ITEM, from, math.min(from + CHUNK - 1, part.last)))
  end
end

-- checks -----------------------------------------------------------------------------------------------

for i, expected in ipairs(TYPES) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= expected then
    return {'CORRUPT', KEYS[i]}
  end
end

local control = redis.call('HMGET', CONTROL, 'token', 'seq', 'head', 'last', 'definition', 'retired', 'trail')
if control[1] ~= token then
  return {'FENCED', control[1] or ''}
end
if control[2] == next_seq and control[4] == fingerprint then
  return {'OK'} -- done before; its reply was lost
end
if control[2] ~= seq then
  return {'CONFLICT', 'seq', control[2] or ''}
end
if control[3] ~= head then
  return {'CONFLICT', 'head', ''}
end
if (control[7] or ORIGIN) ~= trail then
  return {'CONFLICT', 'trail', ''}
end
if given(definition) and control[5] then
  return {'CONFLICT', 'defined', ''}
end
if not given(definition) and not control[5] then
  return {'CONFLICT', 'undefined', ''}
end
if control[6] and (given(pending) or given(seal) or given(vault)) then
  return {'CONFLICT', 'retired', ''}
end

for i = cursor.first, cursor.last, 2 do
  local stored = redis.call('HGET', CURSOR, ITEM[i])
  if stored and not number(stored) then
    return {'CORRUPT', CURSOR}
  end
  if stored and less(ITEM[i + 1], stored) then
    return {'CONFLICT', 'cursor', ITEM[i]}
  end
end

local function first_kept(key, previous, part) -- the same in both generations
  local known = first_known(key, part)
  if not rotate then -- else these are dropped before
    local before = first_known(previous, part)
    known = known and before and math.min(known, before) or known or before
  end
  return known
end
local known = first_kept(ANSWERS, PREVIOUS, answers)
if known then
  return {'DUPLICATE', 'answer', string.format('%d', known)}
end
known = first_kept(BATCHES, PREVIOUS_BATCHES, batches)
if known then
  return {'DUPLICATE', 'batch', string.format('%d', known)}
end

local function lies_in(rests, rest)
  local at = string.find(rests, rest, 1, true)
  while at and (at - 1) % #rest ~= 0 do
    at = string.find(rests, rest, at + 1, true)
  end
  return at
end
local takes = {} -- field -> what it has with this commit
for i = taken.first, taken.last do
  local field, rest = string.sub(ITEM[i], 1, 2), string.sub(ITEM[i], 3)
  local rests = takes[field] or redis.call('HGET', TAKEN, field) or ''
  if #rests % #rest ~= 0 then
    return {'CORRUPT', TAKEN}
  end
  if lies_in(rests, rest) then
    return {'DUPLICATE', 'taken', string.format('%d', i - taken.first + 1)}
  end
  takes[field] = rests .. rest
end
if given(taken) and not number(redis.call('HGET', TAKEN, 'n') or '0') then
  return {'CORRUPT', TAKEN}
end

local lines = redis.call('HLEN', SPENT)
if lines % 2 ~= 0 then
  return {'CORRUPT', SPENT}
end
local sealed = lines / 2
if reserved > 0 then -- a store that has gone back since has forgotten what persons may not use again
  local last = string.format('%d:%d', sealed + 1, reserved - 1)
  if redis.call('HGET', CONTROL, 'reserved') ~= last then
    return {'CONFLICT', 'reserved', ''}
  end
end
local blocks = sealed + (given(seal) and 1 or 0)
if erased > blocks then
  return {'CONFLICT', 'unsealed', string.format('%d', blocks)}
end
local bare = math.max(erased, sealed - redis.call('LLEN', BLOCKS)) -- blocks without rows: no look can be at them
for i = charges.first, charges.last, 3 do
  if tonumber(ITEM[i]) >= blocks then
    return {'CONFLICT', 'block', ITEM[i]}
  end
  if tonumber(ITEM[i]) < bare then
    return {'CONFLICT', 'erased', ITEM[i]}
  end
  for offset, part in ipairs({'rho', 'delta'}) do
    local spent = '0'
    if tonumber(ITEM[i]) < sealed then
      spent = redis.call('HGET', SPENT, ITEM[i] .. ':' .. part)
      if not number(spent) or #spent > 16 then
        return {'CORRUPT', SPENT}
      end
    end
    if tonumber(spent) + tonumber(ITEM[i + offset]) > budget then
      return {'BUDGET', ITEM[i], part}
    end
  end
end

local charged = {} -- block -> rho and delta
for i = charges.first, charges.last, 3 do
  charged[ITEM[i]] = {tonumber(ITEM[i + 1]), tonumber(ITEM[i + 2])}
end
local accounts = {} -- field of meta -> what it has with this commit
for i = limits.first, limits.last, 4 do
  local rho, delta = string.match(redis.call('HGET', META, ITEM[i]) or '0 0', '^(%d+) (%d+)$')
  if not rho or #rho > 16 or #delta > 16 then
    return {'CORRUPT', META}
  end
  local more = charged[ITEM[i + 1]] or {0, 0}
  rho, delta = tonumber(rho) + more[1], tonumber(delta) + more[2]
  if rho > tonumber(ITEM[i + 2]) then
    return {'SHARE', ITEM[i + 1], 'rho'}
  end
  if delta > tonumber(ITEM[i + 3]) then
    return {'SHARE', ITEM[i + 1], 'delta'}
  end
  accounts[ITEM[i]] = string.format('%.0f %.0f', rho, delta)
end

for i = settles.first, settles.last do
  if redis.call('HEXISTS', INTENTS, ITEM[i]) == 0 then
    return {'CONFLICT', 'intent', ITEM[i]}
  end
end

-- writes -----------------------------------------------------------------------------------------------

redis.call('HSET', CONTROL, 'seq', next_seq, 'head', new_head, 'trail', new_trail, 'last', fingerprint)
if given(definition) then
  redis.call('HSET', CONTROL, 'definition', ITEM[definition.first])
end
put('HSET', META, meta)
for field, said in pairs(accounts) do
  redis.call('HSET', META, field, said)
end
put('HSET', CURSOR, cursor)
if rotate then
  redis.call('UNLINK', PREVIOUS)
  if redis.call('EXISTS', ANSWERS) == 1 then
    redis.call('RENAME', ANSWERS, PREVIOUS)
  end
  redis.call('UNLINK', PREVIOUS_BATCHES)
  if redis.call('EXISTS', BATCHES) == 1 then
    redis.call('RENAME', BATCHES, PREVIOUS_BATCHES)
  end
end
put('HSET', ANSWERS, answers)
put('HSET', BATCHES, batches)
for field, rests in pairs(takes) do
  redis.call('HSET', TAKEN, field, rests)
end
if given(taken) then
  redis.call('HINCRBY', TAKEN, 'n', string.format('%d', taken.last - taken.first + 1))
end
if given(seal) then
  local block = string.format('%d', sealed)
  redis.call('RPUSH', BLOCKS, ITEM[seal.first])
  redis.call('HSET', SPENT, block .. ':rho', '0', block .. ':delta', '0')
  redis.call('UNLINK', PENDING)
end
put('RPUSH', PENDING, pending)
local excess = redis.call('LLEN', BLOCKS) - (blocks - erased)
if excess > 0 then
  redis.call('LTRIM', BLOCKS, string.format('%d', excess), '-1')
end
for i = charges.first, charges.last, 3 do
  redis.call('HINCRBY', SPENT, ITEM[i] .. ':rho', ITEM[i + 1])
  redis.call('HINCRBY', SPENT, ITEM[i] .. ':delta', ITEM[i + 2])
end
put('RPUSH', TRANSCRIPT, transcript)
put('HSET', VERIFIED, verified)
put('HDEL', INTENTS, settles)
if given(intent) then
  redis.call('HSET', INTENTS, next_seq, ITEM[intent.first])
end
put('RPUSH', LEDGER, ledger)
redis.call('LTRIM', LEDGER, -LEDGER_TAIL, -1)
if given(outbox) then
  redis.call('HSET', OUTBOX, next_seq, ITEM[outbox.first])
end
for i = vault.first, vault.last, 2 do
  if ITEM[i + 1] == '' then
    redis.call('HDEL', VAULT, ITEM[i])
  else
    redis.call('HSET', VAULT, ITEM[i], ITEM[i + 1])
  end
end
if erase then -- what persons have used goes afterwards, see forget.lua: there may be a million buckets of it
  redis.call('HSET', CONTROL, 'retired', '1')
  redis.call('HDEL', CONTROL, 'forgotten') -- what a rebuilt data set forgot first has come back since
  redis.call('UNLINK', PENDING, BLOCKS, TRANSCRIPT, VERIFIED, VAULT)
  redis.call('UNLINK', unpack(KEYS, 18, 22))
elseif erased > 0 then -- the same rows may be in what was set aside, and nobody knows there which they are
  redis.call('UNLINK', unpack(KEYS, 18, 20))
end
return {'OK'}
