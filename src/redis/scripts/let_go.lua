-- Included by the scripts that release. 1: released, by serving who waits; 0: nobody held it; -1: another does.
-- An owner has no entry in the queue: every grant takes it out, and an ask of the owner does.
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
