-- As acquire.lua, for a bid whose place in the queue is a hint (queue.lua), and at a member of a quorum.
-- In C (store/redis/codec.h): dibs__codec_acquire, dibs__codec_read_ask, DIBS__ASK_*
-- KEYS: see keys.lua; behind them, at a member, M of vote.lua
-- ARGV, reply: as acquire.lua; also {-3, 0}: the server may not vote, so nothing was done (rules 15 and 52)
-- Safe to send again.
-- @insert keys
-- @insert clock

if KEYS[4] then
  local M, life = KEYS[4], 259200000
  local from, longest, seen = string.match(call('GET', M) or '', '^(%d+) (%d+) ?(%d*)$')
  if not from or now < tonumber(from) or now < (tonumber(seen) or 0) then
    return {-3, 0}
  end
  if now > (tonumber(seen) or 0) + 20000 then
    call('SET', M, from .. ' ' .. longest .. ' ' .. now_text, 'PX', life)
  end
end

local asker, number, lease, channel, not_after, leave = unpack(ARGV)
channel = channel ~= '' and channel
local owner, noted = redis.pcall('GET', K), call('HMGET', Q, '', asker)
local summary, entry, mark = noted[1], noted[2], '?'
-- @insert queue
-- @insert ask
return reply
