-- Releases the lock, and asks for it with another token, behind the waiters.
-- In C (store/redis/codec.h): dibs__codec_requeue, dibs__codec_read_release, then dibs__codec_read_ask
-- KEYS: see keys.lua
-- ARGV: the token to release, then those of acquire.lua
-- Reply: {1, 0, -1, 3 or 2 as in release.lua, the reply of acquire.lua or an error}
-- Safe to send again.
-- @insert keys

local leaving, asker, number, lease, channel, not_after, leave = unpack(ARGV)
channel = channel ~= '' and channel
local owner, summary, last_fence, mark = redis.pcall('GET', K), call('HGET', Q, ''), redis.pcall('GET', F), ' '
local entry = summary and call('HGET', Q, asker)
-- @insert clock
-- @insert queue
-- A token may be released and ask again (rule 70): it gives back the lock that it has, but keeps its place in the queue.
if leaving == asker and owner ~= asker and not (sharers and call('ZADD', S, 'XX', 'INCR', 0, '+' .. asker)) then
  leaving = 'dibs:'
end
fence_text = type(last_fence) == 'string' and last_fence or nil
-- @insert release_common
if leaving == asker then
  -- Its entry was taken out.
  entry = false
end
-- @insert ask
return {unfinished and released + 2 or released, reply}
