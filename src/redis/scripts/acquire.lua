-- Asks for the lock.
-- In C (store/redis/codec.h): dibs__codec_acquire, dibs__codec_read_ask, DIBS__ASK_*
-- KEYS: see keys.lua
-- ARGV: token; number of this ask among those of the token; lease in ms; the channel on which a grant is pushed ('':
-- do not join the queue); not after (us of the server's clock; 0: at any time); optionally a sixth, a fence: if the
-- lock is free, it is left to its former owner, which another server knew, or this server before it was restarted
-- (rule 13), unless F is larger than that fence
-- Reply: the fence: granted;
--   {0, PTTL, 1 if the owner is dibs (2: it was told of this ask, since it may only keep the lock; recall.lua),
--    subscribers of the channel or -1, the last fence or 0, how long K lives}: taken. PTTL is that of the sharer whose
--    lease ends first, where several share K. 0 also says that the queue was not served to its end: ask again at once;
--   {-1, now}: too late, nothing was done;
--   {-2, 0}: overtaken by a later ask of the token, nothing was done.
-- Safe to send again: an owner that asks gets a whole lease again, and a waiter keeps its place.
-- The most common case comes first, before anything is read that only other cases need: nobody else wants the lock,
-- and its last fence was given in the present hour of the server's clock, so that F lives long enough (fence.lua).
-- INCRBY keeps the expiry of F, costs half as much as SET, and refuses a value that is no fence.
-- @insert keys

if not ARGV[6] and call('EXISTS', K, Q) == 0 then
  local time, last, not_after, hour = call('TIME'), tonumber(call('GET', F)), tonumber(ARGV[5]), 3600000000
  local now = time[1] * 1000000 + time[2]
  if (now <= not_after or not_after == 0) and last and last < now and 2000 * ARGV[3] <= hour and
    last - last % hour == now - now % hour and redis.pcall('INCRBY', F, now - last) == now then
    call('SET', K, ARGV[1], 'PX', ARGV[3])
    return now
  end
end

local asker, number, lease, channel, not_after, leave = unpack(ARGV)
channel = channel ~= '' and channel
local owner, summary, mark = redis.pcall('GET', K), call('HGET', Q, ''), ' '
local entry = summary and call('HGET', Q, asker)
-- @insert clock
-- @insert queue
-- @insert ask
return reply
