package simulate

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/routing"
)

func TestBadFilesAreRefusedWithFileFieldAndWhatIsAllowed(t *testing.T) {
	site := func(yaml string) error { _, err := ReadSite([]byte(yaml), "f"); return err }
	workload := func(yaml string) error { _, err := ReadWorkload([]byte(yaml), "f"); return err }
	trace := func(lines string) error { _, err := ReadTrace(strings.NewReader(lines), "f"); return err }
	tests := []struct {
		name string
		got  error
		want string
	}{
		{"no YAML", site("a: [b"), "reading the site: f: not valid YAML: line 1: did not find expected ',' or ']'"},
		{"a key twice", site("replicas: 1\nreplicas: 2"), `reading the site: f: not valid YAML: unmarshal errors:
  line 2: key "replicas" already set in map`},
		{"a second document", site("replicas: 1\n---\n# no more\n---\nreplicas: 2"), "reading the site: f: more than one YAML document; put everything into one"},
		{"a list for everything", site("- replicas"), "reading the site: f: is a list; must be a mapping"},
		{"an unknown field", site("router: 1"), "reading the site: f: router: unknown field; allowed here: replicas, statisticsInterval, gateway, clusters"},
		{"an unknown field of a moment", site("clusters: [{name: a, timeline: [{at: 1s, down: true}]}]"),
			"reading the site: f: clusters[0].timeline[0].down: unknown field; allowed here: at, slotsTaken, up, prefillFactor"},
		{"a text for a number", site("clusters: [{name: a, slots: many}]"), "reading the site: f: clusters.slots: is a text; must be a whole number within the range of int"},
		{"a fraction for a whole number", site("replicas: 1.5"), "reading the site: f: replicas: is number 1.5; must be a whole number within the range of int"},
		{"a list for a mapping", site("gateway: []"), "reading the site: f: gateway: is a list; must be a mapping"},
		{"a number for a duration", site("clusters: [{name: a, rtt: 5}]"),
			`reading the site: f: clusters[0].rtt: Invalid value: 5: must be a duration with a unit, such as 300ms, 2s or 10m`},
		{"a malformed and a negative duration, and a number out of range", site("{statisticsInterval: soon, clusters: [{name: a, rtt: -1s, slots: 0}]}"),
			`reading the site: f: statisticsInterval: Invalid value: "soon": must be a duration with a unit, such as 300ms, 2s or 10m
f: clusters[0].slots: Invalid value: 0: must be from 1 to 1048576
f: clusters[0].rtt: Invalid value: "-1s": must be from 0s to 500h0m0s`},
		{"a cluster without a name and one twice", site("clusters: [{slots: 1}, {name: a, count: 2}, {name: a-2}]"),
			`reading the site: f: clusters[0].name: Required value: the cluster ID
f: clusters[2].name: Duplicate value: "a-2"`},
		{"a timeline out of order", site("clusters: [{name: a, timeline: [{at: 2s}, {at: 1s}]}]"), `reading the site: f: clusters[0].timeline[1].at: Invalid value: "1s": must be from 2s to 500h0m0s`},
		{"a period that is too short", site("clusters: [{name: a, timelinePeriod: 2s, timeline: [{at: 2s}]}]"),
			`reading the site: f: clusters[0].timelinePeriod: Invalid value: "2s": must be longer than the time of the last entry of timeline, 2s`},
		{"a period without end", site("clusters: [{name: a, timelinePeriod: 1ns}]"), `reading the site: f: clusters[0].timelinePeriod: Invalid value: "1ns": must be from 1ms to 500h0m0s`},
		{"more sessions than time has room for", workload("traffic: [{sessionsPerSecond: 1000, rate: [{at: 0s, factor: 1000}, {at: 1s, factor: 1001}]}]"),
			"reading the workload: f: traffic[0].rate[1].factor: Invalid value: 1001: makes 1.001e+06 sessions per second; must not make more than 1e+06"},
		{"an unknown field of a workload", workload("traffic: [{hotSet: {zipf: 1}}]"), "reading the workload: f: traffic[0].hotSet.zipf: unknown field; allowed here: share, keys, exponent, prefixTokens"},
		{"an unknown arrival process", workload("traffic: [{arrivals: bursty}]"), `reading the workload: f: traffic[0].arrivals: Unsupported value: "bursty": supported values: "poisson", "even"`},
		{"a model twice, a share above 1, a rate without factor", workload("traffic: [{model: a, keylessShare: 2}, {model: a, rate: [{at: 1s}]}]"),
			`reading the workload: f: traffic[0].keylessShare: Invalid value: 2: must be from 0 to 1
f: traffic[1].rate[0].factor: Required value: the number that sessionsPerSecond is multiplied with
f: traffic[1].model: Duplicate value: "a"`},
		{"not a number", workload("traffic: [{prefixReuse: .nan}]"), "reading the workload: f: not valid YAML: json: unsupported value: NaN"},
		{"an empty trace", trace("\n"), `reading the trace: f: no request in it; write one JSON object a line, such as {"time": 0.5, "session": "s1", "model": "m", "inputTokens": 900, "outputTokens": 200}`},
		{"an unknown field of a trace", trace(`{"tokens": 1}`), `reading the trace: f: line 1: unknown field "tokens"; allowed: time, session, model, inputTokens, outputTokens, affinityKey, reusableTokens, sharedTokens`},
		{"a trace that is no JSON", trace(`time=1`), `reading the trace: f: line 1: not valid JSON: invalid character 'i' in literal true (expecting 'r')`},
		{"a trace with a text for a number", trace(`{"time": "0"}`), "reading the trace: f: line 1: time: is a text; must be a number"},
		{"a trace of texts", trace(`"s"`), "reading the trace: f: line 1: is a text; must be a mapping"},
		{"a trace with a fraction of a token", trace(`{"time": 0, "inputTokens": 1.5}`), "reading the trace: f: line 1: inputTokens: is number 1.5; must be a whole number within the range of int64"},
		{"a trace in one long line", trace("\n" + strings.Repeat("x", 1<<20+1)), "reading the trace: f: line 2: longer than 1048576 bytes; write one JSON object a line"},
		{"a trace with the time of a clock", trace(`{"time": 1.7e9, "session": "s", "model": "m", "inputTokens": 1, "outputTokens": 1}`),
			"reading the trace: f: line 1: time: 1.7e+09: must be from 0 to 1.8e+06 seconds from the beginning of the trace"},
		{"a trace out of order", trace(`{"time": 2, "session": "s", "model": "m", "inputTokens": 1, "outputTokens": 1}

{"time": 1, "session": "s", "model": "m", "inputTokens": 1, "outputTokens": 1}`), "reading the trace: f: line 3: time: 1s is before the line above it; sort the trace by time"},
		{"a trace without time", trace(`{"session": "s", "model": "m", "inputTokens": 1, "outputTokens": 1}`), "reading the trace: f: line 1: time: required, the time of arrival in seconds"},
		{"a trace without output", trace(`{"time": 0, "session": "s", "model": "m", "inputTokens": 1}`), "reading the trace: f: line 1: outputTokens: 0: must be from 1 to 1099511627776"},
		{"more reusable than input tokens", trace(`{"time": 0, "session": "s", "model": "m", "inputTokens": 1, "outputTokens": 1, "reusableTokens": 2}`), "reading the trace: f: line 1: reusableTokens: 2: must be from 0 to inputTokens, 1"},
		{"shared tokens without a key", trace(`{"time": 0, "session": "s", "model": "m", "inputTokens": 1, "outputTokens": 1, "affinityKey": "", "sharedTokens": 1}`),
			"reading the trace: f: line 1: sharedTokens: tokens are shared by the sessions of an affinity key, and affinityKey is empty"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.got == nil || test.got.Error() != test.want {
				t.Errorf("error %v\n want %s", test.got, test.want)
			}
		})
	}
}

