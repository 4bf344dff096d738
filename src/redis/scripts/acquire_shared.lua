-- As acquire.lua, for a token that wants to share the lock: it ends in ~LIMIT, where 0 stands for any number (sharers.lua).
-- In C (store/redis/codec.h): dibs__codec_acquire, dibs__codec_read_ask, DIBS__ASK_*
-- KEYS, ARGV, reply: as acquire.lua. Safe to send again.
-- The most common case comes first, as there: nobody holds the lock or waits, and the last grant was shared, too, in the same
-- hour, so that S lives long enough. ZADD counts up what S has of the newest sharer, as INCRBY does with F.
-- @insert keys

if not ARGV[6] and call('EXISTS', K, Q) == 0 then
  local time, last, not_after, hour = call('TIME'), tonumber(call('GET', F)), tonumber(ARGV[5]), 3600000000
  local now = time[1] * 1000000 + time[2]
  if (now <= not_after or not_after == 0) and last and last < now and 2000 * ARGV[3] <= hour and
    last - last % hour == now - now % hour then
    local S = 'dibs:share' .. string.sub(F, 11)
    local newest = call('ZADD', S, 'XX', 'INCR', now - last, '>')
    if tonumber(newest) == now and redis.pcall('INCRBY', F, now - last) == now then
      call('SET', K, ARGV[1], 'PX', ARGV[3])
      return now
    elseif newest then
      -- Somebody held the lock alone since: admit.lua sees to that.
      call('ZADD', S, 'XX', 0, '>')
    end
  end
end

local asker, number, lease, channel, not_after, leave = unpack(ARGV)
channel = channel ~= '' and channel
local owner, noted = redis.pcall('GET', K), call('HMGET', Q, '', asker)
local summary, entry, mark = noted[1], noted[2], ' '
-- @insert clock
-- @insert queue
-- @insert ask
return reply
