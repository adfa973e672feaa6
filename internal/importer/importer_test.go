package importer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/importer"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

var generations = []release.Generation{release.V0, release.V1, release.V2, release.V3}

type fileCase struct {
	ID         string         `json:"id"`
	Text       string         `json:"text"`
	AcceptedBy []string       `json:"acceptedBy"`
	Because    lbconfig.Kind  `json:"refusedByV3Because"`
	Stage      lbconfig.Stage `json:"stage"`
	ErrorNames []string       `json:"errorNames"`
}

func cases(t *testing.T) []fileCase {
	t.Helper()
	data, err := os.ReadFile("../lbconfig/testdata/lb-configs.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []fileCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 100 {
		t.Fatalf("only %d cases: the file is not what it was", len(cases))
	}
	return cases
}

// beyond are the accepted cases that import refuses all the same, and the words that say why.
var beyond = map[string]string{
	"probe-array":       "is a JSON array",
	"probe-top-seq":     "is a JSON array",
	"probe-n-big-int64": "a policy holds integers up to 9223372036854775807",
}

func TestEveryRecordedFileIsImportedWithItsMeaningOrRefusedForItsReason(t *testing.T) {
	refused := map[string]bool{}
	for _, c := range cases(t) {
		for _, g := range generations {
			t.Run(c.ID+"/"+g.String(), func(t *testing.T) {
				config, _, err := importer.Read(importer.Text{Name: "f", Data: []byte(c.Text), FirstLine: 1}, g)
				words, isBeyond := beyond[c.ID]
				switch {
				case !slices.Contains(c.AcceptedBy, g.String()):
					checkRefusal(t, c, g, err)
				case isBeyond:
					if err == nil || !strings.Contains(err.Error(), words) {
						t.Fatalf("got %v, want an error with %q", err, words)
					}
					refused[c.ID] = true
				case err != nil:
					t.Fatalf("refused: %v", err)
				default:
					original, err := lbconfig.Read([]byte(c.Text), g)
					if err != nil {
						t.Fatal(err)
					}
					checkMeaning(t, config, original, g)
				}
			})
		}
	}
	if len(refused) != len(beyond) {
		t.Errorf("only %v of the cases that import refuses by itself were met", refused)
	}
}

func checkRefusal(t *testing.T, c fileCase, g release.Generation, err error) {
	t.Helper()
	var cause *lbconfig.Error
	if !errors.As(err, &cause) {
		t.Fatalf("%v (%T) is no refusal of Stargate's", err, err)
	}
	if cause.Place != nil && !strings.Contains(err.Error(), cause.Place.String()) {
		t.Errorf("the message does not name %s: %v", cause.Place, err)
	}
	// An older generation refuses a field that it does not know before it gets to what V3 refuses, and what V3 takes
	// for nothing else.
	unknown := g != release.V3 && cause.Kind == lbconfig.UnsupportedField && cause.Stage == lbconfig.Parse
	if len(c.AcceptedBy) > 0 && !unknown {
		t.Errorf("refused as %s in %s, want a field that %s does not know", cause.Kind, cause.Stage, g)
	}
	if unknown {
		return
	}
	if cause.Kind != c.Because || cause.Stage != c.Stage {
		t.Errorf("refused as %s in %s, want %s in %s", cause.Kind, cause.Stage, c.Because, c.Stage)
	}
	for _, name := range c.ErrorNames {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the message does not name %s: %v", name, err)
		}
	}
}

// checkMeaning goes all the way: objects, YAML, back to objects, and rendered for the same generation.
func checkMeaning(t *testing.T, config render.Config, original *lbconfig.File, g release.Generation) {
	t.Helper()
	for _, split := range []bool{false, true} {
		plane, policies, err := importer.Objects(config, options(split))
		if err != nil {
			t.Fatal(err)
		}
		var back render.Config
		var readPlane v1alpha1.RoutingPlane
		reread(t, plane.GroupVersionKind().Kind, plane.ObjectMeta.Name, plane.Spec, &readPlane)
		back.DefaultAlgorithm, back.RequestAlgorithms = readPlane.Spec.Stargate.DefaultAlgorithm, readPlane.Spec.Stargate.RequestAlgorithms
		for _, policy := range policies {
			var read v1alpha1.RoutingPolicy
			reread(t, policy.Kind, policy.Name, policy.Spec, &read)
			back.Models = append(back.Models, read.Spec.Models...)
		}
		rendered, err := render.LBConfig(back, render.Desired(back), g)
		if err != nil {
			t.Fatal(err)
		}
		if len(rendered.Omitted) > 0 {
			t.Errorf("left out: %v", rendered.Omitted)
		}
		file, err := lbconfig.Read(rendered.Data, g)
		if err != nil {
			t.Fatalf("the rendered file is refused: %v\n%s", err, rendered.Data)
		}
		if !lbconfig.Same(original, file) {
			t.Errorf("another meaning (split %t):\n%s", split, rendered.Data)
		}
	}
}

