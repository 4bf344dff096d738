-- Retracts many tokens, each as release.lua does. An error about one does not end the others.
-- In C (store/redis/codec.h): dibs__codec_retract, dibs__codec_read_retract, dibs__codec_read_retracted
-- KEYS: see grant.lua, four for each lock
-- ARGV: token of each
-- Reply: {now (us of the server's clock), then for each lock 1: released; 0: nobody held it; -1: another token does; or an
-- error}
-- Safe to send again.
-- @include let_go

local reply = {now_us()}
for i = 1, #ARGV do
  K, F, Q, W = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  local done, result = pcall(let_go, ARGV[i])
  if not done and type(result) ~= 'table' then
    result = redis.error_reply(result)
  end
  reply[i + 1] = result
end
return reply
