-- Inserted into the scripts that release. Known are `owner` and what '' says of the queue. Sets `released`: 1:
-- released, and the queue was served; 0: nobody held the lock, or others share it; -1: another token holds it. In
-- their replies the scripts add 2 to the first two if the queue was not served to its end (`unfinished`): the client
-- then goes on with a retraction of any token (rule 55). An owner may have an entry in the queue, too: a renewal that
-- restores K takes none out, as at a master of a quorum where the owner waited while the others granted it the lock. If
-- others share K, an entry that is taken out may have kept those behind it waiting, so the queue is served. If K can't
-- be read, the script ends with that error, because the token may hold it; a value of another type is another's.

if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
  return owner
end
released = owner == leaving and 1 or owner and -1 or 0
if released == -1 and count > 0 and type(owner) == 'string' and string.find(owner, '^dibs:.*~%d+$') then
  -- This is allowed when memory is out, and so is what follows (rule 4).
  redis.pcall('ZREM', 'dibs:share' .. string.sub(F, 11), '')
  -- @insert split
end
if owner == 'dibs:shared' then
  local parting = leaving
  -- @insert part
  released = has_parted and 1 or 0
end
if count > 0 then
  local entry = call('HGET', Q, leaving)
  -- @insert leave
end
if released ~= -1 then
  local me
  if not quiet then
    -- @insert serve
  end
  if released == 1 and not owner then
    call('DEL', K)
  end
end
