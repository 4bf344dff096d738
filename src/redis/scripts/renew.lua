-- Renews many leases, in full: what renew_short.lua does, and everything else that a renewal may have to do.
-- In C (store/redis/codec.h): dibs__codec_renew, dibs__codec_read_renew, dibs__codec_read_renewed, DIBS__RENEW_*
-- KEYS: K, K, ... the locks, then F, F, ... their fences; then, at a member of a quorum, M of vote.lua: a lock is
-- restored only if the server may vote, since that is a grant (rules 15 and 56)
-- ARGV: for each lock token, lease in ms, fence, set_by, restore_by; then, at a member, RUN and QUORUM
-- Reply: an array, with one number or error for each lock, and then the server's time (us):
--   1: done; 2: restored; 0: the token has lost the lock; 3: the same, at a member, and F tells that the member granted
--   the lock to another since, or that it was taken away by force; 4: nothing was done, since the lease lasts longer than
--   asked for; 5: the token has the lock, which was only to be looked at (a lease of 0); negative: too late, nothing was
--   done, and the amount is the server's time (us); an error: the lock could not be looked at, or not be restored.
-- set_by: see lease.lua.
-- restore_by is '', or the time after which it is too late to restore the lock. If it is a time and K is gone, the
-- lock is restored, unless F tells that another token was granted it since (rule 12). The same is done if K is another
-- token of dibs, and F tells that it was granted the lock before this token (rule 54); but not at a member of a
-- quorum. If restore_by begins with !, K is set whatever F tells (rule 35). F is raised to the fence, and never
-- lowered.
-- Everything that can be read at once is: where the server tracks what a client reads, each read in a script costs as
-- much as if the client had read all KEYS. The last read (EXISTS) comes after the writes, so that the server goes on
-- telling of the locks (rule 33).
-- F lives on with its lock, and is set again if it is gone (rule 28).
-- A mark before the fence says that the process may keep the lease. F is raised to the fence then, and what the mark
-- says is noted, except while the slot moves here: `*` nobody uses the lease, `-` it is in use and will be released,
-- `+` it is in use. Then the result is 6 instead of 1, 2 or 4 if others wait for the lock, and 7 if F could not be
-- raised.

-- @insert lease

local HOUR = 3600000

-- The same as in sharers.lua.
local function sharers_of(F)
  return 'dibs:share' .. string.sub(F, 11)
end

-- How long F must live at least, in ms. F is set to live an hour longer, counted from the time that the fence stands
-- for. For both see fence.lua.
local function fence_life(lease)
  return math.max(HOUR, 2 * lease)
end

local function set_fence(F, fence, now, lease)
  local ahead = math.max(0, math.ceil((fence - now) / 1000))
  return redis.pcall('SET', F, string.format('%.0f', fence), 'PX', fence_life(lease) + HOUR + ahead)
end

-- The last fence; nil: F is gone, or holds what can't be a fence (rule 30).
local function last_fence(F)
  local last = tonumber(redis.call('GET', F))
  return last and last > 0 and last < 2^53 - 1 and last or nil
end

-- The runtime of a token that wants the lock alone; else nil.
local function runtime_of(token)
  return string.match(token, '^dibs:.*:(%x+):%x+!?$')
end

-- Whether the owner was granted the lock before a token with that fence. F is the fence of the newest grant to a
-- client of dibs, so the owner's fence is not larger than F. Both have the same fence if their process locked the lock
-- again (rule 70): then the owner is the token that it gave up. A foreign client leaves no fence.
local function is_older(owner, token, last, fence)
  if string.sub(owner, 1, 5) ~= 'dibs:' or not last then
    return false
  end
  return last < fence or last == fence and runtime_of(token) and runtime_of(owner) == runtime_of(token)
end

-- The largest fence of a lock that may have been held alone, as far as the server knows: a sharer's fence does not
-- count.
local function newest_alone(S, last)
  local newest = redis.call('ZADD', S, 'XX', 'INCR', 0, '>')
  return newest and tonumber(newest) == last and tonumber(redis.call('ZADD', S, 'XX', 'INCR', 0, '<')) or last
end

