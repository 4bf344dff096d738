-- Retracts many tokens, each as release.lua does. An error about one does not stop the others.
-- In C (store/redis/codec.h): dibs__codec_retract, dibs__codec_read_retract, dibs__codec_read_retracted
-- KEYS: see keys.lua, three for each lock
-- ARGV: for each lock the token, and then '', or, if waiters must stop leaving the lock to it (surpass.lua), its
-- fence, 0 if none is known
-- Reply: {now (us of the server's clock), then for each lock 1: released; 0: nobody held it; -1: another token does; 3
-- or 2: as 1 or 0, with more to do: the same retraction goes on with that (release_common.lua); or an error}
-- All locks share one budget. Each of them may always go through a few entries, so that no lock waits for another.
-- Safe to send again.
-- @insert keys
-- @insert clock
-- @insert attempt

local function retract(leaving, ended)
  local owner, summary = redis.pcall('GET', K), call('HGET', Q, '')
  local asker, channel, entry
  -- @insert queue
  budget = math.max(budget, 4)
  -- @insert release_common
  if ended then
    -- @insert surpass
  end
  -- @insert settle
  return unfinished and released + 2 or released
end

local reply = {now}
for i = 1, #ARGV / 2 do
  K, F, Q = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  reply[i + 1] = attempt(retract, ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return reply
