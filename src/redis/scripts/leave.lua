-- Inserted where the entry of a token is taken out of the queue. `leaving` is the token, `entry` what Q holds of it.
if entry then
  call('HDEL', Q, string.match(entry, '^%d+'), leaving)
  count, is_changed = count - 1, true
end
