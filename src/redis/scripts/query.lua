-- Looks at the lock.
-- In C (store/redis/codec.h): dibs__codec_read_query
-- KEYS: see keys.lua
-- ARGV: optionally how many entries of the queue are to be told
-- Reply: {owner or nil, PTTL, last fence as text or nil, number of waiters, now (us of the server's clock)}; with ARGV a
-- sixth: {token, us since its last ask, ...}, from the first entry on
-- @insert keys
-- @insert clock

-- Two for each who waits, and one for all.
local fields = call('HLEN', Q)
local reply = {call('GET', K), call('PTTL', K), call('GET', F), math.ceil((fields - 1) / 2), now}
if not ARGV[1] then
  return reply
end

-- The gaps that who left leaves count as entries that are gone through.
local first, last = string.match(call('HGET', Q, '') or '', '^(%d+) (%d+) ')
local entries, place = {}, tonumber(first or 1)
last, budget = tonumber(last or 0), budget + ARGV[1]
while place <= last and budget > 0 and #entries < 2 * ARGV[1] do
  local seen, size, rest = string.match(call('HGET', Q, string.format('%.0f', place)) or '', '^%d+ %d+ (%d+) (%d+)[ ?](.*)$')
  if seen then
    entries[#entries + 1], entries[#entries + 2] = string.sub(rest, size + 1), now - seen
  end
  place, budget = place + 1, budget - 1
end
reply[6] = entries
return reply
