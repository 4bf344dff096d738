-- Inserted before somebody is let in to share K as the first (admit.lua), and before anything is written for that. On
-- a cluster S may be at the node that the slot comes from or goes to; then the client must ask again. (At the node
-- that the slot comes from, the first command fails if S is not there.)

S = 'dibs:share' .. string.sub(F, 11)
do
  local newest = redis.pcall('ZADD', S, 'XX', 'INCR', 0, '>')
  local refusal = type(newest) == 'table' and newest
  if refusal and string.find(refusal.err, 'non local key') or not newest and redis.single_key and
    call('EXISTS', F) == 1 then
    return redis.error_reply('TRYAGAIN the sharers of the lock are at another node')
  elseif refusal then
    return refusal
  end
end
