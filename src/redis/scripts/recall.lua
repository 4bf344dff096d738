-- Inserted where an ask finds that `owner` has the lock, and its token ends in !: its process may keep the lease
-- though nobody uses it. That process is told that somebody asks, by a push to its token with number and fence 0 on
-- its runtime's channel. It is not told if it has said that the lease is in use (renew.lua) and so will be released
-- anyway. Sets is_dibs to 2 if it was told.
local runtime = string.match(owner, '^dibs:.*:(%x+):%x+!$')
if runtime and redis.pcall('GET', 'dibs:kept' .. string.sub(F, 11)) ~= '-' .. owner then
  redis.pcall('PUBLISH', 'dibs:' .. runtime, '0 0 ' .. #owner .. ' ' .. owner .. K)
  is_dibs = 2
end
