-- Deletes the last fence of a lock that nobody holds or waits for, and what is kept of those who shared it, and of a
-- process that kept its lease.
-- In C (store/redis/codec.h): DIBS__FORGET_*
-- KEYS: see keys.lua
-- Reply: 1: nothing is left of the lock; 0: somebody holds it, or waits
-- @insert keys

local S = 'dibs:share' .. string.sub(F, 11)
if call('GET', K) or call('HLEN', Q) > 0 then
  return 0
elseif redis.single_key and call('EXISTS', S) == 0 and call('EXISTS', F) == 1 then
  -- Without F nothing would tell the next sharer that S is still at the node that the slot comes from (together.lua).
  return redis.error_reply('TRYAGAIN the sharers of the lock are at another node')
end
call('DEL', F)
redis.pcall('DEL', S)
redis.pcall('DEL', 'dibs:kept' .. string.sub(F, 11))
return 1
