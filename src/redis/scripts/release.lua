-- Releases the lock, if it is still the token's, and takes the token out of the queue; the next who waits is granted.
-- KEYS: see grant.lua
-- ARGV: token
-- Reply: {1} released; {0} nobody held it; {-1} another does
-- Safe to send again. What nobody waits for comes first, as in acquire.lua.

if redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return {1}
end
-- @include let_go

return {let_go(ARGV[1])}
