-- Releases the lock if the token holds it, and takes the token out of the queue; the next waiter is granted the lock.
-- In C (store/redis/codec.h): dibs__codec_release, dibs__codec_read_release
-- KEYS: see grant.lua
-- ARGV: token
-- Reply: {1} released; {0} nobody held it; {-1} another token does
-- Safe to send again. The case that nobody waits comes first, as in acquire.lua.

if redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return {1}
end
-- @include let_go

return {let_go(ARGV[1])}
