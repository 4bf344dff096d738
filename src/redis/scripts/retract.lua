-- Retracts many tokens: each as release.lua does, whatever becomes of the others.
-- KEYS: see grant.lua, four for each lock
-- ARGV: token of each
-- Reply: {now, then for each lock 1: released; 0: nobody held it; -1: another does; or an error}, now in us of the
-- server's clock
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
