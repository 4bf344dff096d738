-- Renews many leases.
-- In C (store/redis/codec.h): dibs__codec_renew, dibs__codec_read_renew, dibs__codec_read_renewed, DIBS__RENEW_*. set is set_by there, heal is restore_by
-- KEYS: K F, K F, ... the locks and their fences
-- ARGV: for each lock: token, lease in ms, fence, set, heal
-- Reply: an array. For each lock 1: done; 2: restored; 0: no longer the token's; negative: too late, nothing was done, and
-- the amount is the server's time (us); an error: the lock could not be looked at, or not be restored. Then that time.
-- set is '' for a renewal, which never shortens a lease: one that was stuck on its way must not undo an extension (rule 21).
-- For an extension, which sets the lease to its length, set is the time (us of the server's clock; 0: any) after which it is
-- too late.
-- heal is '', or the time after which it is too late to restore the lock. Where heal is a time and K is gone, the lock is
-- restored, unless F tells that another token was granted it since (rule 12).
-- F lives on with its lock, and is put back where it is gone (rule 28).
-- @include fence

local function is_late(not_after, now)
  return tonumber(not_after) > 0 and now > tonumber(not_after)
end

local function set_lease(K, lease, set)
  if set == '' then
    if redis.call('PTTL', K) < lease then
      redis.call('PEXPIRE', K, lease)
    end
    return 1
  end
  local now = now_us()
  if is_late(set, now) then
    return -now
  end
  redis.call('PEXPIRE', K, lease)
  return 1
end

-- Restores the lock. If memory is out, its SET is refused, but the locks behind this one are still renewed.
local function set_again(K, F, token, lease, fence, heal)
  local now, last = now_us(), last_fence(F)
  if is_late(heal, now) then
    return -now
  end
  if last > tonumber(fence) then
    return 0
  end
  local set = redis.pcall('SET', F, fence, 'PX', fence_life(lease))
  if not set.err then
    set = redis.pcall('SET', K, token, 'PX', lease)
  end
  return set.err and set or 2
end

local results = {}
for i = 1, #KEYS / 2 do
  local K, F = KEYS[2 * i - 1], KEYS[2 * i]
  local token, lease, fence = ARGV[5 * i - 4], tonumber(ARGV[5 * i - 3]), ARGV[5 * i - 2]
  local set, heal = ARGV[5 * i - 1], ARGV[5 * i]
  local owner = redis.pcall('GET', K)
  if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
    results[i] = owner
  elseif owner == token then
    local life = fence_life(lease)
    results[i] = set_lease(K, lease, set)
    if redis.call('PEXPIRE', F, life) == 0 then
      redis.call('SET', F, fence, 'PX', life)
    end
  else
    results[i] = (owner or heal == '') and 0 or set_again(K, F, token, lease, fence, heal)
  end
end
results[#results + 1] = now_us()
return results
