-- As acquire.lua, for a token that wants to share the lock: it ends in ~LIMIT, where 0 means any number (sharers.lua).
-- In C (store/redis/codec.h): dibs__codec_acquire, dibs__codec_read_ask, DIBS__ASK_*
-- KEYS, ARGV, reply: as acquire.lua. Safe to send again.
-- The most common cases come first, as in acquire.lua: nobody waits, and the last grant was shared as well, in the
-- same hour, so that S lives long enough. Either nobody holds the lock: then ZADD advances the fence of the newest
-- sharer in S, as INCRBY does with F. Or others share the lock, and with the asker they are no more than the limit;
-- sharers whose leases are over still count here. The first ask of a token is not in S. One of 64 such asks, chosen by
-- the clock, takes the long way nevertheless, which removes sharers whose leases are over (sharers.lua).
-- @insert keys

local found = not ARGV[6] and call('EXISTS', K, Q)
local beside = found == 1 and ARGV[2] == '1' and redis.pcall('GET', K) == 'dibs:shared'
if found == 0 or beside then
  local time, last, not_after, hour = call('TIME'), tonumber(call('GET', F)), tonumber(ARGV[5]), 3600000000
  local now, lease, S = time[1] * 1000000 + time[2], tonumber(ARGV[3]), 'dibs:share' .. string.sub(F, 11)
  local is_plain = (now <= not_after or not_after == 0) and last and last < now and 2000 * lease <= hour and
    last - last % hour == now - now % hour
  if is_plain and beside and now % 64 > 0 then
    local limit = string.sub(ARGV[1], -2) ~= '~0' and string.match(ARGV[1], '~(%d+)$')
    if not limit or (tonumber(redis.pcall('ZCARD', S)) or 0) < 2 * limit + 2 then
      local fence, plus, minus = time[1] .. string.sub('00000' .. time[2], -6), '+' .. ARGV[1], '-' .. ARGV[1]
      local added = redis.pcall('ZADD', S, fence, '>', -math.floor(now / 1000) - lease, plus, fence, minus)
      if added == 2 and redis.pcall('INCRBY', F, now - last) == now then
        if redis.REDIS_VERSION_NUM then
          call('PEXPIRE', K, ARGV[3], 'GT')
        elseif call('PTTL', K) < lease then
          call('PEXPIRE', K, lease)
        end
        return now
      elseif type(added) == 'number' then
        -- S was gone, or F is no fence: admit.lua deals with that.
        call('ZREM', S, plus, minus, added == 3 and '>' or plus)
      end
    end
  elseif is_plain and not beside then
    local newest = call('ZADD', S, 'XX', 'INCR', now - last, '>')
    if tonumber(newest) == now and redis.pcall('INCRBY', F, now - last) == now then
      call('SET', K, ARGV[1], 'PX', ARGV[3])
      return now
    elseif newest then
      -- Somebody has held the lock alone since: admit.lua deals with that.
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
