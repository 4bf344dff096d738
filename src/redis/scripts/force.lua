-- Takes the lock from its holder, and grants it to the next waiter.
-- In C (store/redis/codec.h): dibs__codec_force, dibs__codec_read_force, DIBS__FORCE_*
-- KEYS: see keys.lua
-- ARGV: not after (us of the server's clock; 0: at any time); the token of the holder that is meant (none: nobody held
-- the lock when it was looked at), or dibs:shared for all who share it, and then fence and token of the newest of them
-- Reply: 1: the lock was taken away, or is free; 2: as 1, with more to do (release_common.lua); 0: another token holds
-- it; negative: too late, nothing was done, and the amount is the server's time (us)
-- The fence rises, so that the fence of the former holder is never the newest (rule 12). DEL comes first: it is
-- allowed when memory is out, and after it so are the later writes of the script (rule 4). If one of several sharers
-- is meant, the fence stays as it is, because the others keep theirs; but K is written, so that all who are told of
-- its changes look.
-- @insert keys
-- @insert clock

local owner, summary, not_after, target = call('GET', K), call('HGET', Q, ''), tonumber(ARGV[1]), ARGV[2]
if not_after > 0 and now > not_after then
  return -now
end
if owner and owner ~= target and owner ~= 'dibs:shared' then
  return 0
end
local me, asker, channel, entry, leaving
-- @insert queue
local ends_all = owner == target
if owner == 'dibs:shared' then
  local meant = {'+' .. (target or '')}
  if ends_all then
    -- A later sharer has a larger fence, or the same one if its process shares again (rule 70).
    -- A fence is 0 if F was lost (split.lua).
    meant = ARGV[3] and call('ZRANGEBYSCORE', S, '0', '(' .. ARGV[3]) or {}
    meant[#meant + 1] = '-' .. (ARGV[4] or '')
  end
  local count_before = sharers
  for i = 1, #meant do
    if meant[i] ~= '<' and meant[i] ~= '>' then
      local parting = string.sub(meant[i], 2)
      -- @insert part
    end
  end
  if sharers == count_before and (sharers or not ends_all) then
    return 0
  end
  -- Without S it is not known who shares the lock.
  ends_all = not owner or not sharers and ends_all
  if not ends_all then
    call('PEXPIRE', K, math.max(1, call('PTTL', K)))
  end
end
if ends_all and target then
  call('DEL', K)
  local lease = 0
  -- @insert fence
  owner = false
end
-- Whoever forces a lock open wants it served, also to a waiter that leaves it to a former owner (serve.lua).
released = 1
-- @insert serve
-- @insert settle
return unfinished and 2 or 1