func options(split bool) importer.Options {
	return importer.Options{
		Plane: "llm", Namespace: "nvcf", Policy: "models", Split: split,
		Stargate: v1alpha1.StargateSpec{WorkloadRef: v1alpha1.WorkloadReference{Kind: "Deployment", Name: "router"}},
	}
}

// reread writes an object and reads it as kubectl and the API server do.
func reread(t *testing.T, kind, name string, spec, into any) {
	t.Helper()
	object := v1alpha1.RoutingPlane{}
	object.Name, object.Namespace = name, "nvcf"
	data, err := importer.YAML(v1alpha1.GroupVersion.WithKind(kind), object.ObjectMeta, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
}

func TestWarningsSayWhatStargateDropsInSilenceAndWhere(t *testing.T) {
	const file = `{
 "request_algorithms": {"power-of-two": "power-of-two", "powerOf2": "powerOf2"},
 "models": {
  "a": {"algorithm": "wait-and-widen", "n": 1, "n": 3},
  "a": {"algorithm": "random", "request_algorithms": {"pulsar": {"algorithm": "pulsar", "request_algorithms": {"random": "random"}}}},
  "": "random"
 }
}`
	_, warnings, err := importer.Read(importer.Text{Name: "lb.json", Data: []byte(file), FirstLine: 1}, release.V3)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`lb.json:2:57: request algorithm power-of-n of the plane: "power-of-two" and "powerOf2" are one algorithm`,
		`lb.json:4:48: model "a": the key "n" stands here again`,
		`lb.json:5:3: model "a": the key "a" stands here again`,
		`lb.json:5:89: request algorithm pulsar of model "a": request algorithms do not nest`,
		`lb.json:6:3: model "": no request can have an empty model ID`,
	}
	for i, warning := range warnings {
		if i >= len(want) || !strings.HasPrefix(warning, want[i]) {
			t.Errorf("warning %d: %s", i, warning)
		}
	}
	if len(warnings) != len(want) {
		t.Errorf("%d warnings, want %d", len(warnings), len(want))
	}
}

