-- Looks at the lock.
-- In C (store/redis/codec.h): dibs__codec_read_query
-- KEYS: see keys.lua
-- Reply: {owner or nil, PTTL, last fence as text or nil, number of waiters, now (us of the server's clock)}
-- @insert keys
-- @insert clock

-- Two for each who waits, and one for all.
local fields = call('HLEN', Q)
return {call('GET', K), call('PTTL', K), call('GET', F), math.ceil((fields - 1) / 2), now}