func TestATraceFillsInWhatIsLeftOut(t *testing.T) {
	got, err := ReadTrace(strings.NewReader(`{"time": 0.25, "session": "s", "model": "m", "inputTokens": 100, "outputTokens": 50}
{"time": 1e1, "session": "s", "model": "m", "inputTokens": 400, "outputTokens": 1, "affinityKey": "k", "sharedTokens": 7}
{"time": 10, "session": "s", "model": "m", "inputTokens": 30, "outputTokens": 1, "affinityKey": ""}
`), "f")
	want := []TraceRequest{
		{Time: 250 * time.Millisecond, Session: "s", Model: "m", AffinityKey: "s", InputTokens: 100, OutputTokens: 50},
		{Time: 10 * time.Second, Session: "s", Model: "m", AffinityKey: "k", InputTokens: 400, OutputTokens: 1, ReusableTokens: 150, SharedTokens: 7},
		{Time: 10 * time.Second, Session: "s", Model: "m", InputTokens: 30, OutputTokens: 1, ReusableTokens: 30},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v\nwant %+v", got, err, want)
	}
}

func TestWhatFollowsAnEmptySeparatorIsNoSecondDocument(t *testing.T) {
	for _, yaml := range []string{"# A site.\n---\nreplicas: 2\n", "---\nreplicas: 2\n---\n", "replicas: 2\n...\n"} {
		if s, err := ReadSite([]byte(yaml), "f"); err != nil || *s.Replicas != 2 {
			t.Errorf("%q: %v", yaml, err)
		}
	}
}

