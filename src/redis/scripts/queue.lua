-- Inserted into the scripts that touch the queue of a name: what is known of it, once '' was read.
-- Q is a hash. Each who comes has the place behind the last; who leaves, leaves a gap. Where nobody waits, Q is gone.
--   ''    -> "FIRST LAST COUNT UNTIL": the places of the first and of the last, how many wait, and up to when Q lives (s of
--            the server's clock)
--   PLACE -> "NUMBER LEASE SEEN SIZE CHANNELTOKEN": number of the token's last ask, lease in ms, server's time of that ask in
--            us, length of the channel, then channel and token without anything between. A ? instead of the blank behind
--            SIZE: the entry wants no grant, only a hint when K may be free (rule 36)
--   TOKEN -> "PLACE NUMBER"
--
-- These scripts are one long run of statements, put together from included parts, with hardly a function in it: in a script
-- that runs once, it costs more to make a function than to do what the function does.


-- Expects `owner`, who holds the lock (false: nobody), and `summary`, what '' says.
local first, last, count, lives_until, is_changed = '1', '0', 0, '0', false
if summary then
  first, last, count, lives_until = string.match(summary, '^(%d+) (%d+) (%d+) (%d+)$')
  count = tonumber(count)
end

-- The sorted set of those who share K, and how many they are (sharers.lua).
local S, sharers
if owner == 'dibs:shared' then
  -- @insert sharers
end

-- What F holds (nil: not read), the fence of the asker where it was let in from the queue to share K, the lease that this script granted, how many subscribers the channel of the asker has,
-- the error where a write was refused, and whether K is free though live waiters may be left (serve.lua). head_limit: how many may
-- share K, as the live head says that waits for a hint while somebody is asking; nil: it wants K alone, or there is none. quiet:
-- nobody is told that K may be free (rule 42).
local fence_text, my_fence, granted_ms, listeners, failed, unfinished, head_limit, quiet
