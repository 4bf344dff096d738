-- Inserted into the scripts about one lock.
-- KEYS: K the lock; F its fence; Q its queue (queue.lua)
local call, K, F, Q = redis.call, KEYS[1], KEYS[2], KEYS[3]
