-- Inserted where K is free or about to be: grants K to the first live waiter in the queue, and tells it, unless that
-- is `me`, the token that is asking now (nil: nobody is). If that waiter wants to share K (its token ends in ~LIMIT),
-- the next one is served as well, up to one that wants K alone, or would be one more than its limit allows (rule 59).
-- Also inserted where K is shared: then more may be let in. A waiter whose last ask is older than half of its lease is
-- taken out, and so is one without a subscriber that would be granted K now (rules 3 and 9). One that must wait anyway
-- keeps its place: its connection may have broken a moment ago.
-- Afterwards `owner` is the new owner, dibs:shared if K is shared, or false: nobody was granted K, perhaps because the
-- account may not publish or set a key: then nobody is told either, and the waiter asks again. Also sets `fence_text`,
-- `my_fence` and `granted_ms`, and counts the subscribers of `channel` on the way.
-- `leaving` is the token that is being released, or nil. A server that was brought back to an earlier state may know
-- the token both as a waiter and, since its lease was restored, as the owner (rule 5). In the same way, it may know a
-- sharer of K as a waiter, too: the sharer is taken out of Q and not told, because it would give back the lock that it
-- has.
-- A waiter that wants a hint (queue.lua) is granted nothing. It is told by a push with fence 0, and K stays free:
-- whoever asks first gets it. While somebody is asking, nobody is told, because K goes to the asker. If the first
-- waiter wants to share K with any number, all waiters that want the same are told, up to one that wants K alone. They
-- keep their places: otherwise the one that wants K alone would come before them as soon as the first of them shares
-- K.
-- A waiter that leaves a free K to its former owner is not granted it by a release that found nobody holding K: it gets
-- a hint, keeps its place, and its next ask decides (rule 13). If somebody is asking, K is given away, so the waiter
-- that came first is granted it: it may be the owner itself that asks again.
-- The entry is taken out before K is set: after a first write that is allowed when memory is out, SET is not refused
-- (rule 4). For the same reason a ZREM that finds nothing comes before the first sharer is let in.
-- The push goes to the waiter's `inbox`, the channel on which it listens: number of the ask, fence, length of the
-- token, then token and K. An inbox that ends in } is the sharded channel of a slot (rule 38). NUMSUB still comes
-- first, so that others pay nothing for that. A waiter that is passed over because nobody listens here may
-- listen at another server, from which the slot is moving: it is told by a hint on its runtime's own channel, which
-- all servers of a cluster pass on.

-- One call takes out only as many dead entries as `budget` allows, so that a queue of 100,000 does not block the
-- server. `unfinished` then says that K is free though live waiters may be left: nobody is granted K past them, and
-- another call goes on (rule 55).

local is_served = false
owner = owner == 'dibs:shared' and owner
while count > 0 and not is_served and budget > 0 do
  budget = budget - 1
  local waiter, has_no_listener = call('HGET', Q, first) or '', false
  local number, lease, seen, size, kind, at = string.match(waiter, '^(%d+) (%d+) (%d+) (%d+)([ ?!])()')
  if number then
    local inbox, token = string.sub(waiter, at, at + size - 1), string.sub(waiter, at + size)
    local publish, at_most = 'PUBLISH', string.find(token, '~', 1, true)
    at_most = at_most and string.match(token, '~(%d+)$')
    local must_wait = owner and not (at_most and sharers and (at_most == '0' or sharers < tonumber(at_most)))
    if token == me then
      is_served = true
    elseif token ~= leaving and now - seen < lease * 500 and not (owner and sharers and
      call('ZADD', S, 'XX', 'INCR', 0, '+' .. token)) then
      is_served = must_wait
      if not must_wait then
        local reply = channel and redis.pcall('PUBSUB', 'NUMSUB', inbox, channel) or
          redis.pcall('PUBSUB', 'NUMSUB', inbox)
        is_served, listeners = (reply[2] or 0) > 0, channel and (reply[4] or -1)
      end
      if not is_served and string.byte(inbox, -1) == 125 then
        is_served, publish = (redis.pcall('PUBSUB', 'SHARDNUMSUB', inbox)[2] or 0) > 0, 'SPUBLISH'
      end
      has_no_listener = not is_served
    end
    if is_served and kind == '!' and not me and not owner and released ~= 1 then
      redis.pcall(publish, inbox, number .. ' 0 ' .. #token .. ' ' .. token .. K)
      break
    end
    local is_hint = kind == '?' and token ~= me
    if is_served and (is_hint and me or must_wait) then
      head_limit = at_most
      break
    end
    if is_served and is_hint and at_most == '0' then
      for place = tonumber(first), tonumber(last) do
        waiter, budget = call('HGET', Q, string.format('%.0f', place)) or '', budget - 1
        number, size, at = string.match(waiter, '^(%d+) %d+ %d+ (%d+)%?()')
        token = number and string.sub(waiter, at + size)
        if budget <= 0 or number and not string.find(token, '~0$') then
          break
        elseif number then
          inbox = string.sub(waiter, at, at + size - 1)
          redis.pcall(publish, inbox, number .. ' 0 ' .. #token .. ' ' .. token .. K)
        end
      end
      break
    end
    if is_served and at_most and not owner and not S then
      redis.pcall('ZREM', 'dibs:share' .. string.sub(F, 11), '')
      -- @insert together
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
      redis.pcall(publish, inbox, number .. ' 0 ' .. #token .. ' ' .. token .. K)
    elseif is_served then
      local sharer, others = at_most and token, true
      if sharer then
        -- @insert admit
      else
        -- @insert fence
        local set = failed or redis.pcall('SET', K, token, 'PX', lease)
        failed = set.err and set
        if not failed then
          owner, granted_ms = token, tonumber(lease)
        end
      end
      local text = number .. ' ' .. fence_text .. ' ' .. #token .. ' ' .. token .. K
      if token == me then
        my_fence = sharer and not failed and fence_text
      elseif failed or type(redis.pcall(publish, inbox, text)) ~= 'number' then
        if sharer then
          local parting = token
          -- @insert part
        else
          owner, granted_ms = false, nil
        end
        if not owner then
          call('DEL', K)
        end
        sharer = false
      end
      if sharer then
        is_served, budget = false, budget - 3
      end
    elseif has_no_listener then
      redis.pcall('PUBLISH', string.match(inbox, '^(.*):{') or inbox, number .. ' 0 ' .. #token .. ' ' .. token .. K)
    end
  else
    -- Up to a hundred gaps are skipped at a time. If there are more, the lowest place of all is taken, unless the
    -- queue is too long to be read as a whole. If there is no place left, the entries that waited are lost. The cost
    -- of this is counted in dead entries.
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
      -- If this were not written before '', memory might be out (rule 4).
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
