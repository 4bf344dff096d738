-- Put before another script, after `local more = N`, while a node of a cluster is taking over the slot of the lock
-- (dibs__script_single_key). Such a node refuses a call with several KEYS if one of them does not exist, and also a
-- command with several keys in a script. So the call names one key; the N others come first in ARGV, and a command
-- about several keys is carried out key by key.

local KEYS, ARGV = {KEYS[1], unpack(ARGV, 1, more)}, {unpack(ARGV, more + 1)}

local function single_key(call)
  return function(name, ...)
    if name ~= 'EXISTS' then
      return call(name, ...)
    end
    local result = 0
    for _, key in ipairs({...}) do
      result = result + call(name, key)
    end
    return result
  end
end

local redis = setmetatable({call = single_key(redis.call), pcall = single_key(redis.pcall), single_key = true}, {__index = redis})