-- Lets the token share K again (admit.lua), beside those who share it already. F has been set; `alone` as above.
local function set_sharer(K, S, owner, token, lease, now, fence, last, alone)
  local ends = math.floor(now / 1000) + lease
  local added = redis.pcall('ZADD', S, alone, '<', string.format('%.0f', last), '>', -ends, '+' .. token, fence, '-' .. token)
  if type(added) == 'table' then
    return added
  end
  -- GT gives no end to a key that has none, as a new S.
  if owner ~= 'dibs:shared' or redis.call('PTTL', S) < 0 then
    redis.call('PEXPIRE', S, fence_life(lease) + HOUR)
  else
    keep_longer(S, fence_life(lease) + HOUR)
  end
  if owner ~= 'dibs:shared' then
    return redis.pcall('SET', K, 'dibs:shared', 'PX', lease)
  end
  keep_longer(K, lease)
  return {}
end

-- As split.lua, for the only sharer of K; set_sharer follows, and sets what S has of the newest fences.
local function split(K, F, S, owner)
  local now, left, fence = now_us(), math.max(1, redis.call('PTTL', K)), last_fence(F) or 0
  for _, member in ipairs(redis.call('ZRANGE', S, 0, -1)) do
    if member ~= '<' and member ~= '>' then
      redis.call('ZREM', S, member)
    end
  end
  redis.call('ZADD', S, -math.floor(now / 1000) - left, '+' .. owner, fence, '-' .. owner)
  redis.call('PEXPIRE', S, fence_life(left) + HOUR)
  redis.call('SET', K, 'dibs:shared', 'PX', left)
end

