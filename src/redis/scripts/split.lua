-- Inserted where `owner` is the only sharer of K, and others are about to join: afterwards K is shared by several
-- (sharers.lua). F is the fence of that owner, since nothing was granted after it; what can't be a fence (rule 30)
-- counts as 0, and would have a wrong place in S. What S has of others is older than K.

S = 'dibs:share' .. string.sub(F, 11)
local left, its_fence = math.max(1, call('PTTL', K)), tonumber(call('GET', F)) or 0
its_fence = its_fence > 0 and its_fence < 2^53 - 1 and its_fence or 0
local alone, newest = call('ZADD', S, 'XX', 'INCR', 0, '<'), call('ZADD', S, 'XX', 'INCR', 0, '>')
if redis.single_key and not newest then
  return redis.error_reply('TRYAGAIN the sharers of the lock are at another node')
end
if tonumber(newest) ~= its_fence then
  -- A client that knows nothing of sharing granted that lock.
  alone, newest = its_fence, its_fence
end
if call('ZCARD', S) > 2 then
  call('DEL', S)
end
call('ZADD', S, alone, '<', newest, '>', -math.floor(now / 1000) - left, '+' .. owner, its_fence, '-' .. owner)
if call('PTTL', S) < 2 * left + 3600000 then
  call('PEXPIRE', S, math.max(3600000, 2 * left) + 3600000)
end
call('SET', K, 'dibs:shared', 'PX', left)
owner, sharers = 'dibs:shared', 1