func TestARefusedNewerFieldSaysWhichGenerationTakesIt(t *testing.T) {
	_, _, err := importer.Read(importer.Text{Name: "f", Data: []byte(`{"models":{"a":{"algorithm":"pulsar","rendezvous_weight":"max-input-tps"}}}`), FirstLine: 1}, release.V0)
	const want = `f:1:38: model "a": Stargate of generation V0 does not start with this file: pulsar config does not support field(s): rendezvous_weight; ` +
		`Stargate takes this file from generation V2 on: if that is what runs, say --stargate-version V2`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestWhatIsMistakenForTheFileIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"\xef\xbb\xbf{}": "save it as UTF-8 without one", "\xff\xfe{}": "the file is UTF-16", "\xfe\xff{}": "the file is UTF-16",
		"apiVersion: v1\nkind: ConfigMap\n":                          "this is a ConfigMap, not the file in it",
		"{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"ConfigMap\"\n}": `-o jsonpath='{.data.lb-config\.json}'`,
	} {
		_, _, err := importer.Read(importer.Text{Name: "f", Data: []byte(text), FirstLine: 1}, release.V3)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestANameAsAnObjectIsRefusedWithAClearWord(t *testing.T) {
	_, _, err := importer.Read(importer.Text{Name: "f", Data: []byte(`{"default":{"random":null}}`), FirstLine: 1}, release.V3)
	if err == nil || !strings.Contains(err.Error(), "write the name as a string") {
		t.Errorf("got %v", err)
	}
}

func TestANumberLongerThanAPolicyTakesKeepsItsValue(t *testing.T) {
	long := "0." + strings.Repeat("3", 60)
	text := fmt.Sprintf(`{"models":{"a":{"algorithm":"wait-and-widen","next_bucket_unlock_factor":%s}}}`, long)
	config, _, err := importer.Read(importer.Text{Name: "f", Data: []byte(text)}, release.V3)
	if err != nil {
		t.Fatal(err)
	}
	if got := *config.Models[0].NextBucketUnlockFactor; got != "0.3333333333333333" {
		t.Errorf("got %s", got)
	}
}

func TestTextsBeyondTheLimitsOfTheAPIAreRefusedWithThePlace(t *testing.T) {
	text := fmt.Sprintf(`{"models":{"a":{"algorithm":"pulsar","seed":%q}}}`, strings.Repeat("s", 1025))
	config, _, err := importer.Read(importer.Text{Name: "f", Data: []byte(text)}, release.V3)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = importer.Objects(config, options(false))
	if err == nil || !strings.Contains(err.Error(), `policy models, which begins with model "a", would not be accepted: spec.models[0].seed: Too long`) {
		t.Errorf("got %v", err)
	}
}

func TestPoliciesAreAsManyAsItTakes(t *testing.T) {
	models := func(n int) (list []v1alpha1.Model) {
		for i := range n {
			list = append(list, v1alpha1.Model{Name: fmt.Sprintf("m-%03d", i), AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}})
		}
		return list
	}
	named := func(names ...string) (list []v1alpha1.Model) {
		for _, name := range names {
			list = append(list, v1alpha1.Model{Name: name, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}})
		}
		return list
	}
	for name, test := range map[string]struct {
		models []v1alpha1.Model
		split  bool
		want   []string
	}{
		"no model is no policy":               {nil, false, nil},
		"256 models fit one policy":           {models(256), false, []string{"models"}},
		"257 models take two":                 {models(257), false, []string{"models-1", "models-2"}},
		"split makes one for each model":      {named("Qwen2.5:7b", "meta/llama"), true, []string{"models-qwen2-5-7b", "models-meta-llama"}},
		"split tells alike model IDs apart":   {named("a/b", "a.b"), true, []string{"models-a-b-c14cddc0", "models-a-b-2e7336dc"}},
		"split names what has no letter":      {named("", "模型"), true, []string{"models-e3b0c442", "models-c98e118e"}},
		"split cuts what is too long to read": {named(strings.Repeat("x", 300)), true, []string{"models-" + strings.Repeat("x", 100)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, policies, err := importer.Objects(render.Config{Models: test.models}, options(test.split))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			total := 0
			for _, policy := range policies {
				got = append(got, policy.Name)
				total += len(policy.Spec.Models)
			}
			if !slices.Equal(got, test.want) || total != len(test.models) {
				t.Errorf("got %d models in %q, want %d in %q", total, got, len(test.models), test.want)
			}
		})
	}
}

func TestARouterWithoutAFileLetsARequestChooseAnyAlgorithm(t *testing.T) {
	config := importer.WithoutFile()
	if config.DefaultAlgorithm != v1alpha1.PowerOfN || len(config.RequestAlgorithms) != 6 || len(config.Models) != 0 {
		t.Errorf("got %+v", config)
	}
}

func TestTextsThatYAMLTakesForSomethingElseStayTexts(t *testing.T) {
	for _, text := range []string{"yes", "on", "n", "1e3", "0x10", "010", "null", "~", "1:30", "2024-01-01", " a ", "a: b", "#a", "- a", "\t", "é\n\u2028", "\u0000", "!x", "*x", "&x", "{", "%a", "'", `"`, "1_000", ".5"} {
		model := v1alpha1.Model{Name: text, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Pulsar, Seed: &text}}
		var read v1alpha1.RoutingPolicy
		reread(t, "RoutingPolicy", "p", v1alpha1.RoutingPolicySpec{Models: []v1alpha1.Model{model}}, &read)
		if read.Spec.Models[0].Name != text || *read.Spec.Models[0].Seed != text {
			t.Errorf("%q came back as %q and %q", text, read.Spec.Models[0].Name, *read.Spec.Models[0].Seed)
		}
	}
}
