-- As acquire.lua, for an attempt whose place in the queue is a hint (queue.lua), and for a member of a quorum.
-- In C (store/redis/codec.h): dibs__codec_acquire, dibs__codec_read_ask, DIBS__ASK_*
-- KEYS: see keys.lua; after these, at a member, M of vote.lua
-- ARGV and reply: as acquire.lua, where a sixth of '' counts as none. At a member, ARGV goes on with the run id of the
-- server's process ('-': not known) and the number of the quorum (0: not known). The reply {-3, 0} says that the
-- server may not vote, so nothing was done (rules 15, 52, 56 and 57); and a member grants by {1, fence, now}, so that
-- a clock that was set is noticed (rule 58).
-- Safe to send again.
-- @insert keys
-- @insert clock

local M, life = KEYS[4], 259200000
local from, longest, seen, high, floor, run, quorum
if M then
  from, longest, seen, high, floor, run, quorum =
    string.match(call('GET', M) or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+)$')
  if not from or now < tonumber(from) or now < tonumber(seen) or tonumber(ARGV[3]) > tonumber(longest) or
    (run ~= ARGV[7] and run ~= '-' and ARGV[7] ~= '-') or (quorum ~= ARGV[8] and quorum ~= '0' and ARGV[8] ~= '0') then
    return {-3, 0}
  end
  if now > seen + 20000 then
    seen = now_text
    call('SET', M, table.concat({from, longest, seen, high, floor, run, quorum}, ' '), 'PX', life)
  end
end

local asker, number, lease, channel, not_after, leave = unpack(ARGV)
channel, leave = channel ~= '' and channel, leave ~= '' and leave
local owner, noted = redis.pcall('GET', K), call('HMGET', Q, '', asker)
local summary, entry, mark = noted[1], noted[2], '?'
-- @insert queue
-- Until the clock has passed the floor, fences start from the floor.
if M and now <= tonumber(floor) and (tonumber(call('GET', F)) or 0) < tonumber(floor) then
  fence_text = floor
end
-- @insert ask
if M and type(reply) == 'number' and reply > now and reply > tonumber(high) then
  high = string.format('%.0f', reply + 20000)
  call('SET', M, table.concat({from, longest, seen, high, floor, run, quorum}, ' '), 'PX', life)
end
return M and type(reply) == 'number' and {1, reply, now} or reply
