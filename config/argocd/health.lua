-- Health of RoutingPlane and RoutingPolicy from their kstatus conditions. A status that speaks of an older
-- generation says nothing of what was applied.
local waiting = {status = "Progressing", message = "waiting for the operator"}

local status = obj.status
if status == nil or status.conditions == nil then
  return waiting
end
if status.observedGeneration ~= obj.metadata.generation then
  return waiting
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  local stale = condition.observedGeneration ~= nil and condition.observedGeneration ~= obj.metadata.generation
  if not stale then
    conditions[condition.type] = condition
  end
end
local function is(kind)
  return conditions[kind] ~= nil and conditions[kind].status == "True"
end

if is("Stalled") then
  return {status = "Degraded", message = conditions.Stalled.message}
end
-- Nothing of what Git says is under way where the plane is paused with something to do, where it holds an earlier revision,
-- and where a policy is kept at an earlier version because its change failed or its plane is pinned.
local rollout = obj.spec ~= nil and obj.spec.rollout or {}
local paused = rollout.paused and not is("Ready")
local pinned = rollout.pin ~= nil and rollout.pin ~= "" and is("Ready")
local kept = conditions.Ready ~= nil and conditions.Ready.reason == "EarlierVersionKept"
if paused or pinned or kept then
  local message = conditions.Ready and conditions.Ready.message or "spec.rollout.paused is true"
  return {status = "Suspended", message = message}
end
if is("Ready") then
  return {status = "Healthy", message = conditions.Ready.message}
end
local reason = is("Reconciling") and conditions.Reconciling or conditions.Ready
if reason == nil then
  return waiting
end
return {status = "Progressing", message = reason.message}
