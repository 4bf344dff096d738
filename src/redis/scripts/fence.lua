-- Inserted where a lock is granted: makes the next fence. (In the most common case acquire.lua does that itself.)
-- F is the fence key: a string, the last fence given for the name.
-- The next fence is larger than the last, and larger than any before a restart that forgot the last. A value of F that
-- dibs can't have written counts as none (rule 30): no fence reaches 2^53, up to which Lua's numbers are exact.
-- `fence_text` is what F holds (nil: not read), and afterwards the new fence. `lease` is that of the grant. `failed`
-- is the error if memory is out.
-- F lives for an hour at least, in case the server's clock is set back in that time. (The same hour is in renew.lua,
-- and a little less as MEMORY_MS in store/redis/renew.c.) F is set to live an hour longer than that, counted from the
-- time that the fence stands for. So another fence of the same hour need not prolong the life of F, and INCRBY suffices,
-- which costs half as much as SET (acquire.lua).

do
  local last, life = tonumber(fence_text or call('GET', F)), math.max(3600000, 2 * lease) + 3600000
  local hour, set = 3600000000, nil
  fence_text = now_text
  if last and last >= now and last < 2^53 - 1 then
    local fence = math.floor(last) + 1
    fence_text, life = string.format('%.0f', fence), life + math.ceil((fence - now) / 1000)
  end
  if not (last and last < now and last - last % hour == now - now % hour and 2000 * lease <= hour and
    redis.pcall('INCRBY', F, now - last) == now) then
    set = redis.pcall('SET', F, fence_text, 'PX', life)
  end
  failed = set and set.err and set
end
