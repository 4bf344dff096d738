-- Inserted at the end of what touches the queue: writes what has changed of ''.
if is_changed then
  if count == 0 then
    call('DEL', Q)
  else
    call('HSET', Q, '', first .. ' ' .. last .. ' ' .. count .. ' ' .. lives_until)
  end
end
