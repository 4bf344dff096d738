-- Inserted into renew.lua and renew_short.lua: renews one lease. S is the set of the lock's sharers (sharers.lua).
-- `set_by` is '' for a renewal, which never shortens a lease: a renewal that was delayed must not undo an extension
-- (rule 21). For an extension, which sets the lease to its length, set_by is the time (us of the server's clock; 0:
-- any) after which it is too late. Results are those of renew.lua.

-- Since Redis 7, PEXPIRE knows GT, and scripts know this number.
local GREATER = redis.REDIS_VERSION_NUM

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function is_late(not_after, now)
  return tonumber(not_after) > 0 and now > tonumber(not_after)
end

local function keep_longer(key, lease)
  if GREATER then
    redis.call('PEXPIRE', key, lease, 'GT')
  elseif redis.call('PTTL', key) < tonumber(lease) then
    redis.call('PEXPIRE', key, lease)
  end
end

-- A server that is out of memory refuses ZADD, unless the script has written before. A ZREM that finds nothing counts
-- as a write, and is not refused (rule 4).
local function write_first(S)
  redis.pcall('ZREM', S, '')
end

-- Renews the lease of one sharer, if K is shared. nil: the token does not share K. ZADD tells whether S has a member
-- without reading it, so that the server does not track more keys for that.
local function set_shared(K, S, token, lease, set_by)
  local member, now = '+' .. token, now_us()
  local ends = math.floor(now / 1000) + lease
  write_first(S)
  if set_by == '' and GREATER and redis.call('ZADD', S, 'XX', 'LT', 'CH', -ends, member) == 1 then
    keep_longer(K, lease)
    return 1
  end
  local before = redis.call('ZADD', S, 'XX', 'INCR', 0, member)
  if not before then
    return nil
  end
  if set_by ~= '' and is_late(set_by, now) then
    return -now
  end
  if set_by ~= '' or ends > -before then
    redis.call('ZADD', S, -ends, member)
  end
  if set_by == '' then
    keep_longer(K, lease)
    return -before > ends + 1 and 4 or 1
  end
  redis.call('PEXPIRE', K, math.max(1, -redis.call('ZRANGE', S, 0, 0, 'WITHSCORES')[2] - math.floor(now / 1000)))
  return 1
end

-- Looks whether the token has K or shares it, and changes nothing: K is tracked, so writing it would be told to all
-- others.
local function look(S, owner, token)
  if owner == token then
    return 5
  end
  write_first(S)
  return owner == 'dibs:shared' and redis.call('ZADD', S, 'XX', 'INCR', 0, '+' .. token) and 5 or 0
end

local function set_lease(K, lease, set_by)
  if set_by == '' then
    if GREATER and redis.call('PEXPIRE', K, lease, 'GT') == 1 then
      return 1
    end
    local left = redis.call('PTTL', K)
    if left < tonumber(lease) then
      redis.call('PEXPIRE', K, lease)
    end
    return left > lease + 1 and 4 or 1
  end
  local now = now_us()
  if is_late(set_by, now) then
    return -now
  end
  redis.call('PEXPIRE', K, lease)
  return 1
end

-- Renews the lease of a token that has K, or shares it. nil: it does neither.
local function set_own(K, S, owner, token, lease, set_by)
  return owner == token and set_lease(K, lease, set_by) or
    owner == 'dibs:shared' and set_shared(K, S, token, lease, set_by)
end

-- Whether it can't be known here who shares K, because S has not moved yet with the rest of the lock (single_key.lua).
-- F may not have moved either: renew_short.lua does not name it, so the server that K comes from has not looked for
-- it.
local function is_elsewhere(F, S, owner, token)
  return redis.single_key and owner ~= token and string.find(token, '~%d+$') and redis.call('EXISTS', S) == 0 and
    (owner == 'dibs:shared' or redis.call('EXISTS', F) == 1)
end

local function elsewhere()
  return redis.error_reply('TRYAGAIN the sharers of the lock are at another node')
end
