-- Inserted before somebody is let in to share K as the first (admit.lua), and before anything is written for that. On
-- a cluster S may be at the node that the slot comes from or goes to; then the client must ask again. (At the node
-- that the slot comes from, the first command fails.)

S = 'dibs:share' .. string.sub(F, 11)
if not call('ZADD', S, 'XX', 'INCR', 0, '>') and redis.single_key and call('EXISTS', F) == 1 then
  return redis.error_reply('TRYAGAIN the sharers of the lock are at another node')
end
