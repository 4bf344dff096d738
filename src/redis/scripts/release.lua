-- Releases the lock if the token holds it, and takes the token out of the queue; the next waiter is granted the lock.
-- In C (store/redis/codec.h): dibs__codec_release, dibs__codec_read_release
-- KEYS: see keys.lua
-- ARGV: token; optionally a second: `quiet`: waiters are not told (rule 36); or the fence of the token: waiters stop
-- leaving the lock to the token (surpass.lua)
-- Reply: 1: released; 0: nobody held it; -1: another token does; 3 or 2: as 1 or 0, with more to do
-- (release_common.lua); 4: as 1, and others share the lock
-- Safe to send again. The case that nobody waits comes first, as in acquire.lua, and so does a sharer while another's
-- lease lasts as long, so that K stays as it is. Sharers whose leases are over are left to other scripts
-- (sharers.lua).

-- @insert keys

local leaving, owner, summary = ARGV[1], redis.pcall('GET', K), call('HGET', Q, '')
local ended = tonumber(ARGV[2])
if not ended and (not summary or ARGV[2]) and type(owner) ~= 'table' then
  if owner == leaving then
    call('DEL', K)
    return 1
  end
  if owner ~= 'dibs:shared' then
    return owner and -1 or 0
  end
  local S = 'dibs:share' .. string.sub(F, 11)
  local mine, longest = '+' .. leaving, not summary and redis.pcall('ZRANGE', S, 0, 0)[1]
  if longest == mine then
    local two = call('ZRANGE', S, 0, 1, 'WITHSCORES')
    longest = two[2] == two[4] and two[3]
  end
  if longest and string.byte(longest) == 43 then
    return call('ZREM', S, mine, '-' .. leaving) > 0 and 4 or 0
  end
end

local asker, channel, entry
-- @insert clock
-- @insert queue
quiet = ARGV[2] == 'quiet'
-- @insert release_common
if ended then
  -- @insert surpass
end
-- @insert settle
if released == 1 and owner == 'dibs:shared' and not unfinished then
  return 4
end
return unfinished and released + 2 or released
