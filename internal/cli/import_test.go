package cli_test

import (
	"os"
	"strings"
	"testing"
)

const importedPlane = `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPlane
metadata:
  name: llm
  namespace: nvcf
spec:
  stargate:
    workloadRef:
      kind: Deployment
      name: llm-request-router
    container: helm-nvcf-llm-request-router
    defaultAlgorithm: random
  gateways:
  - workloadRef:
      kind: Deployment
      name: llm-api-gateway
    container: helm-nvcf-llm-api-gateway
  lastCluster:
    ttl: 15m0s
  rollout:
    paused: true
`

const importedPolicy = `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPolicy
metadata:
  name: llm
  namespace: nvcf
spec:
  planeRef:
    name: llm
  models:
  - name: m
    algorithm: wait-and-widen
    cacheAffinityWaitMs: 300
`

const importedFile = `{"default": "random", "models": {"m": {"algorithm": "groq-multiregion", "cache_affinity_wait_ms": 300}}}`

func TestImportWritesPlaneAndPolicies(t *testing.T) {
	r := run(t, importedFile, "import", "--lb-config", "-", "-n", "nvcf", "--stargate-version", "0.18.0", "--gateway-env", "STARGATE_LAST_CLUSTER_TTL=15m")
	r.check(t, 0, importedPlane+"---\n"+importedPolicy, "imported 1 model into plane llm and 1 policy\n")
}

func TestImportWritesAFileForEachObject(t *testing.T) {
	folder(t, map[string]string{"lb.json": importedFile})
	r := run(t, "", "import", "--lb-config", "lb.json", "-n", "nvcf", "--gateway-env", "STARGATE_LAST_CLUSTER_TTL=15m", "--out", "a/b")
	r.check(t, 0, "", "note: read as Stargate of the newest generation, V3, reads it; --stargate-version names the one that runs\nimported 1 model into plane llm and 1 policy\n")
	for name, want := range map[string]string{"a/b/plane-llm.yaml": importedPlane, "a/b/policy-llm.yaml": importedPolicy} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}

func TestImportReadsAsStrictlyAsTheReleaseThatRuns(t *testing.T) {
	const values = "llmRequestRouter:\n  image: {tag: %s}\n  loadBalancer:\n    config: '" + importedFile + "'\n"
	const refused = "error: standard input:4: llmRequestRouter.loadBalancer.config, line 1 column 73 of the JSON: model \"m\": Stargate of generation V0 does not start with this file: " +
		"wait-and-widen config does not support field(s): cache_affinity_wait_ms; Stargate takes this file from generation V1 on: if that is what runs, say --stargate-version V1\n"
	for name, test := range map[string]struct {
		tag  string
		args []string
		code int
		err  string
	}{
		"the image's tag in the values":      {"0.14.1", nil, 1, refused},
		"a tag of a later release":           {"0.18.0", nil, 0, "imported 1 model into plane llm and 1 policy\n"},
		"a flag, which wins over the tag":    {"0.14.1", []string{"--stargate-version", "V1"}, 0, "imported 1 model into plane llm and 1 policy\n"},
		"a table of the administrator's own": {"0.14.1", []string{"--stargate-generations", "V0=0.10.0,V1=0.12.0"}, 0, "imported 1 model into plane llm and 1 policy\n"},
		"a release that is not supported": {"0.14.1", []string{"--stargate-version", "0.9.0"}, 2,
			"error: --stargate-version: the operator does not support Stargate 0.9.0: it is older than the first release of its feature table; upgrade Stargate first\n"},
		"a word that is no release": {"0.14.1", []string{"--stargate-version", "latest"}, 2,
			"error: --stargate-version: \"latest\" is neither a release such as 0.18.0 nor a generation from V0 to V3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, strings.ReplaceAll(values, "%s", test.tag), append([]string{"import", "--helm-values", "-"}, test.args...)...)
			if r.code != test.code || r.err != test.err {
				t.Errorf("got %d and %s", r.code, r.err)
			}
		})
	}
}

func TestImportOfValuesWithoutAFile(t *testing.T) {
	r := run(t, "{}", "import", "--helm-values", "-")
	if r.code != 0 || strings.Count(r.out, "- algorithm: ") != 6 || strings.Contains(r.out, "RoutingPolicy") || !strings.Contains(r.err, "the values hold no lb-config.json") {
		t.Errorf("got %+v", r)
	}
	if same := run(t, "", "import", "--without-file"); same.out != r.out {
		t.Errorf("--without-file makes something else:\n%s", same.out)
	}
	r = run(t, "replicaCount: 3", "import", "--helm-values", "-")
	if r.code != 0 || !strings.Contains(r.err, "warning: the values say nothing of a router: there is neither llmRequestRouter nor addons.llm.requestRouter") {
		t.Errorf("values of something else: %+v", r)
	}
	r = run(t, "llmRequestRouter:\n  loadBalancer: {configPath: /etc/x.json}", "import", "--helm-values", "-")
	r.check(t, 1, "", "note: read as Stargate of the newest generation, V3, reads it; --stargate-version names the one that runs\n"+
		"error: standard input:2: the chart passes /etc/x.json as the path of a file that somebody else mounts; read that file from its ConfigMap, and import it with --lb-config\n")
}

func TestImportNamesWhatItsFlagsGetWrong(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		err  string
	}{
		"a name that no object can have": {[]string{"--plane", "LLM"}, `--plane: "LLM" can be no object's name`},
		"a namespace that cannot be":     {[]string{"-n", "LLM platform"}, `--namespace: "LLM platform" can be no namespace's name`},
		"a workload of no kind":          {[]string{"--stargate", "llm-request-router"}, `--stargate: "llm-request-router" names no workload`},
		"a variable of another matter":   {[]string{"--gateway-env", "HOME=x"}, "--gateway-env: HOME is none of the gateways' variables"},
		"two sources":                    {[]string{"--lb-config", "x"}, "[lb-config without-file] were all set"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := run(t, "", append([]string{"import", "--without-file"}, test.args...)...); r.code != 2 || !strings.Contains(r.err, test.err) {
				t.Errorf("got %+v", r)
			}
		})
	}
}
