-- Included by the scripts that ask for the lock. See acquire.lua.
-- @include queue

local function live_at_least(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- Enters the queue at its end. A token that is in the queue already keeps its place.
local function join(me, number, lease, now, channel)
  local last = redis.call('ZRANGE', Q, -1, -1, 'WITHSCORES')[2] or 0
  redis.call('ZADD', Q, 'NX', last + 1, me)
  redis.call('HSET', W, me, string.format('%s %s %.0f %s', number, lease, now, channel))
  live_at_least(Q, 2 * lease)
  live_at_least(W, 2 * lease)
end

-- Whether a later ask of the token is in the queue (rule 8).
local function is_stale(me, number)
  local entry = redis.call('HGET', W, me)
  return entry and tonumber(string.match(entry, '^%d+')) > tonumber(number)
end

local function ask(me, number, lease, channel, not_after, leave)
  local owner, now = redis.call('GET', K), now_us()
  if tonumber(not_after) > 0 and now > tonumber(not_after) then
    return {-1, now}
  end
  if owner == me then
    forget(me)
    redis.call('PEXPIRE', K, math.max(redis.call('PTTL', K), lease))
    local fence = last_fence(F)
    return {1, fence > 0 and fence or new_fence(F, now, lease)}
  end
  if redis.call('EXISTS', Q) == 1 then
    if is_stale(me, number) then
      return {-2, 0}
    end
    if not owner and not leave then
      if redis.call('ZSCORE', Q, me) then
        join(me, number, lease, now, channel)
      end
      local head, fence = serve(me)
      if head == me then
        return {1, fence}
      end
      owner = head
      if not owner then
        -- The first in the queue could not be told.
        forget(me)
      end
    end
  end
  if not owner and not leave then
    return {1, grant(me, now, lease)}
  end
  if channel ~= '' then
    join(me, number, lease, now, channel)
  end
  local is_dibs = (not owner or string.sub(owner, 1, 5) == 'dibs:') and 1 or 0
  return {0, redis.call('PTTL', K), is_dibs, channel ~= '' and listeners(channel) or 0}
end
