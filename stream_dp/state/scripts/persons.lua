-- Reads what persons have used. Private.
--
-- KEYS, all of one data set
--   1 control  hash    token, seq, head, ..., retired
--   2 spent    hash    "<block>:rho" and "<block>:delta" -> units of budget / 2^50, decimal
--   3 persons  no key of its own, but what the names of its buckets begin with:
--              "<persons>:<first 20 bits of a digest, hex>"  hash
--                last 10 bytes of the digest -> units used before a phase (2 bytes), the phase (4 bytes), rows
--                reserved in it (1 byte), big-endian
-- ARGV
--   1 token   2 the phase that is sealed next, from 1, decimal   3 digests, 12 bytes each
-- Returns {"OK", values}: 7 bytes for each digest, zeros where nothing is kept | {"FENCED", token}
--   | {"CONFLICT", what, detail} | {"CORRUPT", key}
--
-- A bucket's name would tell something of a person, so it is in no reply.

local NOTHING = string.rep('\0', 7)

for i = 1, 2 do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= 'hash' then
    return {'CORRUPT', KEYS[i]}
  end
end
local control = redis.call('HMGET', KEYS[1], 'token', 'retired')
if control[1] ~= ARGV[1] then
  return {'FENCED', control[1] or ''}
end
if control[2] then
  return {'CONFLICT', 'retired', ''}
end
if redis.call('HLEN', KEYS[2]) / 2 + 1 ~= tonumber(ARGV[2]) then
  return {'CONFLICT', 'phase', ARGV[2]}
end

local values = {}
for at = 1, #ARGV[3], 12 do
  local first, second, third = string.byte(ARGV[3], at, at + 2)
  local bucket = string.format('%s:%02x%02x%x', KEYS[3], first, second, math.floor(third / 16))
  local kept = redis.call('HGET', bucket, string.sub(ARGV[3], at + 2, at + 11))
  if kept and #kept ~= 7 then
    return {'CORRUPT', KEYS[3]}
  end
  values[#values + 1] = kept or NOTHING
end
return {'OK', table.concat(values)}
