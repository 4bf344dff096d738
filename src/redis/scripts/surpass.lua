-- Inserted where a token has ended to which waiters may leave the lock, because they saw it at another server (rule
-- 13). F becomes larger than what they saw, so that they do not leave the lock to the token any more. `ended` is the
-- fence of the token, 0 if only this server may know it; `released` and `owner` are those of release_common.lua.
-- Whoever was granted the lock later has a larger fence, and may still restore it. If memory is out, the waiters wait
-- for the end of the lease.
if released ~= -1 and not owner then
  local last = tonumber(fence_text or redis.pcall('GET', F)) or 0
  last = last < 2^53 - 1 and last or 0
  if released == 1 then
    ended = math.max(ended, last)
  end
  if ended > 0 and last <= ended then
    local life = 7200000 + math.max(0, math.ceil((ended - now) / 1000))
    redis.pcall('SET', F, string.format('%.0f', ended + 1), 'PX', math.max(life, tonumber(redis.pcall('PTTL', F)) or 0))
    if string.find(leaving, '~%d+$') then
      -- Nobody has held the lock alone since: those who shared it may still restore their leases (rule 61).
      local S = 'dibs:share' .. string.sub(F, 11)
      local newest = redis.pcall('ZADD', S, 'XX', 'INCR', 0, '>')
      if tonumber(newest) == last then
        redis.pcall('ZADD', S, string.format('%.0f', ended + 1), '>')
      elseif last == 0 and not newest then
        redis.pcall('ZADD', S, 0, '<', string.format('%.0f', ended + 1), '>')
        redis.pcall('PEXPIRE', S, life)
      end
    end
  end
end
