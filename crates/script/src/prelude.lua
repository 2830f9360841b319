-- The parts of the sandbox that are written in Lua: whatever catches errors.
--
-- `lift` returns the value of an error as a script sees it, and raises it again if the script is aborted.
-- `as_text` does, too, and gives the text of a command's error in place of its table.
local lift, as_text, handler, functions, real, coroutine_depth_max = ...
local pcall, xpcall, resume = pcall, xpcall, coroutine.resume

local function settle(ok, ...)
  if ok then return ok, ... end
  return false, as_text((...))
end

function real.pcall(...)
  return settle(pcall(...))
end

local function settle_lifted(ok, ...)
  if ok then return ok, ... end
  return false, lift((...))
end

function real.xpcall(f, h)
  return settle_lifted(xpcall(f, function(e) return handler(e, h) end))
end

local depth = 0

local function leave(...)
  depth = depth - 1
  return settle_lifted(...)
end

function real.coroutine.resume(co, ...)
  if depth >= coroutine_depth_max then return false, "C stack overflow" end
  depth = depth + 1
  return leave(resume(co, ...))
end

return function(at, on_error)
  depth = 0
  return xpcall(functions[at], on_error)
end
