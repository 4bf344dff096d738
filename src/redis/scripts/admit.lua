-- Inserted where `sharer` is let in for `lease` ms: beside those who share the lock already, or as the first if
-- `owner` is false. The first is the only one (sharers.lua), unless `others` is true, which says that more may follow.
-- Sets `fence_text`, `failed`, `owner` and `sharers`. S lives as long as F (fence.lua), and is dropped if K was
-- deleted while S existed.

fence_text = fence_text or call('GET', F)
local is_first, before = owner ~= 'dibs:shared', tonumber(fence_text) or 0
-- @insert fence
if not failed then
  local life, ends, hour = math.max(3600000, 2 * lease), -math.floor(now / 1000) - lease, 3600000000
  if is_first then
    S = 'dibs:share' .. string.sub(F, 11)
    local newest, alone = call('ZADD', S, 'XX', 'INCR', 0, '>'), call('ZADD', S, 'XX', 'INCR', 0, '<')
    if call('ZCARD', S) > 2 then
      call('DEL', S)
    end
    call('ZADD', S, tonumber(newest) == before and alone or before, '<', fence_text, '>')
    owner, sharers = sharer, 0
  end
  if not is_first or others then
    owner = 'dibs:shared'
    call('ZADD', S, fence_text, '>', ends, '+' .. sharer, fence_text, '-' .. sharer)
  end
  if is_first then
    call('SET', K, owner, 'PX', lease)
  elseif call('PTTL', K) < tonumber(lease) then
    call('PEXPIRE', K, lease)
  end
  if (is_first or 2000 * lease > hour or before - before % hour ~= fence_text - fence_text % hour) and
    call('PTTL', S) < life + 3600000 then
    call('PEXPIRE', S, life + 3600000)
  end
  sharers = sharers + 1
end
