-- Inserted where several share K (queue.lua): removes sharers whose leases are over, 500 at most, and counts those
-- whose leases are not. If there are none, K is free. (Two short ways do without this: acquire_shared.lua,
-- release.lua.)
-- If there is only one sharer, K holds its token, as that of an owner. The token ends in ~LIMIT, so all others know
-- that K may be shared; the first of them that comes sets K to the text dibs:shared (split.lua). K then lives as long
-- as the longest lease, until the last sharer has left, and S is a sorted set, in which the score of a member says:
--   +TOKEN  minus the time at which the sharer's lease ends, in ms of the server's clock
--   -TOKEN  the fence of the sharer
--   >       the fence of the newest sharer that there ever was: the same as F, unless the lock was held alone since
--   <       before that fence, no fence of a lock that was held alone is larger than this
-- S has the last two for an only sharer, too, and they outlive the sharers, so that a server that forgot the sharers
-- can tell whether somebody held the lock alone since (renew.lua).
-- If K exists but S does not, it is not known who shares the lock: nobody is let in before K has expired, so `sharers`
-- stays nil. On a cluster S may be at the node that the slot comes from or goes to; then the client must ask again.

S = 'dibs:share' .. string.sub(F, 11)
local dead = redis.pcall('ZRANGEBYSCORE', S, -math.floor(now / 1000), '(0', 'LIMIT', 0, 500)
local dead_count = #dead
local size = dead.err or call('ZCARD', S)
if dead.err and string.find(dead.err, 'non local key') or size == 0 and redis.single_key then
  return redis.error_reply('TRYAGAIN the sharers of the lock are at another node')
elseif dead.err then
  return dead
elseif size > 0 then
  if dead_count == 500 then
    -- There may be more. The living come first in S: by halves, until it is known how many they are.
    local living, most = 0, (size - 2) / 2 - 500
    while living < most do
      local middle = math.floor((living + most) / 2)
      if -call('ZRANGE', S, middle, middle, 'WITHSCORES')[2] > math.floor(now / 1000) then
        living = middle + 1
      else
        most = middle
      end
    end
    dead_count = (size - 2) / 2 - living
  end
  for i = 1, #dead do
    call('ZREM', S, dead[i], '-' .. string.sub(dead[i], 2))
  end
  sharers = (size - 2) / 2 - dead_count
  if sharers == 0 then
    call('DEL', K)
    owner = false
  end
end
