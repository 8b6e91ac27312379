-- Reserves rows of persons in the phase that is sealed next: all checks first, then all writes.
--
-- KEYS, all of one data set
--   1 control  hash    token, seq, head, ..., retired, reserved ("<phase>:<part>" of the last call)
--   2 spent    hash    "<block>:rho" and "<block>:delta" -> units of budget / 2^50, decimal
--   3 persons  no key of its own, but what the names of its buckets begin with:
--              "<persons>:<first 20 bits of a digest, hex>"  hash
--                last 10 bytes of the digest -> units used before a phase (2 bytes), the phase (4 bytes), rows
--                reserved in it (1 byte), big-endian
-- ARGV
--   1 token   2 the phase that is sealed next, from 1, decimal
--   3 for each slot 15 bytes: digest (12 bytes), units used before the phase (2 bytes), rows to reserve (1 byte; 0
--     reserves nothing)
--   4 the number of this call for the phase, from 0, decimal
-- Returns {"OK"} | {"FENCED", token} | {"CONFLICT", what, detail} | {"CORRUPT", key}
--
-- The numbers are absolute, so that the same call again changes nothing. Units never go down: a reservation starts
-- from what the earlier ones lead to, and the larger of two for one phase stays. Every number is below 2^32, hence
-- exact. A bucket's name would tell something of a person, so it is in no reply.

for i = 1, 2 do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= 'hash' then
    return {'CORRUPT', KEYS[i]}
  end
end
local control = redis.call('HMGET', KEYS[1], 'token', 'retired', 'reserved')
if control[1] ~= ARGV[1] then
  return {'FENCED', control[1] or ''}
end
if control[2] then
  return {'CONFLICT', 'retired', ''}
end
local phase = tonumber(ARGV[2])
if redis.call('HLEN', KEYS[2]) / 2 + 1 ~= phase then
  return {'CONFLICT', 'phase', ARGV[2]}
end
local part = tonumber(ARGV[4])
local this, before_this = ARGV[2] .. ':' .. ARGV[4], string.format('%s:%d', ARGV[2], part - 1)
if part > 0 and control[3] ~= before_this and control[3] ~= this then
  return {'CONFLICT', 'part', ARGV[4]} -- the store has gone back since the call before
end

local buckets, fields, befores, reserved = {}, {}, {}, {}
for at = 1, #ARGV[3], 15 do
  local before, rows = struct.unpack('>I2I1', string.sub(ARGV[3], at + 12, at + 14))
  if rows > 0 then
    local digest = string.sub(ARGV[3], at, at + 11)
    if not reserved[digest] then
      local first, second, third = string.byte(digest, 1, 3)
      local bucket = string.format('%s:%02x%02x%x', KEYS[3], first, second, math.floor(third / 16))
      local kept = redis.call('HGET', bucket, string.sub(digest, 3))
      local known = 0
      reserved[digest] = 0
      if kept then
        if #kept ~= 7 then
          return {'CORRUPT', KEYS[3]}
        end
        local kept_before, kept_phase, kept_rows = struct.unpack('>I2I4I1', kept)
        if kept_phase > phase then
          return {'CORRUPT', KEYS[3]}
        end
        if kept_phase == phase then
          known, reserved[digest] = kept_before, kept_rows
        else
          known = kept_before + kept_rows * kept_rows
        end
      end
      buckets[digest], fields[digest], befores[digest] = bucket, string.sub(digest, 3), known
    end
    if before ~= befores[digest] then
      return {'CONFLICT', 'units', ''}
    end
    reserved[digest] = math.max(reserved[digest], rows)
  end
end

redis.call('HSET', KEYS[1], 'reserved', this)
for digest, rows in pairs(reserved) do
  local value = struct.pack('>I2I4I1', befores[digest], phase, rows)
  redis.call('HSET', buckets[digest], fields[digest], value)
end
return {'OK'}
