-- Looks at the lock.
-- KEYS: K the lock, F its fence
-- Reply: {owner or nil, PTTL, last fence as text or nil}

return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2])}
