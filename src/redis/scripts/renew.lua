-- Renews many leases.
-- In C (store/redis/codec.h): dibs__codec_renew, dibs__codec_keep, dibs__codec_read_renew, dibs__codec_read_renewed, DIBS__RENEW_*.
-- set is set_by there, heal is restore_by
-- KEYS: K, K, ... the locks, then F, F, ... their fences
-- ARGV, in short: the lease in ms of all, or '' and then those of each behind the tokens; the token of each.
-- ARGV, in full: for each lock token, lease in ms, fence, set, heal
-- Reply: an array. For each lock 1: done; 2: restored; 0: no longer the token's; 3: done, but F is gone; negative: too late,
-- nothing was done, and the amount is the server's time (us); an error: the lock could not be looked at, or not be restored.
-- Then that time. In short, where all is done, only that time.
-- In short, nothing but the lease is renewed. In full:
-- set is '' for a renewal, which never shortens a lease: one that was stuck on its way must not undo an extension (rule 21).
-- For an extension, which sets the lease to its length, set is the time (us of the server's clock; 0: any) after which it is
-- too late.
-- heal is '', or the time after which it is too late to restore the lock. Where heal is a time and K is gone, the lock is
-- restored, unless F tells that another token was granted it since (rule 12).
-- F lives on with its lock, and is put back where it is gone (rule 28).
-- @include fence

-- From 7 on PEXPIRE knows GT, and scripts this number.
local GREATER = redis.REDIS_VERSION_NUM

local function is_late(not_after, now)
  return tonumber(not_after) > 0 and now > tonumber(not_after)
end

local function set_lease(K, lease, set)
  if set == '' then
    if GREATER and redis.call('PEXPIRE', K, lease, 'GT') == 1 then
      return 1
    end
    if redis.call('PTTL', K) < tonumber(lease) then
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
  local set = redis.pcall('SET', F, fence, 'PX', fence_life(tonumber(lease)))
  if not set.err then
    set = redis.pcall('SET', K, token, 'PX', lease)
  end
  return set.err and set or 2
end

local function keep_fence(F, fence, lease)
  local life = fence_life(tonumber(lease))
  if redis.call('PEXPIRE', F, life) == 0 then
    redis.call('SET', F, fence, 'PX', life)
  end
end

-- A lease of its token is set by set_lease; else what is to be said of it. fence is nil in short.
local function renew(K, F, token, lease, set, fence, heal)
  local owner = redis.pcall('GET', K)
  if owner == token then
    local result = set_lease(K, lease, set)
    if fence then
      keep_fence(F, fence, lease)
    end
    return result
  end
  if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
    return owner
  end
  return (owner or heal == '') and 0 or set_again(K, F, token, lease, fence, heal)
end

local count, results, done = #KEYS / 2, {}, true
if #ARGV == 5 * count then
  for i = 1, count do
    local at = 5 * i
    results[i] = renew(KEYS[i], KEYS[count + i], ARGV[at - 4], ARGV[at - 3], ARGV[at - 1], ARGV[at - 2], ARGV[at])
  end
  results[count + 1] = now_us()
  return results
end
local all = ARGV[1] ~= '' and ARGV[1]
for i = 1, count do
  results[i] = renew(KEYS[i], nil, ARGV[1 + i], all or ARGV[1 + count + i], '', nil, '')
  done = done and results[i] == 1
end
if redis.pcall('EXISTS', unpack(KEYS, count + 1)) ~= count then
  done = false
  for i = 1, count do
    if results[i] == 1 and redis.pcall('EXISTS', KEYS[count + i]) ~= 1 then
      results[i] = 3
    end
  end
end
results[count + 1] = now_us()
return done and results[count + 1] or results
