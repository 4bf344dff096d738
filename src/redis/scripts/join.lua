-- Inserted where the asker is to enter the queue at its end. A token that is in the queue already keeps its place. `mark`
-- tells whether the entry wants a grant or a hint (queue.lua). Q lives as
-- long as the lease of the newest ask at least, and twice as long at most. Sets `failed` to the error if memory is out.

local place, seconds = entry and string.match(entry, '^%d+'), now / 1000000
local is_due = tonumber(lives_until) < seconds + lease / 1000
if is_due then
  lives_until = math.floor(seconds + lease / 500)
end
if not place then
  place, count = last + 1 .. '', count + 1
  last = place
end
local result = redis.pcall('HSET', Q, '', first .. ' ' .. last .. ' ' .. count .. ' ' .. lives_until, asker,
  place .. ' ' .. number, place, number .. ' ' .. lease .. ' ' .. now_text .. ' ' .. #channel .. mark .. channel .. asker)
is_changed = false
if type(result) == 'table' then
  failed = result
elseif is_due then
  call('PEXPIRE', Q, 2 * lease)
end
