-- Renews many leases that need nothing but that. Their fences are no keys of the call: where the server tells of changes, each
-- read costs as much as if all KEYS had been read. renew.lua sees to the fences, more seldom (rule 28).
-- In C (store/redis/codec.h): dibs__codec_renew_short, dibs__codec_read_renew, dibs__codec_read_renewed, DIBS__RENEW_*
-- KEYS: K, K, ... the locks
-- ARGV: the lease in ms of all, or '' and then those of each behind the tokens; the token of each
-- Reply: as renew.lua; where all is done, only the server's time.
-- All that can be read at once is. The last read (EXISTS) comes behind the writes, so that the server goes on telling of the
-- locks (rule 33).

-- @insert lease

-- As keys.c has it: the end of the names of what stands beside K.
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

local count, results, done = #KEYS, {}, true
local owners = redis.call('MGET', unpack(KEYS))
local all = ARGV[1] ~= '' and ARGV[1]
for i = 1, count do
  results[i] = renew(KEYS[i], owners[i], ARGV[1 + i], all or ARGV[1 + count + i])
  done = done and results[i] == 1
end
redis.pcall('EXISTS', unpack(KEYS))
results[count + 1] = now_us()
return done and results[count + 1] or results
