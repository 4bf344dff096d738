-- Inserted into the scripts that go on after an error. Calls f; an error that f raises becomes an error reply.
local function attempt(f, ...)
  local done, result = pcall(f, ...)
  if not done and type(result) ~= 'table' then
    result = redis.error_reply(result)
  end
  return result
end
