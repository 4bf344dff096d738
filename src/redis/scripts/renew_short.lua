-- Renews many leases that need nothing else. Their fences are not among KEYS: where the server tells of changes, each
-- read costs as much as if all KEYS had been read. renew.lua keeps the fences alive, less often (rule 28).
-- In C (store/redis/codec.h): dibs__codec_renew_short, dibs__codec_read_renew, dibs__codec_read_renewed, DIBS__RENEW_*
-- KEYS: K, K, ... the locks
-- ARGV: the lease in ms of all, or '' and then the lease of each after the tokens; the token of each
-- Reply: as renew.lua; if all were renewed, only the server's time.
-- Everything that can be read at once is. The last read (EXISTS) comes after the writes, so that the server goes on
-- telling of the locks (rule 33). Those who share one K are renewed together: one ZADD for all, and one PEXPIRE.

-- @insert lease

-- As in codec.c: the end of the names of the keys beside K.
local function side_of(K)
  local open = string.find(K, '{', 1, true)
  local close = open and string.find(K, '}', open + 1, true)
  return close and close > open + 1 and 't:' .. K or ':{' .. K .. '}'
end

local function renew(K, owner, token, lease)
  local side = owner ~= token and side_of(K) or ''
  local S = 'dibs:share' .. side
  if is_elsewhere('dibs:fence' .. side, S, owner, token) then
    return elsewhere()
  end
  if lease == '0' then
    return look(S, owner, token)
  end
  return set_own(K, S, owner, token, lease, '') or 0
end

-- Renews those of the call who share K: `shared` has what ZADD takes for each, and the longest of their leases. False:
-- some of them could not be renewed in this way, so each must be looked at by itself.
local function renew_together(K, shared)
  local S = 'dibs:share' .. side_of(K)
  write_first(S)
  if not GREATER or redis.call('ZADD', S, 'XX', 'LT', 'CH', unpack(shared)) < #shared / 2 then
    return false
  end
  keep_longer(K, shared.longest)
  return true
end

local count, results, done, together, now_ms = #KEYS, {}, true, {}, nil
local owners = redis.call('MGET', unpack(KEYS))
local all = ARGV[1] ~= '' and ARGV[1]
for i = 1, count do
  local lease, K = all or ARGV[1 + count + i], KEYS[i]
  if owners[i] == 'dibs:shared' and lease ~= '0' and not redis.single_key then
    now_ms = now_ms or math.floor(now_us() / 1000)
    local shared = together[K] or {longest = 0}
    shared[#shared + 1], shared[#shared + 2] = -now_ms - lease, '+' .. ARGV[1 + i]
    shared.longest, together[K] = math.max(shared.longest, lease), shared
  end
end
for K, shared in pairs(together) do
  together[K] = renew_together(K, shared)
end
for i = 1, count do
  local lease = all or ARGV[1 + count + i]
  local is_renewed = owners[i] == 'dibs:shared' and lease ~= '0' and together[KEYS[i]]
  results[i] = is_renewed and 1 or renew(KEYS[i], owners[i], ARGV[1 + i], lease)
  done = done and results[i] == 1
end
redis.pcall('EXISTS', unpack(KEYS))
results[count + 1] = now_us()
return done and results[count + 1] or results
