-- Says which partitions a worker has in hand from now on: these and no others.
--
-- KEYS
--   1 hands  hash    partition -> the worker that has it in hand, a space, "1" if another one had it to the last
-- ARGV
--   1 the worker, then its partitions, decimal
-- Returns {"OK", partition, ...}: those that another one had to the last | {"CORRUPT", key}

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
  return {'CORRUPT', KEYS[1]}
end
local taken, reply = {}, {'OK'}
for i = 2, #ARGV do
  taken[ARGV[i]] = '0'
end
local hands = redis.call('HGETALL', KEYS[1])
for i = 1, #hands, 2 do
  local partition = hands[i]
  local holder, left = string.match(hands[i + 1], '^(%S+) ([01])$')
  if not holder then
    return {'CORRUPT', KEYS[1]}
  end
  if taken[partition] then
    taken[partition] = holder == ARGV[1] and left or '1'
  elseif holder == ARGV[1] then
    redis.call('HDEL', KEYS[1], partition)
  end
end
for i = 2, #ARGV do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[1] .. ' ' .. taken[ARGV[i]])
  if taken[ARGV[i]] == '1' then
    reply[#reply + 1] = ARGV[i]
  end
end
return reply
