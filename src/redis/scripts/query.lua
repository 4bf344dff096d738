-- Looks at the lock.
-- In C (store/redis/codec.h): dibs__codec_read_query
-- KEYS: see keys.lua
-- ARGV: optionally how many entries of the queue to list; and after that how many sharers
-- Reply: {owner or nil, PTTL, last fence as text or nil, number of waiters, now (us of the server's clock)}. If the
-- lock is shared, then the token and the fence of the newest sharer, and the number of sharers; if a process keeps the
-- lock and nobody uses it, then '', '0' and -1. With ARGV then {token, us since its last ask, ...}, from the first
-- entry on. With two in ARGV then {token, fence, remaining ms, ...} of those who share K with others, the newest
-- first.
-- @insert keys
-- @insert clock

-- There are two fields for each waiter, and one for all.
local fields = call('HLEN', Q)
local owner, newest, fence, sharers = call('GET', K), nil, nil, 0
local S, dead = 'dibs:share' .. string.sub(F, 11), {}
if owner == 'dibs:shared' then
  local size = call('ZCARD', S)
  for _, member in ipairs(call('ZRANGEBYSCORE', S, -math.floor(now / 1000), '(0')) do
    dead[string.sub(member, 2)] = true
    size = size - 2
  end
  sharers = math.max(0, size / 2 - 1)
  -- Last of all is the newest sharer that there ever was; before that, from the newest on, come the present ones. `<`
  -- is among them if nothing says that the last fence was a sharer's.
  local at = -2
  while sharers > 0 and not newest do
    local found = call('ZRANGE', S, at, at, 'WITHSCORES')
    newest, fence, at = string.sub(found[1], 2), found[2], at - 1
    newest = newest ~= '' and not dead[newest] and newest
  end
  if size > 0 and sharers == 0 then
    owner = false
  end
end
local reply = {owner, call('PTTL', K), call('GET', F), math.ceil((fields - 1) / 2), now}
if owner == 'dibs:shared' then
  reply[6], reply[7], reply[8] = newest or '', fence or '0', sharers
elseif owner and string.byte(owner, -1) == 33 and redis.pcall('GET', 'dibs:kept' .. string.sub(F, 11)) == owner then
  reply[6], reply[7], reply[8] = '', '0', -1
end
if not ARGV[1] then
  return reply
end

local entries = {}

local function list(entry)
  local seen, size, rest = string.match(entry or '', '^%d+ %d+ (%d+) (%d+)[ ?!](.*)$')
  if seen and #entries < 2 * ARGV[1] then
    entries[#entries + 1], entries[#entries + 2] = string.sub(rest, size + 1), now - seen
  end
end

-- A long queue is gone through from its head on, a hundred places at a time, since many may be gaps that were left by
-- entries that were taken out; at most 6,400 of them, which takes as long as the other way at most.
if fields <= 4096 then
  local places = {}
  for _, field in ipairs(call('HKEYS', Q)) do
    places[#places + 1] = tonumber(field)
  end
  table.sort(places)
  for _, place in ipairs(places) do
    list(call('HGET', Q, string.format('%.0f', place)))
  end
else
  local place, last = string.match(call('HGET', Q, '') or '', '^(%d+) (%d+) ')
  place, last = tonumber(place or 1), tonumber(last or 0)
  while place <= last and #entries < 2 * ARGV[1] and budget > 0 do
    local hundred = {}
    for at = place, math.min(last, place + 99) do
      hundred[#hundred + 1] = at .. ''
    end
    for _, entry in ipairs(call('HMGET', Q, unpack(hundred))) do
      list(entry)
    end
    place, budget = place + 100, budget - 4
  end
end
reply[#reply + 1] = entries
if not ARGV[2] then
  return reply
end

-- The times of all sharers come first, with scores below 0, and then the fences, with the newest at the end.
local told, ends, members = {}, {}, sharers > 0 and call('ZRANGE', S, 0, -1, 'WITHSCORES') or {}
for i = 1, #members, 2 do
  if string.sub(members[i], 1, 1) == '+' then
    ends[string.sub(members[i], 2)] = -members[i + 1]
  end
end
for i = #members - 1, 1, -2 do
  local token = string.sub(members[i], 2)
  if #told < 3 * ARGV[2] and string.sub(members[i], 1, 1) == '-' and not dead[token] and ends[token] then
    told[#told + 1], told[#told + 2], told[#told + 3] = token, members[i + 1], math.floor(ends[token] - now / 1000)
  end
end
reply[#reply + 1] = told
return reply
