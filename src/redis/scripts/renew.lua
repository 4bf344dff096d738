-- Renews many leases.
-- KEYS: K F, K F, ... the locks and their fences
-- ARGV: token, lease in ms, fence; for each lock
-- Reply: an array, for each lock 1: renewed, 0: no longer the token's
-- The fence key lives on with its lock, and is put back where it was evicted.

local results = {}
for i = 1, #KEYS / 2 do
  local K, F = KEYS[2 * i - 1], KEYS[2 * i]
  local token, lease, fence = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
  if redis.pcall('GET', K) == token then
    local life = math.max(3600000, 2 * lease)
    redis.call('PEXPIRE', K, lease)
    if redis.call('PEXPIRE', F, life) == 0 then
      redis.call('SET', F, fence, 'PX', life)
    end
    results[i] = 1
  else
    results[i] = 0
  end
end
return results
