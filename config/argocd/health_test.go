// Package argocd runs the health check that is given to Argo CD.
package argocd

import (
	_ "embed"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

//go:embed health.lua
var script string

func TestHealthFollowsConditionsOfTheGenerationThatWasApplied(t *testing.T) {
	for name, test := range map[string]struct {
		object, status, message string
	}{
		"an object that the operator has not seen progresses": {
			`{metadata: {generation: 1}, spec: {}}`, "Progressing", "waiting for the operator",
		},
		"a defaulted status is no status": {
			`{metadata: {generation: 1}, status: {observedGeneration: -1}}`, "Progressing", "waiting for the operator",
		},
		"a status of an older generation does not count": {
			`{metadata: {generation: 2}, status: {observedGeneration: 1, conditions: [{type: Ready, status: "True", message: old}]}}`,
			"Progressing", "waiting for the operator",
		},
		"a condition of an older generation does not count": {
			`{metadata: {generation: 2}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True", observedGeneration: 1, message: old}]}}`,
			"Progressing", "waiting for the operator",
		},
		"a ready object is healthy": {
			`{metadata: {generation: 2}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True", observedGeneration: 2, message: settled}]}}`,
			"Healthy", "settled",
		},
		"a rollout progresses and says why": {
			`{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "False", message: not yet},
			  {type: Reconciling, status: "True", message: 1 of 3 pods runs the file}]}}`,
			"Progressing", "1 of 3 pods runs the file",
		},
		"an object that is neither ready nor worked on progresses": {
			`{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [{type: Ready, status: Unknown, message: cannot tell}]}}`,
			"Progressing", "cannot tell",
		},
		"what only a person can mend is degraded": {
			`{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "False", message: not ready},
			  {type: Stalled, status: "True", message: helm owns the mount}]}}`,
			"Degraded", "helm owns the mount",
		},
		"a paused plane with something left to do is suspended": {
			`{metadata: {generation: 1}, spec: {rollout: {paused: true}}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "False", message: would roll out 2 models}]}}`,
			"Suspended", "would roll out 2 models",
		},
		"a paused plane with nothing left to do is healthy": {
			`{metadata: {generation: 1}, spec: {rollout: {paused: true}}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "True", message: settled}]}}`,
			"Healthy", "settled",
		},
		"a pinned plane is suspended, since what Git says has no effect": {
			`{metadata: {generation: 1}, spec: {rollout: {pin: llm-stargate-x}}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "True", reason: Pinned, message: held at llm-stargate-x}]}}`,
			"Suspended", "held at llm-stargate-x",
		},
		"a pinned plane whose flags the site cannot have is suspended too": {
			`{metadata: {generation: 1}, spec: {rollout: {pin: llm-stargate-x}}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "True", reason: FlagsHeld, message: in effect but for flags}]}}`,
			"Suspended", "in effect but for flags",
		},
		"an empty pin is none": {
			`{metadata: {generation: 1}, spec: {rollout: {pin: ""}}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "True", reason: Settled, message: settled}]}}`,
			"Healthy", "settled",
		},
		"a pinned plane on its way there progresses": {
			`{metadata: {generation: 1}, spec: {rollout: {pin: llm-stargate-x}}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "False", reason: RollingOut, message: 1 of 3 pods}, {type: Reconciling, status: "True", message: 1 of 3 pods}]}}`,
			"Progressing", "1 of 3 pods",
		},
		"a policy whose earlier version is kept is suspended": {
			`{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [
			  {type: Ready, status: "False", reason: EarlierVersionKept, message: the change failed},
			  {type: Reconciling, status: "True", message: the change failed}]}}`,
			"Suspended", "the change failed",
		},
		"a plane that is being deleted progresses until the operator has let go": {
			`{metadata: {generation: 3, deletionTimestamp: "2026-05-04T12:00:00Z"}, spec: {}, status: {observedGeneration: 3, conditions: [
			  {type: Ready, status: "False", reason: Deleting, message: being taken out}, {type: Reconciling, status: "True", reason: Deleting, message: being taken out},
			  {type: Stalled, status: "False", reason: Settled, message: ""}]}}`,
			"Progressing", "being taken out",
		},
		"a metadata of another writer without a generation says nothing": {
			`{metadata: {}, status: {observedGeneration: 1, conditions: [{type: Ready, status: "True", message: settled}]}}`,
			"Progressing", "waiting for the operator",
		},
		"a paused plane that is stuck is degraded": {
			`{metadata: {generation: 1}, spec: {rollout: {paused: true}}, status: {observedGeneration: 1, conditions: [
			  {type: Stalled, status: "True", message: no such workload}]}}`,
			"Degraded", "no such workload",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, message := health(t, test.object)
			if status != test.status || message != test.message {
				t.Errorf("got %s: %q, want %s: %q", status, message, test.status, test.message)
			}
		})
	}
}

// health runs the script as Argo CD does: obj is the object, the result a table.
func health(t *testing.T, object string) (status, message string) {
	t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(object), &decoded); err != nil {
		t.Fatal(err)
	}
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", toLua(state, decoded))
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returned %v, not a table", state.Get(-1))
	}
	return lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message"))
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, element := range v {
			table.RawSetString(key, toLua(state, element))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, element := range v {
			table.Append(toLua(state, element))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}
