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
if obj.spec ~= nil and obj.spec.rollout ~= nil and obj.spec.rollout.paused and not is("Ready") then
  local message = conditions.Ready and conditions.Ready.message or "spec.rollout.paused is true"
  return {status = "Suspended", message = message}
end
local ready = conditions.Ready
-- Pinned: the plane holds an earlier revision. EarlierVersionKept: so does the policy, whose change failed, or whose plane
-- is pinned. Nothing of what Git says is under way then.
if ready ~= nil and (ready.reason == "Pinned" or ready.reason == "EarlierVersionKept") then
  return {status = "Suspended", message = ready.message}
end
if is("Ready") then
  return {status = "Healthy", message = conditions.Ready.message}
end
local reason = is("Reconciling") and conditions.Reconciling or conditions.Ready
if reason == nil then
  return waiting
end
return {status = "Progressing", message = reason.message}
