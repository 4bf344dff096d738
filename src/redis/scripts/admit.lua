-- Inserted where `sharer` is let in for `lease` ms: beside those who share the lock already, or as the first if
-- `owner` is false. The first is the only one (sharers.lua), unless `others` is true, which says that more may follow.
-- Sets `fence_text`, `failed`, `owner` and `sharers`. S lives as long as F (fence.lua), and is dropped if K was
-- deleted while S existed. The life of S is set before the sharer is written: where the account may not do that, nobody
-- is let in, and no S is left behind that never expires.

fence_text = fence_text or call('GET', F)
local is_first, before = owner ~= 'dibs:shared', tonumber(fence_text) or 0
before = before > 0 and before < 2^53 - 1 and before or 0
-- @insert fence
local life, ends, hour = math.max(3600000, 2 * lease), -math.floor(now / 1000) - lease, 3600000000
if not failed then
  if is_first then
    S = 'dibs:share' .. string.sub(F, 11)
    local newest, alone = call('ZADD', S, 'XX', 'INCR', 0, '>'), call('ZADD', S, 'XX', 'INCR', 0, '<')
    if call('ZCARD', S) > 2 then
      call('DEL', S)
    end
    call('ZADD', S, tonumber(newest) == before and alone or before, '<', fence_text, '>')
  end
  if is_first or 2000 * lease > hour or before - before % hour ~= fence_text - fence_text % hour then
    local lasts = redis.pcall('PTTL', S)
    if type(lasts) == 'number' and lasts < life + 3600000 then
      lasts = redis.pcall('PEXPIRE', S, life + 3600000)
    end
    failed = type(lasts) == 'table' and lasts
    if failed and is_first then
      call('DEL', S)
    end
  end
end
if not failed then
  if is_first then
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
  sharers = sharers + 1
end
