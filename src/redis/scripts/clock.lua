-- Inserted into the scripts that need the server's time in us: as a number, and as text. Wherever a grant needs text
-- it is joined with `..`, because string.format costs several times as much.
local time = call('TIME')
local now, us = time[1] * 1000000 + time[2], time[2]
local now_text = time[1] .. (#us == 6 and us or string.sub('00000' .. us, -6))
