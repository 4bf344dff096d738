-- Inserted where K is free or about to be: grants K to the first live waiter in the queue, and tells it, unless that is
-- `me`, which is asking now (nil: nobody is). A waiter without a subscriber, or whose last ask is older than half of its
-- lease, is taken out (rules 3 and 9). Afterwards `owner` is the new owner, or false: nobody was granted K, perhaps because
-- the account may not publish. Also sets `fence_text` and `granted_ms`, and asks for the subscribers of `channel` on the way.
-- `leaving` is the token that is released, or nil: a server that was brought back to an earlier state may know it as a waiter,
-- and as the owner, since its lease was restored (rule 5).
-- A waiter that wants a hint (queue.lua) is granted nothing. It is told by a push with fence 0, and K stays free: whoever asks
-- first has it. While somebody is asking, nobody is told, for K goes to who asks.
-- The entry is taken out before K is set: after a first write that is allowed when memory is out, SET is not refused
-- (rule 4). The push: number of the ask, fence, length of the token, then token and K. A channel that ends in } is the
-- sharded one of a slot (rule 38). NUMSUB comes first all the same: so other channels pay nothing for that. Who listens to the
-- slot at another server, which it is leaving, is told by a hint on its runtime's own channel, which all servers pass on.

-- One call takes out as many dead entries as `budget` allows, so that a queue of 100,000 does not keep the server from all
-- others. `unfinished` then tells that K is free though live waiters may be left: nobody is granted K past them, and
-- another call goes on (rule 55).

local is_served = false
owner = false
while count > 0 and not is_served and budget > 0 do
  budget = budget - 1
  local waiter = call('HGET', Q, first) or ''
  local number, lease, seen, size, kind, at = string.match(waiter, '^(%d+) (%d+) (%d+) (%d+)([ ?])()')
  if number then
    local ear, token = string.sub(waiter, at, at + size - 1), string.sub(waiter, at + size)
    local publish = 'PUBLISH'
    if token == me then
      is_served = true
    elseif token ~= leaving and now - seen < lease * 500 then
      local reply = channel and redis.pcall('PUBSUB', 'NUMSUB', ear, channel) or redis.pcall('PUBSUB', 'NUMSUB', ear)
      is_served, heard = (reply[2] or 0) > 0, channel and (reply[4] or -1)
      if not is_served and string.byte(ear, -1) == 125 then
        is_served, publish = (redis.pcall('PUBSUB', 'SHARDNUMSUB', ear)[2] or 0) > 0, 'SPUBLISH'
      end
    end
    local is_hint = kind == '?' and token ~= me
    if is_hint and is_served and me then
      break
    end
    count, is_changed = count - 1, true
    if count == 0 and not asker then
      call('DEL', Q)
      is_changed = false
    else
      call('HDEL', Q, first, token)
    end
    if token == asker then
      entry = false
    end
    first = first + 1 .. ''
    if is_hint and is_served then
      redis.pcall(publish, ear, number .. ' 0 ' .. #token .. ' ' .. token .. K)
    elseif is_served then
      -- @insert fence
      call('SET', K, token, 'PX', lease)
      owner, granted_ms = token, tonumber(lease)
      local text = number .. ' ' .. fence_text .. ' ' .. #token .. ' ' .. token .. K
      if token ~= me and type(redis.pcall(publish, ear, text)) ~= 'number' then
        call('DEL', K)
        owner, granted_ms = false, nil
      end
    elseif publish == 'SPUBLISH' then
      redis.pcall('PUBLISH', string.match(ear, '^(.*):{') or ear, number .. ' 0 ' .. #token .. ' ' .. token .. K)
    end
  else
    -- Gaps are passed up to a hundred at a time. Where there are more, the least place of all is taken, unless the queue is
    -- too long to be looked at as a whole. Where there is none, what waited is lost. What that costs the server counts as so
    -- many dead entries.
    local places, next_place, passed = {}, nil, math.min(first + 100, last)
    for place = first + 1, passed do
      places[#places + 1] = place .. ''
    end
    for i, found in ipairs(places[1] and call('HMGET', Q, unpack(places)) or {}) do
      next_place = next_place or found and tonumber(places[i])
    end
    budget = budget - 8
    if not next_place and count > 500 and passed < tonumber(last) then
      next_place = passed + 1
      -- If nothing else is written before '' is, memory may be out (rule 4).
      call('HDEL', Q, first)
    elseif not next_place and count <= 500 then
      budget = budget - count / 16
      for _, field in ipairs(call('HKEYS', Q)) do
        local place = tonumber(field)
        if place and place > tonumber(first) and (not next_place or place < next_place) then
          next_place = place
        end
      end
    end
    is_changed = true
    if next_place then
      first = string.format('%.0f', next_place)
    else
      count, entry = 0, false
    end
  end
end
unfinished = count > 0 and not is_served
