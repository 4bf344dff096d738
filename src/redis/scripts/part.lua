-- Inserted where `parting` may share K: removes that sharer. Sets `has_parted`. K lives no longer than the leases of
-- the others; if there are none, `owner` becomes false, and the inserting script must delete K.

local has_parted = call('ZREM', S, '+' .. parting, '-' .. parting) > 0
if has_parted and sharers then
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
