-- Asks for the lock.
-- In C (store/redis/codec.h): dibs__codec_acquire, dibs__codec_read_ask, DIBS__ASK_*
-- KEYS: see grant.lua
-- ARGV: token; number of this ask among those of the token; lease in ms; the channel on which to tell of a grant ('': do not
-- queue); not after (us of the server's clock; 0: at any time); optionally any sixth: if the lock is free, leave it to its
-- former owner, whom another server knew, or this server before it was restarted (rule 13)
-- Reply: {1, fence} granted; {0, PTTL, 1 if the owner is dibs, subscribers of the channel or -1} taken; {-1, now} too
-- late; {-2, 0} overtaken by a later ask of the token. After the last two nothing was done.
-- Safe to send again: an owner that asks gets a whole lease anew, a waiter keeps its place.
-- The case that nobody else wants the lock stands before the functions that the other cases need: making them costs more
-- than this case does.
-- @include grant

if not ARGV[6] and redis.call('EXISTS', K, Q) == 0 then
  local now, not_after = now_us(), tonumber(ARGV[5])
  if not_after == 0 or now <= not_after then
    return {1, grant(ARGV[1], now, ARGV[3])}
  end
end
-- @include ask

return ask(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
