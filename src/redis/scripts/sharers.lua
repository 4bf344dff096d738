-- Inserted where K is held shared by several (queue.lua): takes out the sharers whose leases are over, and counts the others.
-- Where none is left, K is free. (Two short ways do without: acquire_shared.lua, release.lua.)
-- Who shares K as the only one has its own token there, like an owner. The token ends in ~LIMIT, so all others know that K may be
-- shared; the first that comes makes K the text dibs:shared (split.lua). K then lives as long as the longest lease, until the last
-- has left, and S is a sorted set, in which a member's score tells:
--   +TOKEN  minus the time at which the sharer's lease ends, in ms of the server's clock
--   -TOKEN  the fence of the sharer
--   >       the fence of the newest sharer that there ever was: that of F, unless the lock was held alone since
--   <       no fence of a lock that was held alone is larger, before that one
-- The last two are there for who is the only one, too, and outlive the sharers: so a server that forgot can tell whether somebody
-- held the lock alone since (renew.lua).
-- Where S is gone under K, it is not known who shares: nobody is let in before K has expired, so `sharers` stays nil. On a
-- cluster S may be at the node that the slot comes from or goes to, and the client must ask again.

S = 'dibs:share' .. string.sub(F, 11)
local dead = redis.pcall('ZRANGEBYSCORE', S, -math.floor(now / 1000), '(0', 'LIMIT', 0, 500)
local size = dead.err or call('ZCARD', S)
if dead.err and string.find(dead.err, 'non local key') or size == 0 and redis.single_key then
  return redis.error_reply('TRYAGAIN the sharers of the lock are at another node')
elseif dead.err then
  return dead
elseif size > 0 then
  for i = 1, #dead do
    call('ZREM', S, dead[i], '-' .. string.sub(dead[i], 2))
  end
  sharers = (size - 2) / 2 - #dead
  if sharers == 0 then
    call('DEL', K)
    owner = false
  end
end
