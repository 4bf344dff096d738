-- Takes the lock from its holder, and grants it to the next who waits.
-- KEYS: see grant.lua
-- ARGV: not after (us of the server's clock; 0: at any time), the token of the holder that is meant; none: nobody held
-- the lock when it was looked at
-- Reply: 1: it was taken away or is free, 0: another token holds it; less: too late, nothing was done, and it is the
-- server's time (us) with its sign turned round
-- The fence rises, so that a fence of the holder that was ended never is the newest. DEL comes first: it is allowed
-- when memory is out, and so is what a script writes behind it.
-- @include queue

local owner, now, not_after = redis.call('GET', K), now_us(), tonumber(ARGV[1])
if not_after > 0 and now > not_after then
  return -now
end
if owner and owner ~= ARGV[2] then
  return 0
end
if owner then
  redis.call('DEL', K)
  new_fence(F, now, 0)
end
serve(nil)
return 1
