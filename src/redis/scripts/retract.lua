-- Retracts many tokens, each as release.lua does. An error about one does not end the others.
-- In C (store/redis/codec.h): dibs__codec_retract, dibs__codec_read_retract, dibs__codec_read_retracted
-- KEYS: see keys.lua, three for each lock
-- ARGV: token of each
-- Reply: {now (us of the server's clock), then for each lock 1: released; 0: nobody held it; -1: another token does; or an
-- error}
-- Safe to send again.
-- @insert keys
-- @insert clock
-- @insert attempt

local function retract(leaving)
  local owner, summary = redis.pcall('GET', K), call('HGET', Q, '')
  local asker, channel, entry
  -- @insert queue
  -- @insert let_go
  -- @insert settle
  return released
end

local reply = {now}
for i = 1, #ARGV do
  K, F, Q = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  reply[i + 1] = attempt(retract, ARGV[i])
end
return reply
