package cli_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/internal/render"
)

const flagged = `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPolicy
metadata: {name: flagged, namespace: nvcf}
spec:
  planeRef: {name: llm}
  models:
  - {name: b, algorithm: wait-and-widen, seed: s, cacheAffinityBackendSelectionCount: 1, lastClusterAffinity: true}
  - {name: a, algorithm: wait-and-widen, seed: s, cacheAffinityBackendSelectionCount: 1, lastClusterAffinity: true}
  - {name: c, algorithm: random}
`

const (
	withoutFlags = `{
  "default": "power-of-n",
  "models": {
    "a": {"algorithm":"wait-and-widen","seed":"s","cache_affinity_backend_selection_count":1},
    "b": {"algorithm":"wait-and-widen","seed":"s","cache_affinity_backend_selection_count":1},
    "c": "random"
  }
}
`
	withFlags = `{
  "default": "power-of-n",
  "models": {
    "a": {"algorithm":"wait-and-widen","seed":"s","cache_affinity_backend_selection_count":1,"last_cluster_affinity":true},
    "b": {"algorithm":"wait-and-widen","seed":"s","cache_affinity_backend_selection_count":1,"last_cluster_affinity":true},
    "c": "random"
  }
}
`
)

func TestRenderShowsTheConfigMapsOfAStage(t *testing.T) {
	for name, test := range map[string]struct {
		args      []string
		file      string
		wave      string
		hasMemory bool
	}{
		"the base":                              {[]string{"--stage", "base", "--stargate-version", "V3"}, withoutFlags, "0", false},
		"the gateways' memory":                  {[]string{"--stage", "gateway", "--stargate-version", "V3"}, withoutFlags, "0", true},
		"the end, after two waves":              {[]string{"--stargate-version", "V3"}, withFlags, "2", true},
		"of a release that does not know flags": {[]string{"--stargate-version", "0.18.0"}, withoutFlags, "0", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, plane+"---\n"+flagged, append([]string{"render", "-f", "-"}, test.args...)...)
			if r.code != 0 {
				t.Fatalf("got %+v", r)
			}
			var maps []corev1.ConfigMap
			for text := range strings.SplitSeq(r.out, "---\n") {
				var cm corev1.ConfigMap
				if err := yaml.UnmarshalStrict([]byte(text), &cm); err != nil {
					t.Fatal(err)
				}
				artefact := cm.Labels["routing.nvcf.io/artefact"]
				if cm.Name != render.RevisionName("llm", artefact, cm.Data) || cm.Namespace != "nvcf" || !*cm.Immutable || cm.Labels["app.kubernetes.io/managed-by"] != "routing-operator" {
					t.Errorf("got %+v", cm.ObjectMeta)
				}
				maps = append(maps, cm)
			}
			if got := maps[0].Data["lb-config.json"]; got != test.file || maps[0].Annotations["routing.nvcf.io/wave"] != test.wave {
				t.Errorf("wave %s of\n%s", maps[0].Annotations["routing.nvcf.io/wave"], got)
			}
			if hasMemory := len(maps) == 2 && maps[1].Data["STARGATE_LAST_CLUSTER_ENABLED"] == "true"; hasMemory != test.hasMemory {
				t.Errorf("%d ConfigMaps", len(maps))
			}
			if lost := strings.Contains(r.err, `warning: plane nvcf/llm: model "a": lastClusterAffinity is left out: it takes Stargate of generation V3`); lost == strings.Contains(strings.Join(test.args, " "), "V3") {
				t.Errorf("got %s", r.err)
			}
		})
	}
}

func TestRenderWithoutAGatewaySwitchesNoFlagOn(t *testing.T) {
	bare, _, _ := strings.Cut(plane, "  gateways:")
	r := run(t, bare+"---\n"+flagged, "render", "-f", "-")
	if r.code != 0 || strings.Contains(r.out, "last_cluster_affinity") || strings.Contains(r.out, "---") {
		t.Errorf("got %+v", r)
	}
}

func TestRenderOfPoliciesAloneTakesThePlaneAsItIsByDefault(t *testing.T) {
	r := run(t, policyOf("p", "m"), "render", "-f", "-", "--stargate-version", "V0")
	if r.code != 0 || !strings.Contains(r.out, `"default": "power-of-n"`) || r.err != "note: plane nvcf/llm is not in the files; rendered with the defaults of a plane\n" {
		t.Errorf("got %+v", r)
	}
}

func TestRenderWritesAFileForEachConfigMapWithANameThatStays(t *testing.T) {
	folder(t, map[string]string{"in.yaml": plane + "---\n" + flagged})
	r := run(t, "", "render", "-f", "in.yaml", "--out", "out")
	if r.code != 0 || r.out != "" {
		t.Fatalf("got %+v", r)
	}
	for _, name := range []string{"out/nvcf/llm-stargate.yaml", "out/nvcf/llm-gateway.yaml"} {
		if data, err := os.ReadFile(name); err != nil || !strings.Contains(string(data), "kind: ConfigMap") {
			t.Errorf("%s: %v %s", name, err, data)
		}
	}
}

func TestRenderRefusesWhatTheAPIServerWouldRefuse(t *testing.T) {
	r := run(t, policyOf("p", "m")+"    seed: x\n", "render", "-f", "-")
	if r.code != 1 || r.out != "" || !strings.Contains(r.err, "<stdin>:9:5: error: RoutingPolicy nvcf/p: spec.models[0].seed: ") || !strings.HasSuffix(r.err, "error: 1 error in the files\n") {
		t.Errorf("got %+v", r)
	}
}

func TestRenderOfNothingSaysSo(t *testing.T) {
	t.Chdir(t.TempDir())
	run(t, "", "render", "-f", ".").check(t, 0, "", "warning: no RoutingPlane or RoutingPolicy in 0 files (0 objects of others); of folders, the files that end in .yaml, .yml and .json are read\n")
}
