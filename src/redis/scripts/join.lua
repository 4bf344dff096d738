-- Inserted where the asker joins the queue at its end. A token that is in the queue already keeps its place. `mark`
-- says whether the entry wants a grant or a hint (queue.lua). Q lives at least as long as the lease of each ask, and
-- at most twice as long as the longest. Sets `failed` to the error if memory is out, or if the account may not use
-- PEXPIRE. An asker that is refused gets no new place: nobody would know of the entry, and yet it would be granted the
-- lock; and a new queue would never expire (rule 53).

local place, seconds, lived_until = entry and string.match(entry, '^%d+'), now / 1000000, lives_until
local is_due, is_new, life = tonumber(lives_until) < seconds + lease / 1000, not place, 2 * lease
if is_due then
  -- An ask with a short lease must not shorten the life of a queue of longer ones: lives_until is in whole seconds,
  -- rounded down.
  if summary then
    life = math.max(life, call('PTTL', Q))
  end
  lives_until = math.floor(seconds + life / 1000)
end
if is_new then
  place, count = last + 1 .. '', count + 1
  last = place
end
local result = redis.pcall('HSET', Q, '', first .. ' ' .. last .. ' ' .. count .. ' ' .. lives_until, asker,
  place .. ' ' .. number, place, number .. ' ' .. lease .. ' ' .. now_text .. ' ' .. #channel ..
  (leave and not owner and mark == ' ' and '!' or mark) .. channel .. asker)
is_changed = false
if type(result) == 'table' then
  failed = result
elseif is_due then
  result = redis.pcall('PEXPIRE', Q, life)
  if type(result) == 'table' then
    failed, is_changed, lives_until = result, true, lived_until
    if is_new then
      call('HDEL', Q, place, asker)
      count = count - 1
    end
  end
end
