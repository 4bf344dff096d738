-- Included by the scripts that touch the queue of a name.
-- @include grant

local function forget(token)
  redis.call('ZREM', Q, token)
  redis.call('HDEL', W, token)
end

-- How many subscribers the channel has; -1: the account may not ask.
local function listeners(channel)
  local reply = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return reply.err and -1 or reply[2]
end

-- Tells the waiter: number of the ask, fence, length of the token, then token and K. False: the account may not publish.
local function push(channel, number, fence, token)
  local text = string.format('%s %.0f %d ', number, fence, #token)
  return type(redis.pcall('PUBLISH', channel, text .. token .. K)) == 'number'
end

-- Grants K, which is free or about to be, to the first live waiter in the queue, and tells it, unless that is `me`, which is
-- asking now. A waiter without a subscriber, or whose last ask is older than half of its lease, is taken out (rules 3 and
-- 9). Returns the token and its fence; nil: nobody was granted K. The entry is taken out before K is set: after a first
-- write that is allowed when memory is out, SET is not refused (rule 4).
local function serve(me)
  local now
  local token = redis.call('ZPOPMIN', Q)[1]
  while token do
    now = now or now_us()
    local entry = redis.call('HGET', W, token) or ''
    local number, lease, seen, channel = string.match(entry, '^(%d+) (%d+) (%d+) (.*)$')
    redis.call('HDEL', W, token)
    if token == me then
      return token, grant(token, now, lease)
    end
    if number and now - seen < lease * 500 and listeners(channel) > 0 then
      local fence = grant(token, now, lease)
      if push(channel, number, fence, token) then
        return token, fence
      end
      redis.call('DEL', K)
      return nil
    end
    token = redis.call('ZPOPMIN', Q)[1]
  end
  return nil
end
