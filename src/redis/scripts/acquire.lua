-- Asks for the lock.
-- KEYS: see grant.lua
-- ARGV: token, number of this ask among those of the token, lease in ms, the channel to be told of a grant ('': don't
-- queue), not after (us of the server's clock; 0: at any time), and anything at all to leave the lock, if it is free, to
-- who had it: another server, or this one before it was restarted, said so
-- Reply: {1, fence} granted; {0, PTTL, 1: the owner is dibs, subscribers of the channel or -1} taken; {-1, now} too
-- late; {-2, 0} overtaken by a later ask: in both nothing was done
-- Safe to send again: who finds itself the owner gets a whole lease anew, who waits keeps its place.
-- What nobody else wants comes first, before the functions that the rest takes: making them costs more than this.
-- @include grant

if not ARGV[6] and redis.call('EXISTS', K, Q) == 0 then
  local now, not_after = now_us(), tonumber(ARGV[5])
  if not_after == 0 or now <= not_after then
    return {1, grant(ARGV[1], now, ARGV[3])}
  end
end
-- @include ask

return ask(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
