-- Releases the lock, if it is still the token's, and takes the token out of the queue; the next who waits is granted.
-- Retracting an attempt is the same.
-- KEYS: see grant.lua
-- ARGV: token, and anything at all to be told the time
-- Reply: {1, now} released; {0, now} nobody held it; {-1, now} another does; now in us of the server's clock, or 0
-- Safe to send again. What nobody waits for comes first, as in acquire.lua.

if not ARGV[2] and redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return {1, 0}
end
-- @include let_go

return {let_go(ARGV[1]), ARGV[2] and now_us() or 0}
