-- Inserted into the scripts that touch the queue of a name: takes apart what '' says. Q is a hash. A new entry has the
-- place after the last; an entry that leaves leaves a gap. If nobody waits, Q does not exist.
--   ''    -> "FIRST LAST COUNT UNTIL": the places of the first and of the last, how many wait, and until when Q lives
--            (s of the server's clock)
--   PLACE -> "NUMBER LEASE SEEN SIZE CHANNELTOKEN": number of the token's last ask, lease in ms, server's time of that
--            ask in us, length of the channel, then channel and token without anything between. A ? instead of the
--            blank after SIZE: the entry wants no grant, only a hint when K may be free (rule 36). A !: its last
--            ask left a free K to its former owner (rule 13)
--   TOKEN -> "PLACE NUMBER"
--
-- These scripts are one long run of statements, put together from inserted parts, with hardly a function in it: in a
-- script that runs once, making a function costs more than doing what it does.


-- Expects `owner`, who holds the lock (false: nobody), and `summary`, what '' says.
local first, last, count, lives_until, is_changed = '1', '0', 0, '0', false
if summary then
  first, last, count, lives_until = string.match(summary, '^(%d+) (%d+) (%d+) (%d+)$')
  count = tonumber(count)
end

-- The sorted set of those who share K, and their number (sharers.lua).
local S, sharers
if owner == 'dibs:shared' then
  -- @insert sharers
end

-- fence_text: what F holds (nil: not read). my_fence: the fence of the asker, if it was let in from the queue to share
-- K. granted_ms: the lease that this script granted. listeners: how many subscribers the asker's channel has. failed:
-- the error if a write was refused. unfinished: K is free though live waiters may be left (serve.lua). head_limit: how
-- many may share K, as the live first waiter says, which waits for a hint while somebody is asking; nil: it wants K
-- alone, or there is none. quiet: nobody is told that K may be free (rule 42). released: 1 where K was taken from its
-- holder here; see release_common.lua.
local fence_text, my_fence, granted_ms, listeners, failed, unfinished, head_limit, quiet, released
