package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const plane = `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPlane
metadata: {name: llm, namespace: nvcf}
spec:
  stargate:
    workloadRef: {kind: Deployment, name: llm-request-router}
  gateways:
  - workloadRef: {kind: Deployment, name: llm-api-gateway}
`

// policy of one random model that nothing is to be said about.
func policyOf(name, model string) string {
	return "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: " + name + ", namespace: nvcf}\nspec:\n  planeRef: {name: llm}\n  models:\n  - name: " + model + "\n    algorithm: random\n"
}

func TestValidateShowsEveryProblemOfEveryFile(t *testing.T) {
	folder(t, map[string]string{
		"good.yaml":      plane + "---\n" + policyOf("good", "a") + "---\nkind: ConfigMap\napiVersion: v1\n",
		"sub/bad.yaml":   "# models of team x\n" + policyOf("bad", "b") + "    seed: x\n    max_queued: 1\n  - name: c\n    algorithm: wait-and-widen\n    n: 2\n    maxQueueTimeFloorMs: 5\n",
		"sub/broken.yml": "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\n  metadata: x\n",
		"notes.txt":      "routing.nvcf.io",
	})
	const problems = `sub/bad.yaml:10:5: error: RoutingPolicy nvcf/bad: spec.models[0].seed: Invalid value: seed is not supported by algorithm random; supported by: pulsar, pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm
sub/bad.yaml:11:5: error: RoutingPolicy nvcf/bad: spec.models[0].max_queued: unknown field: there is no such field; the one of that name is maxQueued
sub/bad.yaml:14:5: error: RoutingPolicy nvcf/bad: spec.models[1].false: unknown field: there is no such field; YAML reads an unquoted n as false: write "n"
sub/broken.yml:3: error: no YAML: mapping values are not allowed in this context
`
	run(t, "", "validate", "-f", "good.yaml", "-f", "sub").check(t, 1, problems, "1 plane, 2 policies and 3 models in 3 files: 4 errors, 0 warnings\n")
}

func TestObjectsWithoutANamespaceAreTakenForThatOfTheFlag(t *testing.T) {
	text := plane + "---\n" + strings.Replace(policyOf("one", "a"), ", namespace: nvcf", "", 1)
	if r := run(t, text, "validate", "-f", "-", "--strict"); r.code != 1 || !strings.Contains(r.out, "there is no RoutingPlane llm in these files") {
		t.Errorf("without: %+v", r)
	}
	run(t, text, "validate", "-f", "-", "-n", "nvcf", "--strict").check(t, 0, "", "1 plane, 1 policy and 1 model in 1 file: 0 errors, 0 warnings\n")
	if r := run(t, strings.Replace(text, ", namespace: nvcf", "", 1), "render", "-f", "-", "-n", "nvcf", "--stargate-version", "V3"); r.code != 0 || !strings.Contains(r.out, "  namespace: nvcf\n") || strings.Count(r.out, "kind: ConfigMap") != 1 {
		t.Errorf("rendered: %+v", r)
	}
}

func TestAnObjectWithoutVersionOrKindIsNotPassedOver(t *testing.T) {
	noVersion := strings.Replace(policyOf("one", "a"), "apiVersion: routing.nvcf.io/v1alpha1\n", "", 1)
	noKind := strings.Replace(policyOf("one", "a"), "kind: RoutingPolicy\n", "", 1)
	run(t, noVersion+"---\n"+noKind, "validate", "-f", "-").check(t, 1,
		"<stdin>:1:1: error: RoutingPolicy nvcf/one: apiVersion: Required value: write routing.nvcf.io/v1alpha1\n"+
			"<stdin>:9:1: error: nvcf/one: kind: Required value: write RoutingPlane or RoutingPolicy\n",
		"0 planes, 0 policies and 0 models in 1 file: 2 errors, 0 warnings\n")
}

func TestValidateOfGoodFilesIsSilentAndEndsWith0(t *testing.T) {
	run(t, plane+"---\n"+policyOf("good", "a"), "validate", "-f", "-").check(t, 0, "", "1 plane, 1 policy and 1 model in 1 file: 0 errors, 0 warnings\n")
}

