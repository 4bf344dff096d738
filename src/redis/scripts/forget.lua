-- Deletes the last fence of a lock that nobody holds or waits for, and what is kept of those who shared it, and of a
-- process that kept its lease.
-- In C (store/redis/codec.h): DIBS__FORGET_*
-- KEYS: see keys.lua
-- Reply: 1: nothing is left of the lock; 0: somebody holds it, or waits
-- @insert keys

if call('GET', K) or call('HLEN', Q) > 0 then
  return 0
end
call('DEL', F)
redis.pcall('DEL', 'dibs:share' .. string.sub(F, 11))
redis.pcall('DEL', 'dibs:kept' .. string.sub(F, 11))
return 1
