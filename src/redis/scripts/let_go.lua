-- Included by the scripts that release. Returns 1: released, and the queue was served; 0: nobody held the lock; -1: another
-- token holds it. An owner has no entry in the queue: every grant takes the entry out, and so does an ask of the owner.
-- @include queue

local function let_go(me)
  local owner = redis.pcall('GET', K)
  if owner == me then
    if not serve(nil) then
      redis.call('DEL', K)
    end
    return 1
  end
  if redis.call('EXISTS', Q) == 1 then
    forget(me)
    if not owner then
      serve(nil)
    end
  end
  return owner and -1 or 0
end
