-- Takes the lock from its holder.
-- KEYS: K the lock, F its fence
-- ARGV: the holder's token; none: any
-- Reply: 1: it is free now, 0: another token holds it
-- The fence rises, so that a fence of the holder that was ended never is the newest. DEL comes first: it is allowed when
-- memory is out, and so is what a script writes behind it.
-- @include fence

local K, F = KEYS[1], KEYS[2]
local owner = redis.call('GET', K)
if not owner then
  return 1
end
if ARGV[1] and owner ~= ARGV[1] then
  return 0
end
redis.call('DEL', K)
new_fence(F, now_us(), 0)
return 1
