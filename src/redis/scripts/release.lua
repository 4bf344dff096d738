-- Releases the lock, if it is still the token's; retracting an attempt is the same.
-- KEYS: K the lock
-- ARGV: token
-- Reply: {1, now} released; {0, now} nobody holds it; {-1, now} another does; now in us of the server's clock
-- Safe to send again.

local K = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local owner = redis.pcall('GET', K)
if owner == ARGV[1] then
  redis.call('DEL', K)
  return {1, now}
end
return {owner and -1 or 0, now}
