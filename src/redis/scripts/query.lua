-- Looks at the lock.
-- In C (store/redis/codec.h): dibs__codec_read_query
-- KEYS: see grant.lua
-- Reply: {owner or nil, PTTL, last fence as text or nil, number of waiters}

local K, F, Q = KEYS[1], KEYS[2], KEYS[3]
return {redis.call('GET', K), redis.call('PTTL', K), redis.call('GET', F), redis.call('ZCARD', Q)}
