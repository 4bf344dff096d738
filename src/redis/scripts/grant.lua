-- Included by the scripts about one lock.
-- KEYS: K the lock; F its fence; Q its queue, a sorted set: token -> order of arrival; W its waiters, a hash: token ->
-- "number of its last ask, lease in ms, server's time of that ask in us, channel"
-- @include fence

local K, F, Q, W = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function grant(token, now, lease)
  local fence = new_fence(F, now, lease)
  redis.call('SET', K, token, 'PX', lease)
  return fence
end
