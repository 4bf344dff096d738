-- Inserted at the end of the scripts that touch the queue: writes '' if it has changed.
if is_changed then
  if count == 0 then
    call('DEL', Q)
  else
    call('HSET', Q, '', first .. ' ' .. last .. ' ' .. count .. ' ' .. lives_until)
  end
end
