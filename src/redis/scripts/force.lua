-- Takes the lock from its holder, and grants it to the next waiter.
-- In C (store/redis/codec.h): dibs__codec_force, dibs__codec_read_force, DIBS__FORCE_*
-- KEYS: see keys.lua
-- ARGV: not after (us of the server's clock; 0: at any time); the token of the holder that is meant (none: nobody held the
-- lock when it was looked at)
-- Reply: 1: the lock was taken away, or is free; 2: as 1, with more to do (let_go.lua); 0: another token holds it; negative: too late, nothing was done, and the
-- amount is the server's time (us)
-- The fence rises, so that the fence of the holder that was ended is never the newest (rule 12). DEL comes first: it is
-- allowed when memory is out, and after it so are the later writes of the script (rule 4).
-- @insert keys
-- @insert clock

local owner, summary, not_after = call('GET', K), call('HGET', Q, ''), tonumber(ARGV[1])
if not_after > 0 and now > not_after then
  return -now
end
if owner and owner ~= ARGV[2] then
  return 0
end
local me, asker, channel, entry, leaving
-- @insert queue
if owner then
  call('DEL', K)
  local lease = 0
  -- @insert fence
end
-- @insert serve
-- @insert settle
return unfinished and 2 or 1
