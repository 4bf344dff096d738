-- Inserted into the scripts about one lock.
-- KEYS: K the lock; F its fence; Q its queue (queue.lua)
-- budget: how much of queues the call may still go through, counted in dead entries (serve.lua)
local call, K, F, Q, budget = redis.call, KEYS[1], KEYS[2], KEYS[3], 256
