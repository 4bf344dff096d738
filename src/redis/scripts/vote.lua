-- Looks whether this server may vote as a member of a quorum, and admits it (rule 15).
-- In C (store/redis/codec.h): dibs__codec_vote, dibs__codec_read_vote
-- KEYS: M, the same for all locks: "VOTES_FROM LONGEST SEEN", from when on the server may vote (us of its clock), the
-- longest lease in ms that clients have announced, and a time that the server's clock has shown lately. Absent: the server
-- does not know whether it may vote, because it is new, or lost its data. A clock that is behind SEEN was set back: as long
-- as it is, M counts as absent (rule 52). M lives for 3 days after each look. Once the time has come VOTES_FROM is noted as
-- 0, so that a step of the clock takes the vote from nobody.
-- ARGV: a length of leases in ms, which is announced; '' or, to admit a server that does not know, after how many ms it may
-- vote; not after (us of the server's clock; 0: at any time); optionally any fourth: not a server that does not know, but one
-- that may vote now is to wait so long, because its clock has stepped
-- Reply: {in how many ms the server may vote, 0: now, -1: it does not know; the longest lease; the server's time in us};
-- negative: too late, nothing was done, and the amount is the server's time (us)
-- Safe to send again: who is admitted already, or waits, is not admitted anew.
local call, M = redis.call, KEYS[1]
-- @insert clock

local announced, wait, not_after, life = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), 259200000
if not_after > 0 and now > not_after then
  return -now
end
local from, longest, seen = string.match(call('GET', M) or '', '^(%d+) (%d+) ?(%d*)$')
if now < (tonumber(seen) or 0) then
  from, longest = nil, nil
end
if not from and (wait == '' or ARGV[4]) then
  return {-1, 0, now}
end
if ARGV[4] and tonumber(from) <= now then
  from = nil
end
local votes = string.format('%.0f', from or now + 1000 * wait)
votes = tonumber(votes) <= now and '0' or votes
if votes == from and tonumber(longest) >= announced then
  call('PEXPIRE', M, life)
else
  longest = math.max(longest or 0, announced)
  call('SET', M, votes .. ' ' .. longest .. ' ' .. now_text, 'PX', life)
end
return {math.max(0, math.ceil((votes - now) / 1000)), tonumber(longest), now}
