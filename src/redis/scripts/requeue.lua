-- Releases the lock, and asks for it with another token behind the waiters.
-- In C (store/redis/codec.h): dibs__codec_requeue, dibs__codec_read_release, then dibs__codec_read_ask
-- KEYS: see keys.lua
-- ARGV: the token to release, then those of acquire.lua
-- Reply: {1, 0, -1, 3 or 2 as in release.lua, the reply of acquire.lua or an error}
-- Safe to send again.
-- @insert keys

local leaving, asker, number, lease, channel, not_after, leave = unpack(ARGV)
channel = channel ~= '' and channel
local values, noted = redis.pcall('MGET', K, F), call('HMGET', Q, '', asker)
-- To MGET, what is no string is nothing; nor is there anything without the right to it.
local owner, summary, entry, mark = values[1] or redis.pcall('GET', K), noted[1], noted[2], ' '
-- A token may ask behind itself (rule 70): what it has is given back, but it keeps its place in the queue.
if leaving == asker and owner ~= asker then
  leaving = 'dibs:'
end
-- @insert clock
-- @insert queue
fence_text = values[2]
-- @insert release_common
-- @insert ask
return {unfinished and released + 2 or released, reply}
