-- Sets aside what there is of a data set, and begins it again at a place, with nothing in it.
--
-- KEYS, all of one data set
--   1 control, and then its other keys, see acquire.lua
--   the last one: no key of its own, but what the names under which keys are set aside begin with
-- ARGV
--   1 token   2 seq   3 head of the ledger before its first entry to come, hex   4 trail, hex
-- Returns {"OK"} | {"FENCED", token}
--
-- A beginning that was not finished is not a history of its own: it is dropped, and what was set aside before it stays.

local control = redis.call('HMGET', KEYS[1], 'token', 'restored', 'trail')
local token = control[1] or '0'
if #ARGV[1] < #token or (#ARGV[1] == #token and ARGV[1] < token) then
  return {'FENCED', token}
end
local unfinished = control[2] and control[2] == control[3]
local something = redis.call('EXISTS', unpack(KEYS, 1, #KEYS - 1)) > 0
for i = 1, #KEYS - 1 do
  local aside = KEYS[#KEYS] .. ':' .. string.match(KEYS[i], '[^:]+$')
  if unfinished then
    redis.call('UNLINK', KEYS[i])
  elseif something then
    redis.call('UNLINK', aside) -- of an earlier history: two of them must not be mixed
    if redis.call('EXISTS', KEYS[i]) == 1 then
      redis.call('RENAME', KEYS[i], aside)
    end
  end
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'seq', ARGV[2], 'head', ARGV[3], 'trail', ARGV[4], 'restored', ARGV[4])
return {'OK'}
