-- Inserted into the scripts that ask for the lock; see acquire.lua. Known are `owner` (a table: the error that says
-- why K can't be read), what '' says of the queue, and `entry`, what Q holds of the asker. Sets `reply`.

local reply, leaving
-- How many may share K, if the asker wants to share it; '0': any number. The token of a sharer says so.
local limit, others = string.find(asker, '~', 1, true) and string.match(asker, '~(%d+)$'), false
if limit and owner ~= asker and type(owner) == 'string' and string.find(owner, '^dibs:.*~%d+$') then
  -- @insert split
elseif limit and not owner then
  -- @insert together
end
local is_mine = limit and owner == 'dibs:shared' and call('ZADD', S, 'XX', 'INCR', 0, '+' .. asker)
local latest = tonumber(not_after)
if latest > 0 and now > latest then
  reply = {-1, now}
elseif type(owner) == 'table' then
  reply = owner
elseif owner == asker then
  local leaving = asker
  -- @insert leave
  call('PEXPIRE', K, math.max(call('PTTL', K), lease))
  reply = tonumber(call('GET', F))
  if not (reply and reply > 0 and reply < 2^53 - 1) then
    -- @insert fence
    reply = failed or tonumber(fence_text)
  end
elseif is_mine and -is_mine > math.floor(now / 1000) then
  local leaving, ends = asker, math.floor(now / 1000) + lease
  -- @insert leave
  if ends > -is_mine then
    call('ZADD', S, -ends, '+' .. asker)
  end
  call('PEXPIRE', K, math.max(call('PTTL', K), lease))
  reply = tonumber(call('ZADD', S, 'XX', 'INCR', 0, '-' .. asker))
  if not (reply and reply > 0) then
    -- F was lost before others joined the asker (split.lua).
    fence_text = fence_text or call('GET', F)
    -- @insert fence
    reply = failed or tonumber(fence_text)
    if not failed then
      call('ZADD', S, fence_text, '>', fence_text, '-' .. asker)
    end
  end
elseif entry and tonumber(string.match(entry, '%d+$')) > tonumber(number) then
  -- A later ask of the token is in the queue (rule 8).
  reply = {-2, 0}
else
  if leave then
    leave = (tonumber(fence_text or redis.pcall('GET', F)) or 0) <= tonumber(leave)
  end
  if (not owner or owner == 'dibs:shared') and not leave and count > 0 then
    local me = asker
    -- @insert serve
  end
  if owner == asker or my_fence then
    reply = tonumber(my_fence or fence_text)
  elseif limit and not leave and (KEYS[4] or not unfinished) and (not owner or owner == 'dibs:shared' and sharers and
    (count == 0 or KEYS[4] and head_limit == '0') and (limit == '0' or sharers < tonumber(limit))) then
    -- Nobody waits before the asker, and K may be shared with it. At a member of a quorum: the first that waits does
    -- not want K alone.
    local leaving, sharer = asker, asker
    -- @insert leave
    -- @insert admit
    reply = failed or tonumber(fence_text)
  elseif not limit and not owner and not leave and (KEYS[4] or not unfinished) then
    -- Nobody waits that can be told. At a member of a quorum all wait for hints, and K goes to whoever asks.
    local leaving = asker
    -- @insert leave
    -- @insert fence
    reply = failed or tonumber(fence_text)
    if not failed then
      call('SET', K, asker, 'PX', lease)
    end
  else
    if channel then
      -- @insert join
      if not listeners then
        listeners = redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or -1
      end
      if listeners < 1 and string.byte(channel, -1) == 125 then
        listeners = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] or -1
      end
    end
    local is_dibs = (not owner or string.sub(owner, 1, 5) == 'dibs:') and 1 or 0
    if owner and string.byte(owner, -1) == 33 and is_dibs == 1 then
      -- @insert recall
    end
    local last = tonumber(fence_text or redis.pcall('GET', F)) or 0
    local lives_ms = granted_ms or unfinished and 0 or call('PTTL', K)
    local left = lives_ms
    if owner == 'dibs:shared' and sharers and left > 0 then
      -- The lease of one sharer may end before those of the others, which may have left by then.
      local next_to_end = -call('ZRANGE', S, sharers - 1, sharers - 1, 'WITHSCORES')[2] - math.floor(now / 1000)
      left = math.min(left, math.max(1, next_to_end))
    end
    reply = failed or {0, left, is_dibs, listeners or 0, last, lives_ms}
  end
end
-- @insert settle
