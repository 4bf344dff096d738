-- Renews many leases.
-- KEYS: K F, K F, ... the locks and their fences
-- ARGV: token, lease in ms, fence, set; for each lock
-- Reply: an array, for each lock 1: done; 0: no longer the token's; less: too late, nothing was done, and it is the
-- server's time (us) with its sign turned round
-- A renewal (set is '') never shortens: one that was stuck on its way must not undo an extension. An extension sets the
-- lease to its length; set is then the time (us of the server's clock; 0: any) after which it is too late for it.
-- The fence key lives on with its lock, and is put back where it was evicted.
-- @include fence

local function set_lease(K, lease, set)
  if set == '' then
    if redis.call('PTTL', K) < lease then
      redis.call('PEXPIRE', K, lease)
    end
    return 1
  end
  local now = now_us()
  if tonumber(set) > 0 and now > tonumber(set) then
    return -now
  end
  redis.call('PEXPIRE', K, lease)
  return 1
end

local results = {}
for i = 1, #KEYS / 2 do
  local K, F = KEYS[2 * i - 1], KEYS[2 * i]
  local token, lease, fence, set = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2]), ARGV[4 * i - 1], ARGV[4 * i]
  if redis.pcall('GET', K) == token then
    local life = math.max(3600000, 2 * lease)
    results[i] = set_lease(K, lease, set)
    if redis.call('PEXPIRE', F, life) == 0 then
      redis.call('SET', F, fence, 'PX', life)
    end
  else
    results[i] = 0
  end
end
return results
