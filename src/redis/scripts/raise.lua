-- Raises the fence of a lock for its owner: the next fence is larger, whatever this server's clock says.
-- In C (store/redis/codec.h): dibs__codec_raise, dibs__codec_read_raise
-- KEYS: see keys.lua; after these, at a member of a quorum, M of vote.lua
-- ARGV: token; fence; lease in ms
-- Reply: 1: done; 0: the token does not have the lock, nothing was done
-- Safe to send again, and late.
-- @insert keys
-- @insert clock

-- If the token shares K (sharers.lua), the sharer's own fence is raised, too.
local owner, S = redis.pcall('GET', K), string.find(ARGV[1], '~%d+$') and 'dibs:share' .. string.sub(F, 11)
if owner ~= ARGV[1] and not (S and owner == 'dibs:shared' and call('ZADD', S, 'XX', 'INCR', 0, '+' .. ARGV[1])) then
  return 0
end
-- For how long F lives see fence.lua.
local last, fence = tonumber(call('GET', F)), tonumber(ARGV[2])
if not (last and last >= fence and last < 2^53 - 1) then
  local life = math.max(3600000, 2 * ARGV[3]) + 3600000 + math.max(0, math.ceil((fence - now) / 1000))
  call('SET', F, ARGV[2], 'PX', life)
  if S and tonumber(call('ZADD', S, 'XX', 'INCR', 0, '>')) == last then
    call('ZADD', S, 'XX', fence, '>')
  end
end
local own = S and tonumber(call('ZADD', S, 'XX', 'INCR', 0, '-' .. ARGV[1]))
if own and own < fence then
  call('ZADD', S, 'XX', fence, '-' .. ARGV[1])
end
if KEYS[4] and fence > now then
  local before, high, behind = string.match(call('GET', KEYS[4]) or '', '^(%d+ %d+ %d+) (%d+) (.*)$')
  if before and tonumber(high) < fence then
    call('SET', KEYS[4], before .. ' ' .. string.format('%.0f', fence + 20000) .. ' ' .. behind, 'PX', 259200000)
  end
end
return 1
