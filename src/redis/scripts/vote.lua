-- Looks whether this server may vote as a member of a quorum, and admits it (rules 15, 56 and 57).
-- In C (store/redis/codec.h): dibs__codec_vote, dibs__codec_read_vote, DIBS__VOTE_*
-- KEYS: M, the same for all locks: "FROM LONGEST SEEN HIGH FLOOR RUN QUORUM"
--   FROM     from when on the server may vote (us of its clock); 0 once it may, so that a step of the clock does not take
--            the vote from it
--   LONGEST  the longest lease in ms that clients have announced; longer ones are not granted
--   SEEN     a time that the server's clock has shown lately. While the clock is behind it, the clock was set back, and
--            the server counts as one that does not know whether it may vote (rule 52)
--   HIGH     the server has given no fence, and was raised to none, that is larger than both this and its clock
--   FLOOR    each fence that the server gives is larger; -: not known yet, and until then the server may not vote
--   RUN      the run id of the process that wrote the data beside M; -: not known. Another process may have come back
--            with older data
--   QUORUM   the number of the quorum to which the server belongs; 0: not known yet
-- "new MARK RUN": the server does not know whether it may vote, because it is new, or lost its data; MARK is the time
-- (us) of the first look at it (rule 67). A server without M does not know either. M lives for 3 days after each look.
-- ARGV: a length of leases in ms, which is announced; what to do (below); the wait in ms; not after (us of the
-- server's clock; 0: at any time); RUN; QUORUM; the floor, or -; for an admission to a new quorum the MARK that the
-- server must still have, else -
--   look     nothing more
--   admit    a server that does not know may vote after the wait; one that waits longer need not
--   distrust a server that knows must wait from now on, even if it waits already, because its clock has stepped
--   floor    a server whose wait is over is told its floor
-- Reply: {in how many ms the server may vote, 0: now, -1: it does not know, -2: it has the data of an earlier process;
-- the longest lease; the server's time in us; a number that no fence of the server exceeds; 1 if the floor is known;
-- QUORUM; the MARK of a server that does not know, else 0}; negative: too late, nothing was done, and the amount is
-- the server's time (us)
-- Safe to send again: a server that is admitted already, or waits, is not admitted again.
local call, M = redis.call, KEYS[1]
-- @insert clock

local announced, what, wait, not_after, run, quorum, floor, wanted = unpack(ARGV)
if tonumber(not_after) > 0 and now > tonumber(not_after) then
  return -now
end
local text, life, state = call('GET', M) or '', 259200000, 0
local from, longest, seen, high, low, its_run, its_quorum =
  string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%d+)$')
local mark, mark_run = string.match(text, '^new (%d+) (%S+)$')
local fits = not from or its_quorum == '0' or quorum == '0' or its_quorum == quorum
if not from or now < tonumber(seen) then
  state = -1
  if from then
    mark = seen
  elseif not mark or (run ~= mark_run and run ~= '-' and mark_run ~= '-') then
    mark = now_text
    call('SET', M, 'new ' .. mark .. ' ' .. run, 'PX', life)
  end
elseif run ~= its_run and run ~= '-' and its_run ~= '-' then
  state = -2
end
local later = string.format('%.0f', now + 1000 * wait)
local is_meant = (wanted or '-') == '-' or (state == -1 and wanted == mark)
if fits and what == 'admit' and is_meant and (state < 0 or tonumber(from) > tonumber(later)) then
  if state < 0 then
    low, state, seen, its_run = floor, 0, now_text, run
  end
  from = later
elseif state == 0 and what == 'distrust' and tonumber(from) < tonumber(later) then
  from = later
elseif fits and state == 0 and what == 'floor' and tonumber(from) <= now and low == '-' then
  low = floor
end
high = math.max(tonumber(high) or 0, tonumber(low) or 0)
if state == 0 and fits then
  from = tonumber(from) <= now and '0' or from
  its_run = its_run == '-' and run or its_run
  its_quorum = (its_quorum or '0') == '0' and quorum or its_quorum
  longest = math.max(longest or 0, announced)
  call('SET', M, table.concat({from, longest, now_text, string.format('%.0f', high), low, its_run, its_quorum}, ' '), 'PX',
    life)
end
local in_ms = state == 0 and math.max(0, math.ceil((from - now) / 1000)) or state
return {in_ms, tonumber(longest or 0), now, math.max(high, now, tonumber(seen or 0)) + 20000,
  low and low ~= '-' and 1 or 0, tonumber(its_quorum or 0), state == -1 and tonumber(mark) or 0}