-- As in acquire_member.lua. After the arguments of the leases come the run id and the number of the quorum.
local function may_vote(M, lease, now)
  local from, longest, seen, run, quorum =
    string.match(redis.call('GET', M) or '', '^(%d+) (%d+) (%d+) %d+ %d+ (%S+) (%d+)$')
  local its_run, its_quorum = ARGV[#ARGV - 1], ARGV[#ARGV]
  return from and now >= tonumber(from) and now >= tonumber(seen) and tonumber(lease) <= tonumber(longest) and
    (run == its_run or run == '-' or its_run == '-') and (quorum == its_quorum or quorum == '0' or its_quorum == '0')
end

-- What is known of the use of a lease is stored under a name like F's, for as long as the lease lasts: the token,
-- after a `-` if the lease need not be recalled any more.
local function tell(F, token, lease, fence, mark)
  local side, last, raised = string.sub(F, 11), last_fence(F), true
  if not last or last < tonumber(fence) then
    raised = not set_fence(F, tonumber(fence), now_us(), lease).err
  end
  if mark == '+' then
    redis.pcall('DEL', 'dibs:kept' .. side)
  elseif not redis.single_key then
    -- At a node that was named by ASK nothing is stored: the same key may still be where the slot comes from, and then
    -- it could not move here.
    redis.pcall('SET', 'dibs:kept' .. side, (mark == '-' and mark or '') .. token, 'PX', lease)
  end
  return not raised and 7 or redis.pcall('EXISTS', 'dibs:queue' .. side) == 1 and 6 or 1
end

-- Restores the lock. If memory is out, its SET is refused, but the locks after this one are still renewed. If K has
-- another type, and so looks as if it were gone, it stays.
local function restore(K, F, owner, token, lease, fence, restore_by, M)
  local now, last = now_us(), last_fence(F)
  local any_fence, not_after = string.match(restore_by, '^(!?)(.*)')
  local limit, S, alone = string.match(token, '~(%d+)$'), nil, last
  -- At a member others may share the lock as well only where no limit is set: majorities can't count.
  local shares, beside = limit ~= nil, limit and (not M or limit == '0')
  if shares then
    S = sharers_of(F)
    write_first(S)
    if not last and owner == 'dibs:shared' then
      last = tonumber(redis.call('ZADD', S, 'XX', 'INCR', 0, '>'))
    end
    alone = newest_alone(S, last)
  end
  local is_larger = last and last > tonumber(fence)
  local was_another = is_larger and alone > tonumber(fence) and any_fence == ''
  local gone = M and was_another and 3 or 0
  local is_only_one = beside and owner and string.find(owner, '^dibs:.*~%d+$')
  if owner and not is_only_one and (M or any_fence ~= '' or not is_older(owner, token, last, tonumber(fence))) and
    not (beside and owner == 'dibs:shared') then
    return gone
  end
  if is_late(not_after, now) then
    return -now
  end
  if was_another or (M and not may_vote(M, lease, now)) or (not owner and redis.call('EXISTS', K) == 1) then
    return gone
  end
  local newest = is_larger and last or tonumber(fence)
  if is_only_one then
    split(K, F, S, owner)
    owner = 'dibs:shared'
  end
  local set = set_fence(F, newest, now, lease)
  if shares and not set.err then
    if owner ~= 'dibs:shared' then
      redis.call('DEL', S)
    end
    set = set_sharer(K, S, owner, token, lease, now, fence, newest, math.min(alone or 0, tonumber(fence)))
  elseif not set.err then
    set = redis.pcall('SET', K, token, 'PX', lease)
  end
  return set.err and set or 2
end

local function keep_fence(F, lease)
  local life = fence_life(lease)
  if GREATER then
    redis.call('PEXPIRE', F, life + HOUR, 'GT')
  elseif redis.call('PTTL', F) < life then
    redis.call('PEXPIRE', F, life + HOUR)
  end
end

-- Sets the lease if the token has the lock; returns the result for the lock.
local function renew(K, F, owner, token, lease, set_by, fence, restore_by, M)
  local S = sharers_of(F)
  if is_elsewhere(F, S, owner, token) then
    return elsewhere()
  end
  if lease == '0' then
    return look(S, owner, token)
  end
  local result = set_own(K, S, owner, token, lease, set_by)
  if result then
    keep_fence(F, lease)
    if owner ~= token then
      keep_longer(S, fence_life(lease) + HOUR)
    end
    return result
  end
  return restore_by == '' and 0 or restore(K, F, owner, token, lease, fence, restore_by, M)
end

local count, results = math.floor(#KEYS / 2), {}
local owners = redis.call('MGET', unpack(KEYS, 1, count))
-- Who has a lock that the call has restored. The tokens that follow must find it so: sharers are restored beside each
-- other, and the larger fence wins (rule 54), whatever comes first. Who came first and gave way has lost the lock.
local restored = {}
for i = 1, count do
  local at = 5 * i
  local owner, token = restored[KEYS[i]] or owners[i], ARGV[at - 4]
  local mark, fence = string.match(ARGV[at - 2], '^([+*-]?)(.*)$')
  results[i] = renew(KEYS[i], KEYS[count + i], owner, token, ARGV[at - 3], ARGV[at - 1], fence, ARGV[at],
    KEYS[2 * count + 1])
  if results[i] == 2 then
    restored[KEYS[i]] = string.find(token, '~%d+$') and 'dibs:shared' or token
  end
  if mark ~= '' and (results[i] == 1 or results[i] == 2 or results[i] == 4) then
    results[i] = tell(KEYS[count + i], token, ARGV[at - 3], fence, mark)
  end
end
for i = 1, next(restored) and count or 0 do
  local owner, token, result = restored[KEYS[i]], ARGV[5 * i - 4], results[i]
  local has_it = owner == token or owner == 'dibs:shared' and string.find(token, '~%d+$')
  if owner and not has_it and type(result) == 'number' and result > 0 and result ~= 3 then
    results[i] = 0
  end
end
if redis.pcall('EXISTS', unpack(KEYS, 1, 2 * count)) ~= 2 * count then
  for i = 1, count do
    if results[i] == 1 and redis.pcall('EXISTS', KEYS[count + i]) ~= 1 then
      -- The fence of another sharer may be larger.
      local newest = owners[i] == 'dibs:shared' and
        redis.pcall('ZADD', sharers_of(KEYS[count + i]), 'XX', 'INCR', 0, '>')
      local fence = math.max(tonumber(ARGV[5 * i - 2]), tonumber(newest) or 0)
      set_fence(KEYS[count + i], fence, now_us(), ARGV[5 * i - 3])
    end
  end
end
results[count + 1] = now_us()
return results