func TestValidateShowsWhatObjectsMeanToEachOther(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"two policies that list one model": {
			policyOf("one", "a") + "---\n" + policyOf("two", "a"),
			`<stdin>:16:5: warning: RoutingPolicy nvcf/two: spec.models[0]: policy one lists model "a" too (<stdin>:7); the plane takes it from the policy that has it already, else from the older one: take it out of one of them`,
		},
		"a policy for a plane that is not there": {
			plane + "---\n" + strings.Replace(policyOf("one", "a"), "{name: llm}", "{name: lim}", 1),
			"<stdin>:14:3: warning: RoutingPolicy nvcf/one: spec.planeRef: there is no RoutingPlane nvcf/lim in these files; the policy waits until there is one, correct the reference if it is misspelt",
		},
		"a policy from a namespace that the plane does not take": {
			plane + "---\n" + strings.Replace(strings.Replace(policyOf("one", "a"), "{name: llm}", "{name: llm, namespace: nvcf}", 1), "namespace: nvcf}\nspec", "namespace: team}\nspec", 1),
			"<stdin>:14:3: warning: RoutingPolicy team/one: spec.planeRef: RoutingPlane nvcf/llm takes no policies from namespace team (its spec.allowedPolicies.namespaces.from is Same); have its owner allow the namespace, or move the policy",
		},
		"an object twice": {
			policyOf("one", "a") + "---\n" + policyOf("one", "b"),
			"<stdin>:12:12: warning: RoutingPolicy nvcf/one: metadata.name: the same object stands at <stdin>:3 too; whichever is applied last counts, remove one",
		},
		"two planes of one workload": {
			plane + "---\n" + strings.Replace(strings.Replace(plane, "name: llm,", "name: other,", 1), "llm-api-gateway", "another", 1),
			"<stdin>:15:5: warning: RoutingPlane nvcf/other: spec.stargate.workloadRef: RoutingPlane llm names Deployment llm-request-router too; the one that manages it keeps it and the other waits: take the workload out of one of them",
		},
		"an object of a group that may be misspelt": {
			policyOf("one", "a") + "---\n" + strings.Replace(policyOf("two", "b"), "nvcf.io", "nvfc.io", 1),
			`<stdin>:10: warning: the RoutingPolicy is of apiVersion routing.nvfc.io/v1alpha1, and the operator's is routing.nvcf.io/v1alpha1: it is passed over, correct the group if it is misspelt`,
		},
		"a key twice": {
			policyOf("one", "a") + "    algorithm: random\n",
			`<stdin>:9:5: warning: RoutingPolicy nvcf/one: the key "algorithm" stands in this mapping twice; the last one counts and the other is dropped, remove one`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, test.text, "validate", "-f", "-")
			if r.code != 0 || r.out != test.want+"\n" {
				t.Errorf("exit code %d\n%s--- want\n%s\n%s", r.code, r.out, test.want, r.err)
			}
			if strict := run(t, test.text, "validate", "-f", "-", "--strict"); strict.code != 1 || strict.out != strings.Replace(test.want, ": warning: ", ": error: ", 1)+"\n" {
				t.Errorf("strict: %+v", strict)
			}
		})
	}
}

func TestValidateGroupsWarningsOfOneObject(t *testing.T) {
	text := policyOf("one", "a")
	for _, model := range []string{"b", "c", "d"} {
		text += "  - name: " + model + "\n    algorithm: pulsar\n    rendezvousWeight: last-mean-input-tps\n"
	}
	r := run(t, text, "validate", "-f", "-", "--stargate-version", "V3")
	const want = "<stdin>:9:5: note: RoutingPolicy nvcf/one: spec.models[1].seed (and 2 more): pulsar without a seed is fine, but two planes with the same models rank alike; set a seed of its own on one of them to tell them apart\n"
	if r.code != 0 || r.out != want {
		t.Errorf("got %d\n%s", r.code, r.out)
	}
}

func TestAStrictCheckLetsNotesPass(t *testing.T) {
	requests := strings.Replace(plane, "  gateways:", "    requestAlgorithms:\n    - algorithm: random\n  gateways:", 1)
	const note = `<stdin>:7:5: %s: RoutingPlane nvcf/llm: spec.stargate.requestAlgorithms: newer Stargate builds let function metadata override fields per request (x-routing-method: pulsar;seed=x), so what runs can differ from the file and nothing in the cluster shows it; keep such overrides out of function metadata` + "\n"
	run(t, requests, "validate", "-f", "-", "--strict").check(t, 0, fmt.Sprintf(note, "note"), "1 plane, 0 policies and 0 models in 1 file: 0 errors, 0 warnings, 1 note\n")
	run(t, requests, "validate", "-f", "-", "--strict", "-o", "json", "--stargate-version", "V3").holds(t, 0, `"severity": "note"`, `"notes": 1`, `"warnings": 0`)
	run(t, requests, "validate", "-f", "-", "--strict", "-o", "github").holds(t, 0, "::notice file=<stdin>,line=7,")
}

