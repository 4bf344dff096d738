-- Asks for the lock.
-- KEYS: K the lock, F its fence
-- ARGV: token, lease in ms, not after (us of the server's clock; 0: at any time)
-- Reply: {1, fence} granted; {0, PTTL} taken; {-1, now} too late: nothing was done
-- Safe to send again: who finds itself the owner gets a whole lease anew. The fence is written before the lock, so a
-- write that the server refuses leaves no lock behind.
-- @include fence

local K, F, token, lease = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local owner = redis.call('GET', K)
if owner and owner ~= token then
  return {0, redis.call('PTTL', K)}
end
local now, not_after = now_us(), tonumber(ARGV[3])
if not_after > 0 and now > not_after then
  return {-1, now}
end
if owner then
  redis.call('PEXPIRE', K, lease)
  return {1, tonumber(redis.call('GET', F)) or new_fence(F, now, lease)}
end
local fence = new_fence(F, now, lease)
redis.call('SET', K, token, 'PX', lease)
return {1, fence}
