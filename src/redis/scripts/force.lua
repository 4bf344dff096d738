-- Takes the lock from its holder, and grants it to the next who waits.
-- KEYS: see grant.lua
-- ARGV: the holder's token; none: any
-- Reply: 1: it was taken away or is free, 0: another token holds it
-- The fence rises, so that a fence of the holder that was ended never is the newest. DEL comes first: it is allowed
-- when memory is out, and so is what a script writes behind it.
-- @include queue

local owner = redis.call('GET', K)
if owner and ARGV[1] and owner ~= ARGV[1] then
  return 0
end
if owner then
  redis.call('DEL', K)
  new_fence(F, now_us(), 0)
end
serve(nil)
return 1
