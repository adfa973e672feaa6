package admit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	sigsjson "sigs.k8s.io/json"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/validate/cases"
)

func judge(t testing.TB) *Judge {
	t.Helper()
	j, err := New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// object makes an object of a kind with a spec, a Go value or JSON.
func object(t testing.TB, kind string, spec any) (map[string]any, []byte) {
	t.Helper()
	raw, ok := spec.(string)
	if !ok {
		data, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		raw = string(data)
	}
	data := fmt.Appendf(nil, `{"apiVersion":"routing.nvcf.io/v1alpha1","kind":%q,"metadata":{"name":"n","namespace":"nvcf"},"spec":%s}`, kind, raw)
	return parse(t, data), data
}

func parse(t testing.TB, data []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(data, &o); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return o
}

func texts(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	slices.Sort(all)
	return all
}

// serverOnly is what the API server's own code says, whatever the shape.
func serverOnly(j *Judge, o map[string]any) (unknown []string, errs field.ErrorList) {
	o = runtime.DeepCopyJSON(o)
	k := j.kinds[o["kind"].(string)]
	unknown, errs = metadata(o)
	unknown = append(unknown, pruning.PruneWithOptions(o, k.schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	return unknown, append(errs, k.review(o)...)
}

// The same cases are put to a real API server by test/envtest/crd, with the same answers.
func TestEveryCaseOfARuleIsAnsweredAsTheAPIServerAnswersIt(t *testing.T) {
	j := judge(t)
	check := func(t *testing.T, kind string, spec any, server, library []string) {
		t.Helper()
		o, data := object(t, kind, spec)
		_, errs := serverOnly(j, o)
		want := slices.Sorted(slices.Values(server))
		if got := texts(errs); !slices.Equal(got, want) {
			t.Errorf("the API server's code says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		verdict := j.Review(o, data)
		if refused, want := len(verdict.Errors) > 0, len(server)+len(library) > 0; refused != want || len(verdict.Unknown) > 0 {
			t.Errorf("refused: %t, want %t: %v %v", refused, want, verdict.Errors, verdict.Unknown)
		}
	}
	for _, c := range cases.Policies() {
		t.Run("policy: "+c.Name, func(t *testing.T) {
			spec := cases.ValidPolicy()
			c.Change(&spec)
			check(t, "RoutingPolicy", spec, c.ServerErrors(), c.Errors)
		})
	}
	for _, c := range cases.Planes() {
		t.Run("plane: "+c.Name, func(t *testing.T) {
			spec := cases.ValidPlane()
			c.Change(&spec)
			check(t, "RoutingPlane", spec, c.ServerErrors(), c.Errors)
		})
	}
}

func TestAPolicyOfAnyShapeIsRefusedExactlyWhenTheAPIServersCodeRefusesIt(t *testing.T) {
	j := judge(t)
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(fmt.Sprintf(`{"apiVersion":"routing.nvcf.io/v1alpha1","kind":"RoutingPolicy","metadata":{"name":"n"},"spec":%s}`, drawSpec(t)))
		var o map[string]any
		if err := sigsjson.UnmarshalCaseSensitivePreserveInts(data, &o); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		unknown, errs := serverOnly(j, o)
		verdict := j.Review(o, data)
		if (len(errs) > 0) != (len(verdict.Errors) > 0) || len(unknown) != len(verdict.Unknown) {
			t.Fatalf("%s\nthe API server's code: %v, unknown %v\nhere: %v, unknown %v", data, errs, unknown, verdict.Errors, verdict.Unknown)
		}
	})
}

// values of fields, most of them right for some field.
var values = []string{
	`0`, `1`, `2`, `64`, `65`, `-1`, `2.0`, `2.5`, `1e2`, `9223372036854775807`, `9223372036854775808`, `true`, `false`, `null`, `""`, `"0.5"`, `"1"`, `"2"`, `"-0"`, `".5"`,
	`"ttft"`, `"latency"`, `"max-input-tps"`, `"seed"`, `[]`, `{}`, `[1]`, `{"a":1}`,
}

// drawSpec writes the spec of a policy; every so often something in it has an odd shape.
func drawSpec(t *rapid.T) string {
	odd := func(label, usual string) string {
		if rapid.IntRange(0, 30).Draw(t, label) == 0 {
			return rapid.SampledFrom(values).Draw(t, label+" value")
		}
		return usual
	}
	member := func(members []string, label, key, usual string) []string {
		if rapid.IntRange(0, 40).Draw(t, "without "+label) == 0 {
			return members
		}
		return append(members, fmt.Sprintf("%q:%s", key, odd(label, usual)))
	}
	settings := func(label string) []string {
		algorithm := rapid.SampledFrom(validate.Algorithms()).Draw(t, label+" algorithm")
		members := member(nil, label+" algorithm", "algorithm", fmt.Sprintf("%q", algorithm))
		for _, f := range validate.Fields() {
			if often := map[bool]int{true: 2, false: 60}[f.SupportedBy(algorithm)]; rapid.IntRange(1, often).Draw(t, label+f.Name) != often {
				continue
			}
			members = append(members, fmt.Sprintf("%q:%s", f.Name, odd(label+f.Name, right(t, &f))))
		}
		if rapid.IntRange(0, 60).Draw(t, label+" unknown") == 0 {
			members = append(members, `"max_queued":1`)
		}
		return members
	}
	var models []string
	for i := range rapid.IntRange(0, 3).Draw(t, "models") {
		label := fmt.Sprintf("model %d ", i)
		members := member(settings(label), label+"name", "name", fmt.Sprintf("%q", rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, label+"name")))
		if rapid.Bool().Draw(t, label+"requests") {
			members = append(members, fmt.Sprintf(`"requestAlgorithms":[{%s}]`, strings.Join(settings(label+"request "), ",")))
		}
		models = append(models, "{"+strings.Join(members, ",")+"}")
	}
	members := member(nil, "plane", "planeRef", "{"+strings.Join(member(nil, "plane name", "name", `"llm"`), ",")+"}")
	members = member(members, "all models", "models", "["+strings.Join(models, ",")+"]")
	return odd("spec", "{"+strings.Join(members, ",")+"}")
}

// right is a value that the field takes.
func right(t *rapid.T, f *validate.Field) string {
	s := cases.Full(f.Algorithms[0])
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	return string(fields[f.Name])
}

func TestAllProblemsOfAnObjectAreFoundAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		kind, spec string
		unknown    []string
		errors     []string
	}{
		"beside a value of a wrong type": {
			"RoutingPolicy", `{"planeRef":{"name":"LLM"},"models":[{"name":"m","algorithm":"wait-and-widen","n":"2","maxQueued":-1},{"name":"k","algorithm":"random","n":1}]}`, nil,
			[]string{
				`spec.models[0].maxQueued: Invalid value: -1: maxQueued must be 0 or more`,
				`spec.models[0].n: Invalid value: "string": spec.models[0].n in body must be of type integer: "string"`,
				"spec.models[1].n: Invalid value: n is not supported by algorithm random; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm",
				`spec.planeRef.name: Invalid value: "LLM": must be a name in lower case: letters, digits, '-' and '.', with a letter or digit at both ends`,
			},
		},
		"beside something that is required": {
			"RoutingPolicy", `{"planeRef":{"name":"llm"},"models":[{"algorithm":"wait-and-widen","n":1},{"name":"k","algorithm":"nope"}]}`, nil,
			[]string{
				"spec.models[0].name: Required value",
				`spec.models[1].algorithm: Invalid value: "nope": no such algorithm; there are: power-of-n, pulsar, pulsar-wait-and-widen, random, round-robin, wait-and-widen`,
			},
		},
		"beside an unknown field": {
			"RoutingPolicy", `{"planeRef":{"name":"llm"},"models":[{"name":"m","algorithm":"pulsar","max_queued":1,"sampleCount":2}]}`,
			[]string{"spec.models[0].max_queued: there is no such field; the one of that name is maxQueued"},
			[]string{"spec.models[0].sampleCount: Invalid value: sampleCount is not supported by algorithm pulsar; supported by: power-of-n; remove the field or change the algorithm"},
		},
		"what only the webhook refuses": {
			"RoutingPlane", `{"stargate":{"workloadRef":{"kind":"Deployment","name":"r"},"configPath":"/opt/a/lb-config.json"},"deletionPolicy":""}`, nil,
			[]string{
				`spec.deletionPolicy: Invalid value: "": must be one of: Unwind, Retain`,
				`spec.stargate.configPath: Invalid value: "/opt/a/lb-config.json": configPath must lie in a directory that the operator is allowed to mount over: /etc/routing-operator; choose one there or have the administrator allow this one`,
			},
		},
		"a spec that is none": {
			"RoutingPolicy", `7`, nil, []string{`spec: Invalid value: "integer": spec in body must be of type object: "integer"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			verdict := judge(t).Review(object(t, test.kind, test.spec))
			if got := texts(verdict.Errors); !slices.Equal(got, test.errors) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.errors, "\n"))
			}
			var unknown []string
			for _, u := range verdict.Unknown {
				unknown = append(unknown, u.Path+": "+u.Hint)
			}
			if !slices.Equal(unknown, test.unknown) {
				t.Errorf("unknown %q, want %q", unknown, test.unknown)
			}
		})
	}
}

func TestHintsNameWhatWasMeant(t *testing.T) {
	for path, want := range map[string]string{
		"spec.models[0].max_queue_time_floor_ms": "maxQueueTimeFloorMs",
		"spec.models[0].MaxQueued":               "maxQueued",
		"spec.models[0].request_algorithms":      "requestAlgorithms",
		"spec.models[0].false":                   `write "n"`,
		"spec.models[0].true":                    "put it in quotes",
		"spec.modles":                            "kubectl explain",
	} {
		if got := hint(path); !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestAPlaneHasTheDefaultsOfTheAPI(t *testing.T) {
	verdict := judge(t).Review(object(t, "RoutingPlane", cases.ValidPlane()))
	if len(verdict.Errors) > 0 {
		t.Fatal(verdict.Errors)
	}
	spec := verdict.Plane.Spec
	if spec.Stargate.DefaultAlgorithm != v1alpha1.PowerOfN || spec.Stargate.ConfigPath != "/etc/routing-operator/lb-config.json" || spec.LastCluster.TTL == nil {
		t.Errorf("got %+v", spec)
	}
}

func TestMetadataIsJudgedToo(t *testing.T) {
	const policy = `{"apiVersion":"routing.nvcf.io/v1alpha1","kind":"RoutingPolicy","metadata":%s,"spec":{"planeRef":{"name":"llm"},"models":[]}}`
	for name, test := range map[string]struct{ metadata, want string }{
		"no name":                {`{}`, "metadata.name: Required value: name or generateName is required"},
		"a generated name":       {`{"generateName":"a-"}`, ""},
		"a name in capitals":     {`{"name":"A"}`, `metadata.name: Invalid value: "A"`},
		"a label of no text":     {`{"name":"a","labels":{"x":1}}`, "metadata: Invalid value: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"},
		"a label that is none":   {`{"name":"a","labels":{"x":"a b"}}`, `metadata.labels: Invalid value: "a b"`},
		"a null creation time":   {`{"name":"a","creationTimestamp":null}`, ""},
		"an unknown field":       {`{"name":"a","lables":{}}`, "metadata.lables"},
		"an annotation of dots":  {`{"name":"a","annotations":{"a.b/c":"d"}}`, ""},
		"something else instead": {`[]`, "metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			data := fmt.Appendf(nil, policy, test.metadata)
			verdict := judge(t).Review(parse(t, data), data)
			got := strings.Join(texts(verdict.Errors), "\n")
			for _, u := range verdict.Unknown {
				got += u.Path
			}
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOtherVersionsAndKindsAreRefused(t *testing.T) {
	for data, want := range map[string]string{
		`{"apiVersion":"routing.nvcf.io/v1","kind":"RoutingPolicy"}`:      `apiVersion: Unsupported value: "routing.nvcf.io/v1": supported values: "routing.nvcf.io/v1alpha1"`,
		`{"apiVersion":"routing.nvcf.io/v1alpha1","kind":"RoutngPolicy"}`: `kind: Unsupported value: "RoutngPolicy": supported values: "RoutingPlane", "RoutingPolicy"`,
	} {
		if got := texts(judge(t).Review(parse(t, []byte(data)), []byte(data)).Errors); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q", data, got)
		}
	}
}

func BenchmarkReviewOfAPolicyOf256Models(b *testing.B) {
	spec := cases.ValidPolicy()
	for i := range 256 {
		spec.Models = append(spec.Models, v1alpha1.Model{Name: fmt.Sprint(i), AlgorithmSettings: cases.Full(v1alpha1.PulsarWaitAndWiden)})
	}
	spec.Models = spec.Models[1:]
	j := judge(b)
	o, data := object(b, "RoutingPolicy", spec)
	b.ReportAllocs()
	for b.Loop() {
		if v := j.Review(o, data); len(v.Errors) > 0 {
			b.Fatal(v.Errors)
		}
	}
}
