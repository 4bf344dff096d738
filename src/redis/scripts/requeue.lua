-- Releases the lock, and asks for it with another token behind the waiters.
-- In C (store/redis/codec.h): dibs__codec_requeue, dibs__codec_read_release, then dibs__codec_read_ask
-- KEYS: see grant.lua
-- ARGV: the token to release, then those of acquire.lua
-- Reply: {1, 0 or -1 as in let_go.lua, the reply of acquire.lua or an error}
-- Safe to send again.
-- @include let_go
-- @include ask

local released = let_go(ARGV[1])
local asked, reply = pcall(ask, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
if not asked and type(reply) ~= 'table' then
  reply = redis.error_reply(reply)
end
return {released, reply}
