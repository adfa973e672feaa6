package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
)

const before = plane + `---
apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPolicy
metadata: {name: a, namespace: nvcf}
spec:
  planeRef: {name: llm}
  models:
  - {name: m, algorithm: wait-and-widen, seed: a, cacheAffinityBackendSelectionCount: 1}
  - {name: k, algorithm: random}
`

var after = strings.NewReplacer("seed: a", "seed: b, lastClusterAffinity: true, cacheAffinityWaitMs: 300", "name: k,", "name: l,", "  gateways:", "  rollout: {waveInterval: 1m}\n  gateways:").Replace(before)

const planText = `plane nvcf/llm
note: the times are those of three replicas with 1m30s for each pod

Changes:
  spec.rollout.waveInterval: 5m0s -> 1m0s
  - model "k": algorithm: random
  + model "l": algorithm: random
    model "m": cacheAffinityWaitMs: unset -> 300
    model "m": lastClusterAffinity: unset -> true
    model "m": seed: a -> b

Sessions that move:
  model "m": seed "a" -> "b": every session is placed anew

Restarts:
  Deployment/llm-api-gateway: 1 rollout
  Deployment/llm-request-router: 2 rollouts

Order:
`

func TestPlanBetweenTwoRevisionsOfFiles(t *testing.T) {
	folder(t, map[string]string{"base/x.yaml": before, "head/x.yaml": after})
	r := run(t, "", "plan", "--from", "base", "--to", "head", "--stargate-version", "V3")
	if r.code != 1 || !strings.HasPrefix(r.out, planText) || r.err != "" {
		t.Fatalf("got %d %s\n%s\n--- want\n%s", r.code, r.err, r.out, planText)
	}
	order := strings.TrimPrefix(r.out, planText)
	for i, want := range []string{
		"  1. after 0s, Deployment/llm-request-router: 3 pods, about 4m30s: new configuration: ",
		"  2. after 4m30s, Deployment/llm-api-gateway: 3 pods, about 4m30s: ",
		"  3. after 9m0s, wait 10m0s: the gateways' memory to fill",
		"  4. after 19m0s, Deployment/llm-request-router: 3 pods, about 4m30s: wave 1: lastClusterAffinity of m",
		"  done after about 23m30s",
	} {
		if line := strings.Split(order, "\n")[i]; !strings.HasPrefix(line, want) {
			t.Errorf("line %d: %s", i, line)
		}
	}
}

func TestPlanWithoutAChangeEndsWith0(t *testing.T) {
	folder(t, map[string]string{"base.yaml": before, "head.yaml": strings.Replace(before, "metadata: {name: a,", "metadata: {name: renamed,", 1)})
	for _, to := range []string{"base.yaml", "head.yaml"} {
		r := run(t, "", "plan", "--from", "base.yaml", "--to", to, "--stargate-version", "V1")
		r.check(t, 0, "plane nvcf/llm\nnote: the times are those of three replicas with 1m30s for each pod\n\nNo change.\n\nNo workload restarts.\n", "")
	}
}

