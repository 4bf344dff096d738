-- Inserted where `parting` may share K: removes that sharer. Sets `has_parted`. K lives no longer than the leases of
-- the others; if there are none, `owner` becomes false, and the inserting script must delete K.

-- The ZREM comes first: it is allowed when memory is out. A sharer whose lease is over is not counted (sharers.lua).
local has_parted = call('ZREM', S, '-' .. parting) > 0
local its_end = sharers and call('ZADD', S, 'XX', 'INCR', 0, '+' .. parting)
has_parted = call('ZREM', S, '+' .. parting) > 0 or has_parted
if its_end and -its_end > math.floor(now / 1000) then
  sharers = sharers - 1
  if sharers == 0 then
    owner = false
  else
    local left = -call('ZRANGE', S, 0, 0, 'WITHSCORES')[2] - math.floor(now / 1000)
    if call('PTTL', K) > left then
      call('PEXPIRE', K, math.max(1, left))
    end
  end
end
