-- Releases the lock, and asks for it with another token behind those who wait.
-- KEYS: see grant.lua
-- ARGV: the token to release, then those of acquire.lua
-- Reply: {what release.lua says first, what acquire.lua says, an error too}
-- Safe to send again.
-- @include let_go
-- @include ask

local released = let_go(ARGV[1])
local asked, reply = pcall(ask, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
if not asked and type(reply) ~= 'table' then
  reply = redis.error_reply(reply)
end
return {released, reply}