func TestSamplesAreRead(t *testing.T) {
	for kind, read := range map[string]func(name string, data []byte) error{
		"sites":     func(name string, data []byte) error { _, err := ReadSite(data, name); return err },
		"workloads": func(name string, data []byte) error { _, err := ReadWorkload(data, name); return err },
		"policies": func(name string, data []byte) error {
			_, err := ReadPolicies(name, manifestsOf(t, string(data)))
			return err
		},
	} {
		names, err := filepath.Glob(filepath.Join(samples, kind, "*.yaml"))
		if err != nil || len(names) == 0 {
			t.Errorf("no sample %s: %v", kind, err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err == nil {
				err = read(name, data)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	var check func(path string, typ reflect.Type)
	check = func(path string, typ reflect.Type) {
		for _, f := range fieldsOf(typ) {
			name := strings.TrimPrefix(path+"."+f.name, ".")
			if !strings.Contains(string(data), "`"+name+"`") {
				t.Errorf("docs/simulation.md does not tell of `%s`", name)
			}
			if f.typ != reflect.TypeFor[*Duration]() && f.typ != reflect.TypeFor[Duration]() {
				check(name, f.typ)
			}
		}
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Site](), reflect.TypeFor[Workload](), reflect.TypeFor[traceLine]()} {
		check("", typ)
	}
}

const plane = `---
# The plane.
apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPlane
metadata: {name: plane, namespace: ns}
spec:
  stargate:
    workloadRef: {kind: Deployment, name: r}
    configPath: /srv/stargate/lb-config.json
    defaultAlgorithm: random
    requestAlgorithms: [{algorithm: wait-and-widen, lastClusterAffinity: false}]
`

func TestPoliciesThatAreRefused(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"nothing in the file", "# empty\n", "reading policies: no RoutingPolicy and no RoutingPlane of routing.nvcf.io/v1alpha1 in p; name a file that holds one"},
		{"an unknown field", strings.Replace(policyOf("algorithm: random"), "planeRef", "plane", 1),
			"reading policies: <stdin>:1: spec.plane: unknown field; allowed here: planeRef, models"},
		{"a bare n", policyOf("algorithm: wait-and-widen, n: 3"), `reading policies: <stdin>:1: spec.models[0].false: unknown field; a bare n or y is a truth value to YAML, so write it in quotes`},
		{"a key twice", policyOf("algorithm: random, algorithm: pulsar"), `reading policies: <stdin>:7: the key "algorithm" stands in this mapping twice; remove one`},
		{"no YAML", "# A policy of routing.nvcf.io.\na: [", "reading policies: <stdin>:2: no YAML: did not find expected node content"},
		{"another version", strings.Replace(policyOf("algorithm: random"), "v1alpha1", "v1", 1), `reading policies: <stdin>:1: apiVersion: "routing.nvcf.io/v1": must be routing.nvcf.io/v1alpha1`},
		{"an unknown kind", "apiVersion: routing.nvcf.io/v1alpha1\nkind: Policy", `reading policies: <stdin>:1: kind: "Policy": must be RoutingPolicy or RoutingPlane`},
		{"two policies for a model", policyOf("algorithm: random") + "---\n" + policyOf("algorithm: pulsar"),
			`reading policies: <stdin>:9: spec.models[0].name: model "m" is in <stdin>:1 already; give the alternative with --compare`},
		{"two planes", plane + plane, "reading policies: <stdin>:14: a second RoutingPlane, ns/plane beside ns/plane; simulate one plane at a time"},
		{"a policy of another plane", strings.Replace(policyOf("algorithm: random"), "name: plane", "name: other", 1) + plane,
			"reading policies: RoutingPolicy ns/p is on plane ns/other, and the plane in the files is ns/plane; simulate one plane at a time"},
		{"what validation refuses", policyOf("algorithm: random, seed: s"),
			`reading policies: <stdin>:1: spec.models[0].seed: Invalid value: seed is not supported by algorithm random; supported by: pulsar, pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadPolicies("p", manifestsOf(t, test.yaml))
			if err == nil || err.Error() != test.want {
				t.Errorf("error %v\n want %s", err, test.want)
			}
		})
	}
}

func TestPoliciesInAListAsKubectlGetsThem(t *testing.T) {
	var list strings.Builder
	list.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for _, item := range []string{policyOf("algorithm: random"), plane} {
		item = strings.TrimPrefix(item, "---\n# The plane.\n")
		list.WriteString("- " + strings.ReplaceAll(strings.TrimSuffix(item, "\n"), "\n", "\n  ") + "\n  status: {observedGeneration: 1}\n")
	}
	v := variantsOf(t, list.String())[0]
	if v.Plane.Models["m"].Algorithm != v1alpha1.Random || v.Plane.Default != v1alpha1.Random {
		t.Errorf("read %+v", v.Plane)
	}
}

// flags of a variant: the model's own, its request algorithm's and the plane's.
func flags(v Variant) [3]bool {
	m := v.Plane.Models["m"]
	return [3]bool{m.LastClusterAffinity, m.RequestAlgorithms[v1alpha1.PulsarWaitAndWiden].LastClusterAffinity, v.Plane.RequestAlgorithms[v1alpha1.WaitAndWiden].LastClusterAffinity}
}

func TestVariantsHaveTheFlagOffAndOnWhereverItIsSet(t *testing.T) {
	type variant struct {
		name    string
		flags   [3]bool
		written bool
	}
	tests := []struct {
		name, yaml string
		want       []variant
	}{
		{"no flag", policyOf("algorithm: wait-and-widen"), []variant{{"p", [3]bool{}, true}}},
		{"a flag that is on", policyOf("algorithm: wait-and-widen, lastClusterAffinity: true"),
			[]variant{{"p, flag off", [3]bool{}, false}, {"p, flag on", [3]bool{true}, true}}},
		{"a flag that is off", policyOf("algorithm: wait-and-widen, lastClusterAffinity: false"),
			[]variant{{"p, flag off", [3]bool{}, true}, {"p, flag on", [3]bool{true}, false}}},
		{"some on, some off, one unset", policyOf("algorithm: wait-and-widen, requestAlgorithms: [{algorithm: pulsar-wait-and-widen, lastClusterAffinity: true}]") + plane,
			[]variant{{"p, flag off", [3]bool{}, false}, {"p, flag on", [3]bool{false, true, true}, false}, {"p", [3]bool{false, true, false}, true}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []variant
			for _, v := range variantsOf(t, test.yaml) {
				got = append(got, variant{v.Name(), flags(v), v.Written})
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("variants %+v\n    want %+v", got, test.want)
			}
		})
	}
}

func TestAnOlderStargateGetsTheFieldsItKnowsAndAWarning(t *testing.T) {
	p, err := ReadPolicies("p", manifestsOf(t, "apiVersion: v1\nkind: Secret\n---\n"+policyOf(sticky("pulsar-wait-and-widen")+", bandWidenIntervalMs: 50")))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		release  string
		variants int
		weight   routing.Weight
		wait     time.Duration
		warnings []string
	}{
		{"V2", 1, routing.WeightMaxInputTPS, 300 * time.Millisecond, []string{
			"RoutingPolicy ns/p: spec.models[0].lastClusterAffinity: Stargate does not know lastClusterAffinity, which is left out of the file; it takes effect from V3 on, remove it until then",
			"Stargate V2 is of generation V2, and decisions are simulated as V3 makes them, with the configuration that V2 reads",
			"not simulated: before V3 pulsar-wait-and-widen without a queue SLO sends every request to its rank-1 cluster, whatever the load",
		}},
		{"0.18.2", 1, routing.WeightLastMeanInputTPS, 0, []string{
			"RoutingPolicy ns/p: spec.models[0].bandWidenIntervalMs: Stargate does not know bandWidenIntervalMs, which is left out of the file; it takes effect from V2 on, remove it until then",
			"RoutingPolicy ns/p: spec.models[0].lastClusterAffinity: Stargate does not know lastClusterAffinity, which is left out of the file; it takes effect from V3 on, remove it until then",
			"Stargate 0.18.2 is of generation V1, and decisions are simulated as V3 makes them, with the configuration that 0.18.2 reads",
			"not simulated: before V3 pulsar-wait-and-widen without a queue SLO sends every request to its rank-1 cluster, whatever the load",
			"not simulated: before V2 pulsar-wait-and-widen tries rank 1, then ranks 2 to 3, 4 to 7 and so on, each band alone, and never waits",
		}},
		{"V3", 2, routing.WeightMaxInputTPS, 300 * time.Millisecond, nil},
	} {
		t.Run(test.release, func(t *testing.T) {
			r, err := release.DefaultTable().Parse(test.release)
			if err != nil {
				t.Fatal(err)
			}
			variants, warnings, err := p.Variants(r)
			if err != nil {
				t.Fatal(err)
			}
			m := variants[0].Plane.Models["m"]
			if len(variants) != test.variants || m.Weight != test.weight || m.AffinityWait != test.wait {
				t.Errorf("%d variants, weight %s, affinity wait %v; want %d, %s, %v", len(variants), m.Weight, m.AffinityWait, test.variants, test.weight, test.wait)
			}
			warnings = slices.DeleteFunc(warnings, func(w string) bool {
				return strings.HasPrefix(w, "RoutingPolicy ns/p: ") && !strings.Contains(w, "does not know")
			})
			if want := append([]string{"p: documents of other kinds are skipped, 1 of them"}, test.warnings...); !slices.Equal(warnings, want) {
				t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(warnings, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