func TestAPlaneInANamespaceOfOthersIsANote(t *testing.T) {
	text := plane + "---\n" + strings.Replace(policyOf("one", "a"), "{name: llm}", "{name: llm, namespace: platform}", 1)
	r := run(t, text, "validate", "-f", "-", "--strict")
	r.holds(t, 0, "note: RoutingPolicy nvcf/one: spec.planeRef: there is no RoutingPlane platform/llm in these files")
}

func TestAKindOfTheSameNameOfAnotherGroupIsPassedOver(t *testing.T) {
	text := policyOf("one", "a") + "---\n" + strings.Replace(policyOf("two", "b"), "routing.nvcf.io", "policy.example.com", 1)
	run(t, text, "validate", "-f", "-", "--strict").check(t, 0, "", "0 planes, 1 policy and 1 model in 1 file: 0 errors, 0 warnings\n")
}

func TestValidateKnowsTheReleaseThatRuns(t *testing.T) {
	text := policyOf("one", "a") + "  - {name: b, algorithm: wait-and-widen, cacheAffinityBackendSelectionCount: 1, seed: s, cacheAffinityWaitMs: 1}\n"
	for version, want := range map[string]string{
		"0.14.0": "Stargate does not know cacheAffinityWaitMs, which is left out of the file; it takes effect from V1 on",
		"":       "before V1, Stargate does not know cacheAffinityWaitMs",
		"0.18.0": "",
	} {
		r := run(t, text, "validate", "-f", "-", "--stargate-version", version)
		if r.code != 0 || want == "" && r.out != "" || !strings.Contains(r.out, want) {
			t.Errorf("%s: got %+v", version, r)
		}
	}
}

func TestValidateWritesAnnotationsForGitHub(t *testing.T) {
	folder(t, map[string]string{"a,b:100%.yaml": policyOf("one", `"a%\nb"`) + "    n: 1\n    seed: x\n"})
	r := run(t, "", "validate", "-f", "a,b:100%.yaml", "-o", "github")
	const want = "::error file=a%2Cb%3A100%25.yaml,line=9,col=5,title=RoutingPolicy nvcf/one::RoutingPolicy nvcf/one: spec.models[0].false: unknown field: there is no such field; YAML reads an unquoted n as false: write \"n\"\n" +
		"::error file=a%2Cb%3A100%25.yaml,line=10,col=5,title=RoutingPolicy nvcf/one::RoutingPolicy nvcf/one: spec.models[0].seed: Invalid value: seed is not supported by algorithm random; supported by: pulsar, pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm\n"
	r.check(t, 1, want, "")
}

func TestValidateWritesJSON(t *testing.T) {
	r := run(t, policyOf("one", "a")+"    seed: <x>\n", "validate", "-f", "-", "-o", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 1 || r.err != "" {
		t.Fatalf("%v: %+v", err, r)
	}
	problem := got["problems"].([]any)[0].(map[string]any)
	for key, want := range map[string]any{"severity": "error", "file": "<stdin>", "line": 9.0, "column": 5.0, "object": "RoutingPolicy nvcf/one", "path": "spec.models[0].seed"} {
		if problem[key] != want {
			t.Errorf("%s is %v", key, problem[key])
		}
	}
	if s := got["summary"].(map[string]any); s["errors"] != 1.0 || s["models"] != 1.0 || s["policies"] != 1.0 {
		t.Errorf("summary %v", s)
	}
	if good := run(t, policyOf("one", "a"), "validate", "-f", "-", "-o", "json"); !strings.Contains(good.out, `"problems": []`) {
		t.Errorf("got %s", good.out)
	}
}

func TestValidateOfNothingSaysSo(t *testing.T) {
	const message = "no RoutingPlane or RoutingPolicy in 1 file (1 object of others); of folders, the files that end in .yaml, .yml and .json are read\n"
	run(t, "kind: Pod\n", "validate", "-f", "-").check(t, 0, "", "warning: "+message+"0 planes, 0 policies and 0 models in 1 file: 0 errors, 0 warnings\n")
	run(t, "kind: Pod\n", "validate", "-f", "-", "--strict").check(t, 1, "", "error: "+message)
}

func TestValidateWhatCannotBeReadEndsWith2(t *testing.T) {
	for name, args := range map[string][]string{
		"a file that is not there":    {"-f", "nowhere"},
		"no file":                     {},
		"an output that there is not": {"-f", "-", "-o", "xml"},
		"a release that is none":      {"-f", "-", "--stargate-version", "x"},
		"a table that is none":        {"-f", "-", "--stargate-generations", "V1=x"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := run(t, "", append([]string{"validate"}, args...)...); r.code != 2 {
				t.Errorf("got %+v", r)
			}
		})
	}
}