func TestPlanSaysWhatElseThereIsToKnow(t *testing.T) {
	bare, policy, _ := strings.Cut(before, "---\n")
	for name, test := range map[string]struct {
		from, to string
		args     []string
		code     int
		want     []string
	}{
		"of a paused plane": {before, strings.Replace(after, "rollout: {", "rollout: {paused: true, ", 1), nil, 1,
			[]string{"note: the plane is paused: this is what happens once it is resumed", "spec.rollout.paused: unset -> true"}},
		"of waves that are judged by metrics": {before, strings.Replace(after, "rollout: {", "rollout: {preflight: true, analysis: {tooFewSamples: Hold}, ", 1), nil, 1,
			[]string{"note: every wave is taken to be found good by its metrics: one that is not is withdrawn by one more rollout, and the plane is Stalled\n",
				"note: the traffic is taken to be enough: a wave with fewer than spec.rollout.analysis.minSamples waits for more\n",
				"the metrics of wave 1", "preflight: a throwaway pod of Deployment llm-request-router loads the file"}},
		"of fields that the release does not know": {before, after, []string{"--stargate-version", "0.18.0"}, 1,
			[]string{`model "m": lastClusterAffinity is left out: it takes Stargate of generation V3`, "Deployment/llm-request-router: 1 rollout\n"}},
		"of a plane that is new": {policy, before, nil, 1,
			[]string{"the plane: unset -> is new", "first configuration"}},
		"of a plane that goes": {before, policy, nil, 1,
			[]string{"the plane: is there -> unset", "note: the plane is deleted: the operator takes its flags", "No workload restarts."}},
		"of a plane with flags that goes": {after, policy, nil, 1,
			[]string{"Deployment/llm-api-gateway: 1 rollout\n  Deployment/llm-request-router: 1 rollout\n", "withdrawing flags", "letting go of Deployment llm-api-gateway"}},
		"of a plane that goes and leaves everything": {strings.Replace(after, "  rollout: {", "  deletionPolicy: Retain\n  rollout: {", 1), policy, nil, 1,
			[]string{"note: the plane is deleted: the operator leaves its workloads as they are\n", "No workload restarts."}},
		"of a paused plane that goes": {strings.Replace(after, "rollout: {", "rollout: {paused: true, ", 1), policy, nil, 1,
			[]string{"note: the plane is deleted: the operator leaves its workloads as they are\n", "No workload restarts."}},
		"of policies without their plane": {policy, strings.Replace(policy, "seed: a", "seed: b", 1), nil, 1,
			[]string{"note: the plane is not in the files, so nothing is said about its workloads", `model "m": seed: a -> b`}},
		"of a policy that goes": {before, bare, nil, 1, []string{`- model "k": algorithm: random`, "power-of-n no longer keeps sessions on their clusters"}},
		"of warnings that are new": {before, strings.Replace(before, "{name: k,", "{name: ' k',", 1), nil, 1,
			[]string{"Warnings:\n  RoutingPolicy nvcf/a: spec.models[1].name: the name has white space at an end"}},
		"of a model that two policies list": {before, before + "---\n" + strings.Replace(strings.Replace(policy, "name: a,", "name: b,", 1), "  - {name: m,", "  - {name: z, algorithm: random}\n  - {name: m,", 1), nil, 1,
			[]string{"policy a lists model \"m\" too"}},
	} {
		t.Run(name, func(t *testing.T) {
			folder(t, map[string]string{"from.yaml": test.from, "to.yaml": test.to})
			r := run(t, "", append([]string{"plan", "--from", "from.yaml", "--to", "to.yaml"}, test.args...)...)
			if r.code != test.code {
				t.Errorf("exit code %d: %s", r.code, r.err)
			}
			for _, want := range test.want {
				if !strings.Contains(r.out, want) {
					t.Errorf("no %q in\n%s", want, r.out)
				}
			}
		})
	}
}

func TestPlanWritesJSON(t *testing.T) {
	folder(t, map[string]string{"from.yaml": before, "to.yaml": after})
	r := run(t, "", "plan", "--from", "from.yaml", "--to", "to.yaml", "--stargate-version", "V3", "-o", "json")
	var got struct {
		Planes []struct {
			Name         string
			Changed      bool
			Changes      []map[string]any
			Events       []map[string]any
			TotalSeconds int
			Settings     []map[string]string
		}
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 1 {
		t.Fatalf("%v: %+v", err, r)
	}
	p := got.Planes[0]
	if p.Name != "llm" || !p.Changed || len(p.Changes) != 5 || len(p.Events) != 4 || p.TotalSeconds != 1410 || p.Settings[0]["path"] != "spec.rollout.waveInterval" {
		t.Errorf("got %+v", p)
	}
}

func TestPlanOfWhatWouldBeRefusedEndsWith2(t *testing.T) {
	folder(t, map[string]string{"good.yaml": before, "bad.yaml": strings.Replace(before, "seed: a", "sampleCount: 2", 1)})
	r := run(t, "", "plan", "--from", "good.yaml", "--to", "bad.yaml", "--stargate-version", "V3")
	if r.code != 2 || r.out != "" || !strings.Contains(r.err, "bad.yaml:16:42: error: ") || !strings.HasSuffix(r.err, "error: 1 error in the files\n") {
		t.Errorf("got %+v", r)
	}
	for name, args := range map[string][]string{
		"nothing to compare":       {},
		"one side only":            {"--from", "good.yaml"},
		"files and a live plane":   {"--from", "good.yaml", "--to", "good.yaml", "-f", "good.yaml"},
		"an output there is not":   {"--from", "good.yaml", "--to", "good.yaml", "-o", "xml"},
		"a cluster that is not it": {"-f", "good.yaml", "--kubeconfig", "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := run(t, "", append([]string{"plan"}, args...)...); r.code != 2 || r.out != "" {
				t.Errorf("got %+v", r)
			}
		})
	}
}
