-- Included by the scripts that grant. F is the fence key: a string, the last fence given for the name.

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The last fence; 0: there is none. What dibs can't have written counts as none (rule 30): no fence reaches 2^53, up to
-- which Lua's numbers are exact.
local function last_fence(F)
  local last = tonumber(redis.call('GET', F))
  return last and last >= 0 and last < 2^53 - 1 and math.floor(last) or 0
end

-- How long F lives, in ms: an hour at least, in case the server's clock is set back in that time. (Also MEMORY_MS in
-- store/redis/renew.c.)
local function fence_life(lease)
  return math.max(3600000, 2 * lease)
end

-- The next fence: larger than the last, and larger than any before a restart that forgot the last.
local function new_fence(F, now, lease)
  local fence = math.max(now, last_fence(F) + 1)
  redis.call('SET', F, string.format('%.0f', fence), 'PX', fence_life(lease))
  return fence
end
