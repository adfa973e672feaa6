// Package cases holds specs and what is wrong with them, for the tests of the two places that say so:
// internal/validate and, against a real API server, the CRDs.
package cases

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// Case changes a valid spec.
type Case[Spec any] struct {
	// Name reads as a sentence.
	Name string
	// Change makes the case from a valid spec.
	Change func(*Spec)
	// Errors that internal/validate returns, in its order; none for a spec that is accepted.
	Errors []string
	// Server lists the errors of the API server where they are not the same, in any order.
	Server []string
	// ServerAccepts marks what the CRD cannot say.
	ServerAccepts bool
}

// ServerErrors that the API server returns with nothing but the CRDs.
func (c Case[Spec]) ServerErrors() []string {
	switch {
	case c.ServerAccepts:
		return nil
	case c.Server != nil:
		return c.Server
	}
	return c.Errors
}

// ValidPolicy returns a spec without errors.
func ValidPolicy() v1alpha1.RoutingPolicySpec {
	return v1alpha1.RoutingPolicySpec{
		PlaneRef: v1alpha1.PlaneReference{Name: "llm"},
		Models:   []v1alpha1.Model{{Name: "m", AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.WaitAndWiden}}},
	}
}

// ValidPlane returns a spec without errors.
func ValidPlane() v1alpha1.RoutingPlaneSpec {
	return v1alpha1.RoutingPlaneSpec{
		Stargate: v1alpha1.StargateSpec{WorkloadRef: v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: "llm-request-router"}},
		Gateways: []v1alpha1.GatewaySpec{{WorkloadRef: v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: "llm-api-gateway"}}},
	}
}

type (
	policySpec = v1alpha1.RoutingPolicySpec
	planeSpec  = v1alpha1.RoutingPlaneSpec
	settings   = v1alpha1.AlgorithmSettings
)

// setters give every field a value that every algorithm which takes the field accepts, and that is its default
// or "off": presence alone is what an algorithm refuses.
var setters = map[string]func(*settings){
	"requireCacheAffinityKey":            func(s *settings) { s.RequireCacheAffinityKey = new(false) },
	"requireInputTokens":                 func(s *settings) { s.RequireInputTokens = new(false) },
	"maxInputWorkSeconds":                func(s *settings) { s.MaxInputWorkSeconds = new(v1alpha1.Decimal("10.5")) },
	"comparator":                         func(s *settings) { s.Comparator = new("ttft") },
	"sampleCount":                        func(s *settings) { s.SampleCount = new(int64(2)) },
	"seed":                               func(s *settings) { s.Seed = new("") },
	"considerKvFreeTokens":               func(s *settings) { s.ConsiderKvFreeTokens = new(false) },
	"rendezvousWeight":                   func(s *settings) { s.RendezvousWeight = new("max-input-tps") },
	"cacheAffinityVirtualNodes":          func(s *settings) { s.CacheAffinityVirtualNodes = new(int64(150)) },
	"cacheAffinityBackendSelectionCount": func(s *settings) { s.CacheAffinityBackendSelectionCount = new(int64(0)) },
	"cacheAffinityWaitMs":                func(s *settings) { s.CacheAffinityWaitMs = new(int64(0)) },
	"cacheAffinityInputTokensScale":      func(s *settings) { s.CacheAffinityInputTokensScale = new(v1alpha1.Decimal("1")) },
	"bandWidenIntervalMs":                func(s *settings) { s.BandWidenIntervalMs = new(int64(0)) },
	"fallbackMaxQueued":                  func(s *settings) { s.FallbackMaxQueued = new(int64(0)) },
	"maxQueueTimeFloorMs":                func(s *settings) { s.MaxQueueTimeFloorMs = new(int64(500)) },
	"maxQueueTimeCeilMs":                 func(s *settings) { s.MaxQueueTimeCeilMs = new(int64(2000)) },
	"ttftBucketSizeMs":                   func(s *settings) { s.TtftBucketSizeMs = new(int64(20)) },
	"nextBucketUnlockFactor":             func(s *settings) { s.NextBucketUnlockFactor = new(v1alpha1.Decimal("0.25")) },
	"n":                                  func(s *settings) { s.N = new(int64(2)) },
	"maxQueued":                          func(s *settings) { s.MaxQueued = new(int64(0)) },
	"ignoreQueueTime":                    func(s *settings) { s.IgnoreQueueTime = new(false) },
	"ignoreInputProcessingTime":          func(s *settings) { s.IgnoreInputProcessingTime = new(false) },
	"lastClusterAffinity":                func(s *settings) { s.LastClusterAffinity = new(false) },
}

// Set gives a field its default or a harmless value; it panics for a field that does not exist.
func Set(s *settings, name string) { setters[name](s) }

// Full returns an algorithm with every field that it takes.
func Full(a v1alpha1.Algorithm) settings {
	s := settings{Algorithm: a}
	for _, f := range validate.Fields() {
		if f.SupportedBy(a) {
			Set(&s, f.Name)
		}
	}
	return s
}

// model changes the only model of a valid policy.
func model(change func(*v1alpha1.Model)) func(*policySpec) {
	return func(s *policySpec) { change(&s.Models[0]) }
}

func requests(list ...settings) []v1alpha1.RequestAlgorithm {
	var all []v1alpha1.RequestAlgorithm
	for _, s := range list {
		all = append(all, v1alpha1.RequestAlgorithm{AlgorithmSettings: s})
	}
	return all
}

func unsupported(path, name string, a v1alpha1.Algorithm, by []v1alpha1.Algorithm) string {
	var names []string
	for _, b := range by {
		names = append(names, string(b))
	}
	return fmt.Sprintf("%s.%s: Invalid value: %s is not supported by algorithm %s; supported by: %s; remove the field or change the algorithm",
		path, name, name, a, strings.Join(names, ", "))
}

const (
	notADecimal  = "must be a number as JSON writes it and within a 64-bit floating-point number, in quotes: '0.25', '2', '1e-3'"
	noAlgorithm  = "no such algorithm; there are: power-of-n, pulsar, pulsar-wait-and-widen, random, round-robin, wait-and-widen"
	notSubdomain = "must be a name in lower case: letters, digits, '-' and '.', with a letter or digit at both ends"
	notLabel     = "must be a name in lower case: letters, digits and '-', with a letter or digit at both ends"
	notVersion   = "version must be a release such as 0.22.0 or a generation from V0 to V3"
	notPath      = "configPath must be the absolute path of a file at least two directories deep, in letters, digits, '.', '_' and '-' and without '..', " +
		"for example /etc/routing-operator/lb-config.json: the operator mounts over the file's directory"
	occupiedPath = "configPath must not lie in /dev, /proc, /run, /sys or /var/run: the operator mounts over the file's directory"
	notAllowed   = "configPath must lie in a directory that the operator is allowed to mount over: /etc/routing-operator; choose one there or have the administrator allow this one"
	notMovable   = "configPath cannot be changed: the file would go from the old path, which Stargate's arguments may still name, and no new pod would start; " +
		"to move, have the arguments name a file of the chart's, delete the plane and create it anew with the other path"
	notPrefix = "prefix must be the beginning of a metric's name, such as stargate_: letters, digits, '_' and ':', not beginning with a digit"
	notWave   = "a wave must be a number of models, 1 or more, or a percentage from 1% to 100%"
)

// Policies are the cases of RoutingPolicy.
func Policies() []Case[policySpec] {
	var list []Case[policySpec]
	list = append(list, fieldsByAlgorithm()...)
	list = append(list, algorithmNames()...)
	list = append(list, values()...)
	list = append(list, models()...)
	return append(list, requestAlgorithms()...)
}

// fieldsByAlgorithm tries every field on every algorithm.
func fieldsByAlgorithm() []Case[policySpec] {
	var list []Case[policySpec]
	for _, a := range validate.Algorithms() {
		for _, f := range validate.Fields() {
			c := Case[policySpec]{
				Name: fmt.Sprintf("%s takes %s", a, f.Name),
				Change: model(func(m *v1alpha1.Model) {
					m.Algorithm = a
					Set(&m.AlgorithmSettings, f.Name)
				}),
			}
			if !f.SupportedBy(a) {
				c.Name = fmt.Sprintf("%s does not take %s, not even at its default", a, f.Name)
				c.Errors = []string{unsupported("spec.models[0]", f.Name, a, f.Algorithms)}
			}
			list = append(list, c)
		}
		list = append(list, Case[policySpec]{
			Name:   fmt.Sprintf("%s takes all of its fields at once", a),
			Change: model(func(m *v1alpha1.Model) { m.AlgorithmSettings = Full(a) }),
		})
	}
	return list
}

func algorithmNames() []Case[policySpec] {
	named := func(name, algorithm, problem string) Case[policySpec] {
		return Case[policySpec]{
			Name: name,
			Change: model(func(m *v1alpha1.Model) {
				m.Algorithm = v1alpha1.Algorithm(algorithm)
				m.SampleCount = new(int64(2)) // nothing can be said of the fields of an algorithm that is not known
			}),
			Errors: []string{fmt.Sprintf("spec.models[0].algorithm: Invalid value: %q: %s", algorithm, problem)},
		}
	}
	var list []Case[policySpec]
	for alias, canonical := range map[string]string{
		"power-of-two": "power-of-n", "powerOf2": "power-of-n", "powerof2": "power-of-n", "powerOfN": "power-of-n", "powerofn": "power-of-n",
		"groq-multiregion": "wait-and-widen", "pulsar-multiregion": "pulsar-wait-and-widen",
	} {
		list = append(list, named("the legacy alias "+alias+" is refused with its canonical name", alias,
			"this is a legacy alias; write its canonical name: "+canonical))
	}
	return append(list,
		named("an algorithm that does not exist is refused", "least-loaded", noAlgorithm),
		named("an algorithm in capitals is refused", "Pulsar", noAlgorithm),
		named("an algorithm with underscores is refused", "power_of_n", noAlgorithm),
		named("an algorithm with white space is refused", " random ", noAlgorithm),
		named("an algorithm over two lines is refused", "random\nrandom", noAlgorithm),
		named("no algorithm at all is refused", "", noAlgorithm),
	)
}

// values that no algorithm takes, and the ends of what is taken.
func values() []Case[policySpec] {
	on := func(a v1alpha1.Algorithm, change func(*settings)) func(*policySpec) {
		return model(func(m *v1alpha1.Model) {
			m.Algorithm = a
			change(&m.AlgorithmSettings)
		})
	}
	samples := func(n int64) func(*policySpec) {
		return on(v1alpha1.PowerOfN, func(s *settings) { s.SampleCount = &n })
	}
	scale := func(d v1alpha1.Decimal) func(*policySpec) {
		return on(v1alpha1.WaitAndWiden, func(s *settings) { s.CacheAffinityInputTokensScale = &d })
	}
	work := func(d v1alpha1.Decimal) func(*policySpec) {
		return on(v1alpha1.Random, func(s *settings) { s.MaxInputWorkSeconds = &d })
	}
	list := []Case[policySpec]{
		{Name: "a sample count of 1 is the least", Change: samples(1)},
		{Name: "a sample count of 64 is the most", Change: samples(64)},
		{Name: "a sample count of 0 is refused", Change: samples(0),
			Errors: []string{"spec.models[0].sampleCount: Invalid value: 0: sampleCount must be from 1 to 64"}},
		{Name: "a sample count of 65 is refused", Change: samples(65),
			Errors: []string{"spec.models[0].sampleCount: Invalid value: 65: sampleCount must be from 1 to 64"}},
		{Name: "a field on the wrong algorithm and out of range is two problems",
			Change: on(v1alpha1.Random, func(s *settings) { s.SampleCount = new(int64(65)) }),
			Errors: []string{
				"spec.models[0].sampleCount: Invalid value: 65: sampleCount must be from 1 to 64",
				unsupported("spec.models[0]", "sampleCount", v1alpha1.Random, []v1alpha1.Algorithm{v1alpha1.PowerOfN}),
			}},
		{Name: "a comparator that does not exist is refused",
			Change: on(v1alpha1.PowerOfN, func(s *settings) { s.Comparator = new("latency") }),
			Errors: []string{`spec.models[0].comparator: Invalid value: "latency": comparator must be one of: ttft, queue-time, input-work-seconds, utilization, num-requests-queued`}},
		{Name: "a weight that does not exist is refused",
			Change: on(v1alpha1.Pulsar, func(s *settings) { s.RendezvousWeight = new("mean") }),
			Errors: []string{`spec.models[0].rendezvousWeight: Invalid value: "mean": rendezvousWeight must be one of: max-input-tps, last-mean-input-tps`}},
		{Name: "the largest integer is accepted",
			Change: on(v1alpha1.WaitAndWiden, func(s *settings) { s.MaxQueued = new(int64(1<<63 - 1)) })},
		{Name: "a scale below 0 is refused", Change: scale("-0.1"),
			Errors: []string{`spec.models[0].cacheAffinityInputTokensScale: Invalid value: "-0.1": cacheAffinityInputTokensScale must be from 0 to 1`}},
		{Name: "a scale above 1 is refused", Change: scale("1.1"),
			Errors: []string{`spec.models[0].cacheAffinityInputTokensScale: Invalid value: "1.1": cacheAffinityInputTokensScale must be from 0 to 1`}},
		{Name: "a scale of 0 is accepted", Change: scale("0")},
		{Name: "a scale of minus 0 is accepted", Change: scale("-0.0")},
		{Name: "a scale of 1 with an exponent is accepted", Change: scale("10E-1")},
		{Name: "a scale that rounds to 1 is accepted, since Stargate reads 64 bits", Change: scale("1.00000000000000000001")},
		{Name: "a negative work limit is accepted", Change: work("-1")},
		{Name: "the largest number is accepted", Change: work("1.7976931348623157e308")},
		{Name: "a number too small for 64 bits is 0 and accepted", Change: work("1e-400")},
		{Name: "a number of no digits but 0 is finite whatever its exponent", Change: work("0e999")},
		{Name: "a number above 64 bits is refused", Change: work("1e309"),
			Errors: []string{fmt.Sprintf("spec.models[0].maxInputWorkSeconds: Invalid value: %q: %s", "1e309", notADecimal)},
			Server: []string{fmt.Sprintf("spec.models[0].maxInputWorkSeconds: Invalid value: %q: type conversion error from 'string' to 'double' evaluating rule: %s", "string", notADecimal)}},
		{Name: "an unlock factor outside 0 to 1 is accepted",
			Change: on(v1alpha1.WaitAndWiden, func(s *settings) { s.NextBucketUnlockFactor = new(v1alpha1.Decimal("-0.5")) })},
		{Name: "a seed of any text is accepted",
			Change: on(v1alpha1.Pulsar, func(s *settings) { s.Seed = new("\" \\ \n é") })},
		{Name: "a seed beyond the limit is refused",
			Change: on(v1alpha1.Pulsar, func(s *settings) { s.Seed = new(strings.Repeat("é", 1025)) }),
			Errors: []string{"spec.models[0].seed: Too long: may not be more than 1024 bytes"}},
		{Name: "a seed at the limit is accepted",
			Change: on(v1alpha1.Pulsar, func(s *settings) { s.Seed = new(strings.Repeat("é", 1024)) })},
	}
	for _, d := range []v1alpha1.Decimal{"", ".5", "5.", "00.5", "+1", "0x10", "NaN", "Infinity", "1_000", " 1", "1 ", "1\n", "1e", "1,5", "true", "\"1\"", "[1]", "-"} {
		list = append(list, Case[policySpec]{
			Name: fmt.Sprintf("%q is no JSON number and refused", d), Change: work(d),
			Errors: []string{fmt.Sprintf("spec.models[0].maxInputWorkSeconds: Invalid value: %q: %s", d, notADecimal)},
		})
	}
	for _, name := range []string{
		"cacheAffinityVirtualNodes", "cacheAffinityBackendSelectionCount", "cacheAffinityWaitMs", "bandWidenIntervalMs", "fallbackMaxQueued",
		"maxQueueTimeFloorMs", "maxQueueTimeCeilMs", "ttftBucketSizeMs", "n", "maxQueued",
	} {
		list = append(list, Case[policySpec]{
			Name:   "a negative " + name + " is refused",
			Change: on(v1alpha1.PulsarWaitAndWiden, func(s *settings) { *integer(s, name) = new(int64(-1)) }),
			Errors: []string{fmt.Sprintf("spec.models[0].%s: Invalid value: -1: %s must be 0 or more", name, name)},
		})
	}
	return list
}

func integer(s *settings, name string) **int64 {
	return map[string]**int64{
		"cacheAffinityVirtualNodes":          &s.CacheAffinityVirtualNodes,
		"cacheAffinityBackendSelectionCount": &s.CacheAffinityBackendSelectionCount,
		"cacheAffinityWaitMs":                &s.CacheAffinityWaitMs,
		"bandWidenIntervalMs":                &s.BandWidenIntervalMs,
		"fallbackMaxQueued":                  &s.FallbackMaxQueued,
		"maxQueueTimeFloorMs":                &s.MaxQueueTimeFloorMs,
		"maxQueueTimeCeilMs":                 &s.MaxQueueTimeCeilMs,
		"ttftBucketSizeMs":                   &s.TtftBucketSizeMs,
		"n":                                  &s.N,
		"maxQueued":                          &s.MaxQueued,
	}[name]
}

func models() []Case[policySpec] {
	name := func(name string) func(*policySpec) {
		return model(func(m *v1alpha1.Model) { m.Name = name })
	}
	bare := func(name string) v1alpha1.Model {
		return v1alpha1.Model{Name: name, AlgorithmSettings: settings{Algorithm: v1alpha1.Random}}
	}
	return []Case[policySpec]{
		{Name: "a model ID with slashes, colons and capitals is accepted", Change: name("Org/Model_Name.v1:beta")},
		{Name: "an empty model ID is accepted", Change: name("")},
		{Name: "a model ID of any text is accepted", Change: name("\t\"模型\" \\ ")},
		{Name: "a model ID beyond the limit is refused", Change: name(strings.Repeat("m", 513)),
			Errors: []string{"spec.models[0].name: Too long: may not be more than 512 bytes"}},
		{Name: "no model at all is accepted", Change: func(s *policySpec) { s.Models = []v1alpha1.Model{} }},
		{Name: "the same model in two capitalisations is two models",
			Change: func(s *policySpec) { s.Models = []v1alpha1.Model{bare("a"), bare("A")} }},
		{Name: "a model listed twice is refused",
			Change: func(s *policySpec) { s.Models = []v1alpha1.Model{bare("a"), bare("b"), bare("a")} },
			Errors: []string{`spec.models[2]: Duplicate value: {"name":"a"}`}},
		{Name: "257 models are refused",
			Change: func(s *policySpec) {
				s.Models = nil
				for i := range 257 {
					s.Models = append(s.Models, bare(fmt.Sprint(i)))
				}
			},
			Errors: []string{"spec.models: Too many: 257: must have at most 256 items"}},
		{Name: "a plane in another namespace is accepted",
			Change: func(s *policySpec) { s.PlaneRef = v1alpha1.PlaneReference{Name: "llm.prod", Namespace: "nvcf"} }},
		{Name: "a plane without a name is refused",
			Change: func(s *policySpec) { s.PlaneRef.Name = "" },
			Errors: []string{`spec.planeRef.name: Invalid value: "": ` + notSubdomain}},
		{Name: "a plane whose name no object can have is refused",
			Change: func(s *policySpec) { s.PlaneRef = v1alpha1.PlaneReference{Name: "LLM", Namespace: "a.b"} },
			Errors: []string{
				`spec.planeRef.name: Invalid value: "LLM": ` + notSubdomain,
				`spec.planeRef.namespace: Invalid value: "a.b": ` + notLabel,
			}},
		{Name: "problems in several models come in one answer",
			Change: func(s *policySpec) {
				s.Models = []v1alpha1.Model{bare("a"), bare("b"), bare("a")}
				s.Models[0].Algorithm = "powerOf2"
				s.Models[1].LastClusterAffinity = new(true)
				s.Models[1].Seed = new("s")
				s.Models[2].RequestAlgorithms = requests(settings{Algorithm: v1alpha1.PowerOfN, SampleCount: new(int64(0))})
			},
			Errors: []string{
				`spec.models[0].algorithm: Invalid value: "powerOf2": this is a legacy alias; write its canonical name: power-of-n`,
				unsupported("spec.models[1]", "seed", v1alpha1.Random, []v1alpha1.Algorithm{v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden, v1alpha1.WaitAndWiden}),
				unsupported("spec.models[1]", "lastClusterAffinity", v1alpha1.Random, []v1alpha1.Algorithm{v1alpha1.PulsarWaitAndWiden, v1alpha1.WaitAndWiden}),
				`spec.models[2]: Duplicate value: {"name":"a"}`,
				"spec.models[2].requestAlgorithms[0].sampleCount: Invalid value: 0: sampleCount must be from 1 to 64",
			}},
	}
}

func requestAlgorithms() []Case[policySpec] {
	with := func(list ...v1alpha1.RequestAlgorithm) func(*policySpec) {
		return model(func(m *v1alpha1.Model) { m.RequestAlgorithms = list })
	}
	nested := v1alpha1.RequestAlgorithm{
		AlgorithmSettings: settings{Algorithm: v1alpha1.Random},
		RequestAlgorithms: []runtime.RawExtension{{Raw: []byte(`{"algorithm":"pulsar","bogus":1}`)}},
	}
	const path = "spec.models[0].requestAlgorithms"
	var full []settings
	for _, a := range validate.Algorithms() {
		full = append(full, Full(a))
	}
	return []Case[policySpec]{
		{Name: "every algorithm with all of its fields can be selected by a request", Change: with(requests(full...)...)},
		{Name: "a request algorithm obeys the rules of its algorithm",
			Change: with(requests(settings{Algorithm: v1alpha1.Pulsar, LastClusterAffinity: new(false)})...),
			Errors: []string{unsupported(path+"[0]", "lastClusterAffinity", v1alpha1.Pulsar, []v1alpha1.Algorithm{v1alpha1.PulsarWaitAndWiden, v1alpha1.WaitAndWiden})}},
		{Name: "a request algorithm by its legacy alias is refused",
			Change: with(requests(settings{Algorithm: "pulsar-multiregion"})...),
			Errors: []string{path + `[0].algorithm: Invalid value: "pulsar-multiregion": this is a legacy alias; write its canonical name: pulsar-wait-and-widen`}},
		{Name: "request algorithms do not nest", Change: with(nested),
			Errors: []string{path + "[0].requestAlgorithms: Invalid value: a request algorithm has no requestAlgorithms of its own (Stargate would drop them in silence); list them beside it"}},
		{Name: "request algorithms listed more than once are refused, each of them",
			Change: with(requests(settings{Algorithm: v1alpha1.Random}, settings{Algorithm: v1alpha1.Pulsar}, settings{Algorithm: v1alpha1.Random},
				settings{Algorithm: v1alpha1.Pulsar, Seed: new("s")})...),
			Errors: []string{
				path + `[2]: Duplicate value: {"algorithm":"random"}`, path + `[3]: Duplicate value: {"algorithm":"pulsar"}`,
			}},
		{Name: "17 request algorithms are refused",
			Change: with(requests(make([]settings, 17)...)...),
			Errors: []string{path + ": Too many: 17: must have at most 16 items"},
			Server: []string{path + ": Too many: 17: must have at most 16 items", path + `[1]: Duplicate value: {"algorithm":""}`}},
	}
}

// Planes are the cases of RoutingPlane.
func Planes() []Case[planeSpec] {
	list := []Case[planeSpec]{
		{Name: "a plane with nothing but its workloads is accepted", Change: func(*planeSpec) {}},
		{Name: "a plane without a gateway is accepted", Change: func(s *planeSpec) { s.Gateways = nil }},
		{Name: "a StatefulSet can run Stargate", Change: func(s *planeSpec) { s.Stargate.WorkloadRef.Kind = v1alpha1.KindStatefulSet }},
		{Name: "a workload that can run neither is refused",
			Change: func(s *planeSpec) {
				s.Stargate.WorkloadRef.Kind = "DaemonSet"
				s.Gateways[0].WorkloadRef.Kind = v1alpha1.KindStatefulSet
			},
			Errors: []string{
				`spec.stargate.workloadRef.kind: Invalid value: "DaemonSet": must be one of: Deployment, StatefulSet`,
				`spec.gateways[0].workloadRef.kind: Invalid value: "StatefulSet": must be one of: Deployment`,
			},
			Server: []string{
				`spec.stargate.workloadRef.kind: Invalid value: must be one of: Deployment, StatefulSet`,
				`spec.gateways[0].workloadRef.kind: Invalid value: must be one of: Deployment`,
			}},
		{Name: "names that no object can have are refused",
			Change: func(s *planeSpec) {
				s.Stargate.WorkloadRef.Name = "Router"
				s.Stargate.Container = "a.b"
				s.Gateways[0].WorkloadRef.Name = ""
				s.Gateways[0].Container = "-"
				s.Rollout.Pin = "Rev 1"
			},
			Errors: []string{
				`spec.stargate.workloadRef.name: Invalid value: "Router": ` + notSubdomain,
				`spec.stargate.container: Invalid value: "a.b": ` + notLabel,
				`spec.gateways[0].workloadRef.name: Invalid value: "": ` + notSubdomain,
				`spec.gateways[0].container: Invalid value: "-": ` + notLabel,
				`spec.rollout.pin: Invalid value: "Rev 1": ` + notSubdomain,
			}},
		{Name: "a revision can be pinned", Change: func(s *planeSpec) { s.Rollout.Pin = "llm-stargate-0a1b2c3d" }},
		{Name: "a gateway that is the Stargate workload is refused",
			Change: func(s *planeSpec) { s.Gateways[0].WorkloadRef = s.Stargate.WorkloadRef },
			Errors: []string{"spec.gateways: Invalid value: Deployment llm-request-router is the plane's Stargate workload and cannot be a gateway too; name the gateway's own workload"}},
		{Name: "a StatefulSet and a Deployment of one name are two workloads",
			Change: func(s *planeSpec) {
				s.Stargate.WorkloadRef = v1alpha1.WorkloadReference{Kind: v1alpha1.KindStatefulSet, Name: "llm"}
				s.Gateways[0].WorkloadRef.Name = "llm"
			}},
		{Name: "gateways listed more than once are refused",
			Change: func(s *planeSpec) {
				for _, name := range []string{"b", "a", "c", "a", "b", "b"} {
					s.Gateways = append(s.Gateways, v1alpha1.GatewaySpec{WorkloadRef: v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: name}})
				}
			},
			Errors: []string{"spec.gateways: Invalid value: two entries name one workload; keep one entry for each workload"}},
		{Name: "17 gateways are refused",
			Change: func(s *planeSpec) {
				s.Gateways = nil
				for i := range 17 {
					s.Gateways = append(s.Gateways, v1alpha1.GatewaySpec{WorkloadRef: v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: fmt.Sprintf("g%d", i)}})
				}
			},
			Errors: []string{"spec.gateways: Too many: 17: must have at most 16 items"}},
		{Name: "a default algorithm by its legacy alias is refused",
			Change: func(s *planeSpec) { s.Stargate.DefaultAlgorithm = "power-of-two" },
			Errors: []string{`spec.stargate.defaultAlgorithm: Invalid value: "power-of-two": this is a legacy alias; write its canonical name: power-of-n`}},
		{Name: "the plane's request algorithms obey the rules of a policy's",
			Change: func(s *planeSpec) {
				s.Stargate.RequestAlgorithms = requests(settings{Algorithm: v1alpha1.Random, Seed: new("")}, settings{Algorithm: v1alpha1.Random})
			},
			Errors: []string{
				unsupported("spec.stargate.requestAlgorithms[0]", "seed", v1alpha1.Random, []v1alpha1.Algorithm{v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden, v1alpha1.WaitAndWiden}),
				`spec.stargate.requestAlgorithms[1]: Duplicate value: {"algorithm":"random"}`,
			}},
		{Name: "ports and counts out of range are refused",
			Change: func(s *planeSpec) {
				s.Stargate.Metrics.Port = 65536
				s.Gateways[0].Metrics.Port = -1
				s.LastCluster.LocalMaxEntries = new(int64(0))
				s.RevisionHistoryLimit = new(int32(101))
			},
			Errors: []string{
				"spec.stargate.metrics.port: Invalid value: 65536: port must be from 1 to 65535",
				"spec.gateways[0].metrics.port: Invalid value: -1: port must be from 1 to 65535",
				"spec.lastCluster.localMaxEntries: Invalid value: 0: localMaxEntries must be 1 or more",
				"spec.revisionHistoryLimit: Invalid value: 101: revisionHistoryLimit must be from 0 to 100",
			}},
		{Name: "a metric's name may have a colon in it", Change: func(s *planeSpec) { s.Stargate.Metrics.Prefix = "router:" }},
		{Name: "a prefix that no metric can have is refused",
			Change: func(s *planeSpec) { s.Stargate.Metrics.Prefix = "llm-" },
			Errors: []string{`spec.stargate.metrics.prefix: Invalid value: "llm-": ` + notPrefix}},
		{Name: "choices that do not exist are refused",
			Change: func(s *planeSpec) {
				s.Stargate.ConfigPathCheck = "Env"
				s.AllowedPolicies.Namespaces.From = "Some"
				s.DeletionPolicy = "Orphan"
			},
			Errors: []string{
				`spec.stargate.configPathCheck: Invalid value: "Env": must be one of: Arguments, Skip`,
				`spec.allowedPolicies.namespaces.from: Invalid value: "Some": must be one of: Same, All, Selector`,
				`spec.deletionPolicy: Invalid value: "Orphan": must be one of: Unwind, Retain`,
			}},
	}
	list = append(list, configPaths()...)
	list = append(list, releases()...)
	list = append(list, durations()...)
	list = append(list, waves()...)
	list = append(list, analyses()...)
	return append(list, namespaces()...)
}

// PlaneChanges are changes of a valid spec for a plane that is stored.
func PlaneChanges() []Case[planeSpec] {
	moved := func(to string) []string {
		return []string{fmt.Sprintf("spec.stargate.configPath: Invalid value: %q: %s", to, notMovable)}
	}
	return []Case[planeSpec]{
		{Name: "a configPath that is only written out is accepted", Change: func(s *planeSpec) { s.Stargate.ConfigPath = "/etc/routing-operator/lb-config.json" }},
		{Name: "another workload is accepted", Change: func(s *planeSpec) { s.Stargate.WorkloadRef.Name = "other" }},
		{Name: "a configPath in another directory is refused", Change: func(s *planeSpec) { s.Stargate.ConfigPath = "/etc/routing-operator/v2/lb-config.json" },
			Errors: moved("/etc/routing-operator/v2/lb-config.json")},
		{Name: "a configPath of another file is refused", Change: func(s *planeSpec) { s.Stargate.ConfigPath = "/etc/routing-operator/other.json" },
			Errors: moved("/etc/routing-operator/other.json")},
	}
}

func configPaths() []Case[planeSpec] {
	at := func(file string) func(*planeSpec) {
		return func(s *planeSpec) { s.Stargate.ConfigPath = file }
	}
	list := []Case[planeSpec]{
		{Name: "another file in the allowed directory is accepted", Change: at("/etc/routing-operator/stargate.json")},
		{Name: "a directory below the allowed one is accepted", Change: at("/etc/routing-operator/.llm/lb-config.json")},
		{Name: "a directory whose name only begins like the allowed one is refused by the operator's setting", ServerAccepts: true,
			Change: at("/etc/routing-operator-x/lb-config.json"),
			Errors: []string{`spec.stargate.configPath: Invalid value: "/etc/routing-operator-x/lb-config.json": ` + notAllowed}},
		{Name: "the chart's own directory is refused by the operator's setting", ServerAccepts: true,
			Change: at("/etc/llm-request-router/lb-config.json"),
			Errors: []string{`spec.stargate.configPath: Invalid value: "/etc/llm-request-router/lb-config.json": ` + notAllowed}},
	}
	for name, file := range map[string]string{
		"the allowed directory itself is no file, and its parent would be mounted over": "/etc/routing-operator",
		"a file in the root directory would hide the whole image":                       "/lb-config.json",
		"a relative path is refused":                                                    "etc/routing-operator/lb-config.json",
		"a path that climbs is refused":                                                 "/etc/routing-operator/../ssl/cert.pem",
		"a path that is not clean is refused":                                           "/etc//routing-operator/lb-config.json",
		"a path with a dot for a directory is refused":                                  "/etc/./routing-operator/lb-config.json",
		"a directory is no file":                                                        "/etc/routing-operator/",
		"a colon ends a mount path":                                                     "/etc/routing:operator/lb-config.json",
		"white space would need quoting in an argument":                                 "/etc/routing-operator/lb config.json",
		"a file that begins with two dots is one of the kubelet's own":                  "/etc/routing-operator/..data",
		"a reference to a variable would be expanded in Stargate's argument":            "/etc/routing-operator/$(HOME).json",
	} {
		list = append(list, Case[planeSpec]{Name: name, Change: at(file),
			Errors: []string{fmt.Sprintf("spec.stargate.configPath: Invalid value: %q: %s", file, notPath)}})
	}
	for _, file := range []string{"/var/run/secrets/kubernetes.io/serviceaccount/token", "/proc/self/environ", "/dev/shm/lb.json", "/sys/fs/lb.json", "/run/secrets/lb.json"} {
		list = append(list, Case[planeSpec]{Name: file + " is where the runtime or the kubelet mounts", Change: at(file),
			Errors: []string{fmt.Sprintf("spec.stargate.configPath: Invalid value: %q: %s", file, occupiedPath)}})
	}
	return list
}

func releases() []Case[planeSpec] {
	version := func(v string) func(*planeSpec) {
		return func(s *planeSpec) { s.Stargate.Releases = []v1alpha1.ReleaseOverride{{Image: "r:latest", Version: v}} }
	}
	list := []Case[planeSpec]{
		{Name: "an image listed twice or without a name is refused",
			Change: func(s *planeSpec) {
				s.Stargate.Releases = []v1alpha1.ReleaseOverride{{Image: "r:latest", Version: "V3"}, {Image: "r:latest", Version: "0.1.2"}}
				s.Gateways[0].Releases = []v1alpha1.ReleaseOverride{{Version: "V0"}}
			},
			Errors: []string{
				`spec.stargate.releases[1]: Duplicate value: {"image":"r:latest"}`,
				`spec.gateways[0].releases[0].image: Invalid value: "": image must be as the container names it, whole: 'llm-request-router:latest'`,
			}},
	}
	for _, v := range []string{"V0", "V3", "0.22.0", "v0.22.0", "0.22.0-rc.1", "1.2.3-0a.b-c+build.01"} {
		list = append(list, Case[planeSpec]{Name: v + " is a version", Change: version(v)})
	}
	for _, v := range []string{"", "V4", "v1", "0.22", "0.22.0.1", "00.1.0", "0.22.0-", "0.22.0-01", "latest", " 0.22.0", "0.22.0 ", "0.22.0-a..b", "0.22.0\n"} {
		list = append(list, Case[planeSpec]{Name: fmt.Sprintf("%q is no version", v), Change: version(v),
			Errors: []string{fmt.Sprintf("spec.stargate.releases[0].version: Invalid value: %q: %s", v, notVersion)}})
	}
	return list
}

func durations() []Case[planeSpec] {
	set := func(d time.Duration) func(*planeSpec) {
		return func(s *planeSpec) {
			duration := &metav1.Duration{Duration: d}
			s.LastCluster.TTL, s.LastCluster.LookupTimeout = duration, duration
			s.Rollout.QuietPeriod, s.Rollout.MinInterval, s.Rollout.GatewayWarmup = duration, duration, duration
			s.Rollout.WaveInterval, s.Rollout.ProgressDeadline = duration, duration
		}
	}
	above0 := func(path, name, value string) string {
		return fmt.Sprintf("%s.%s: Invalid value: %q: %s must be above 0 and at most 8760h, such as 10m, 1h30m or 20ms", path, name, value, name)
	}
	orMore := func(name, value string) string {
		return fmt.Sprintf("spec.rollout.%s: Invalid value: %q: %s must be from 0s to 8760h, such as 10m, 1h30m or 20ms", name, value, name)
	}
	each := func(value string) []string {
		return []string{
			above0("spec.lastCluster", "ttl", value), above0("spec.lastCluster", "lookupTimeout", value),
			orMore("quietPeriod", value), orMore("minInterval", value), orMore("gatewayWarmup", value), orMore("waveInterval", value), above0("spec.rollout", "progressDeadline", value),
		}
	}
	return []Case[planeSpec]{
		{Name: "every duration can be above 0", Change: set(90 * time.Minute)},
		{Name: "a nanosecond is above 0", Change: set(1)},
		{Name: "a duration of 0 is refused where it makes no sense", Change: set(0),
			Errors: []string{above0("spec.lastCluster", "ttl", "0s"), above0("spec.lastCluster", "lookupTimeout", "0s"), above0("spec.rollout", "progressDeadline", "0s")}},
		{Name: "no duration can be negative", Change: set(-time.Second), Errors: each("-1s")},
		{Name: "every duration can be a year", Change: set(8760 * time.Hour)},
		{Name: "no duration can be longer than a year", Change: set(8760*time.Hour + time.Second), Errors: each("8760h0m1s")},
	}
}

func analyses() []Case[planeSpec] {
	set := func(a v1alpha1.RolloutAnalysis) func(*planeSpec) {
		return func(s *planeSpec) { s.Rollout.Analysis = &a }
	}
	shares := func(d v1alpha1.Decimal) func(*planeSpec) {
		return set(v1alpha1.RolloutAnalysis{MaxNewShare: &d, MinReturningPrimaryShare: &d, MaxServerErrorIncrease: &d})
	}
	refused := func(d v1alpha1.Decimal, why func(name string) string) (errs []string) {
		for _, name := range []string{"maxNewShare", "minReturningPrimaryShare", "maxServerErrorIncrease"} {
			errs = append(errs, fmt.Sprintf("spec.rollout.analysis.%s: Invalid value: %q: %s", name, d, why(name)))
		}
		return errs
	}
	range01 := func(name string) string { return name + " must be from 0 to 1" }
	list := []Case[planeSpec]{
		{Name: "an analysis may leave everything to the defaults", Change: set(v1alpha1.RolloutAnalysis{})},
		{Name: "an analysis may set everything", Change: set(v1alpha1.RolloutAnalysis{
			Interval: &metav1.Duration{Duration: time.Minute}, MinSamples: new(int64(1)), TooFewSamples: v1alpha1.TooFewSamplesHold,
			MaxNewShare: new(v1alpha1.Decimal("0.9")), MinReturningPrimaryShare: new(v1alpha1.Decimal("1e-1")), MaxServerErrorIncrease: new(v1alpha1.Decimal("0")),
		})},
		{Name: "an analysis over no time, of no sample and with another choice is refused",
			Change: set(v1alpha1.RolloutAnalysis{Interval: &metav1.Duration{}, MinSamples: new(int64(0)), TooFewSamples: "Wait"}),
			Errors: []string{
				`spec.rollout.analysis.interval: Invalid value: "0s": interval must be above 0 and at most 8760h, such as 10m, 1h30m or 20ms`,
				`spec.rollout.analysis.minSamples: Invalid value: 0: minSamples must be 1 or more`,
				`spec.rollout.analysis.tooFewSamples: Invalid value: "Wait": must be one of: Continue, Hold`,
			}},
		{Name: "a share may be 0", Change: shares("0")},
		{Name: "a share may be 1", Change: shares("1.0")},
	}
	for _, d := range []v1alpha1.Decimal{"-0.1", "1.01", "95"} {
		list = append(list, Case[planeSpec]{Name: fmt.Sprintf("%q is no share", d), Change: shares(d), Errors: refused(d, range01)})
	}
	return append(list, Case[planeSpec]{Name: "a share must be a number", Change: shares("5%"),
		Errors: refused("5%", func(string) string { return notADecimal })})
}

func waves() []Case[planeSpec] {
	set := func(waves ...intstr.IntOrString) func(*planeSpec) {
		return func(s *planeSpec) { s.Rollout.Waves = waves }
	}
	list := []Case[planeSpec]{
		{Name: "waves are numbers and percentages",
			Change: set(intstr.FromInt32(1), intstr.FromString("1%"), intstr.FromString("99%"), intstr.FromString("100%"), intstr.FromInt32(1<<31-1))},
		{Name: "33 waves are refused", Change: set(make([]intstr.IntOrString, 33)...),
			Errors: []string{"spec.rollout.waves: Too many: 33: must have at most 32 items"}},
		{Name: "a wave of no or fewer models is refused", Change: set(intstr.FromInt32(0), intstr.FromInt32(-1)),
			Errors: []string{"spec.rollout.waves[0]: Invalid value: 0: " + notWave, "spec.rollout.waves[1]: Invalid value: -1: " + notWave}},
	}
	for _, w := range []string{"0%", "101%", "50", "5.5%", "-1%", "050%", "%", "", " 5%", "all"} {
		list = append(list, Case[planeSpec]{Name: fmt.Sprintf("%q is no wave", w), Change: set(intstr.FromString(w)),
			Errors: []string{fmt.Sprintf("spec.rollout.waves[0]: Invalid value: %q: %s", w, notWave)}})
	}
	return list
}

func namespaces() []Case[planeSpec] {
	set := func(from v1alpha1.FromNamespaces, selector *metav1.LabelSelector) func(*planeSpec) {
		return func(s *planeSpec) {
			s.AllowedPolicies.Namespaces = v1alpha1.AllowedNamespaces{From: from, Selector: selector}
		}
	}
	expressions := func(list ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: list}
	}
	const (
		path     = "spec.allowedPolicies.namespaces.selector"
		operator = path + ".matchExpressions: Invalid value: an operator must be In or NotIn, with values, or Exists or DoesNotExist, without"
		only     = path + ": Invalid value: selector is for from: Selector only; remove it or set from: Selector"
	)
	return []Case[planeSpec]{
		{Name: "policies of all namespaces can be allowed", Change: set(v1alpha1.NamespacesFromAll, nil)},
		{Name: "policies of selected namespaces can be allowed",
			Change: set(v1alpha1.NamespacesFromSelector, &metav1.LabelSelector{
				MatchLabels: map[string]string{"team": "llm"},
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "a.b/c", Operator: metav1.LabelSelectorOpIn, Values: []string{"x"}}, {Key: "d", Operator: metav1.LabelSelectorOpExists},
				},
			})},
		{Name: "a selector is needed where it selects", Change: set(v1alpha1.NamespacesFromSelector, nil),
			Errors: []string{path + ": Required value: from: Selector needs a selector over the labels of namespaces"}},
		{Name: "a selector is refused where it selects nothing", Change: set(v1alpha1.NamespacesFromAll, &metav1.LabelSelector{}), Errors: []string{only}},
		{Name: "a selector is refused where it selects nothing by default", Change: set("", &metav1.LabelSelector{}), Errors: []string{only}},
		{Name: "an operator that does not exist is refused",
			Change: set(v1alpha1.NamespacesFromSelector, expressions(metav1.LabelSelectorRequirement{Key: "a", Operator: "Equals", Values: []string{"x"}})),
			Errors: []string{path + `.matchExpressions[0].operator: Invalid value: "Equals": not a valid selector operator`}, Server: []string{operator}},
		{Name: "In needs values",
			Change: set(v1alpha1.NamespacesFromSelector, expressions(metav1.LabelSelectorRequirement{Key: "a", Operator: metav1.LabelSelectorOpIn})),
			Errors: []string{path + ".matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"}, Server: []string{operator}},
		{Name: "Exists takes no values",
			Change: set(v1alpha1.NamespacesFromSelector, expressions(metav1.LabelSelectorRequirement{Key: "a", Operator: metav1.LabelSelectorOpExists, Values: []string{"x"}})),
			Errors: []string{path + ".matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"}, Server: []string{operator}},
		{Name: "a label that cannot exist is refused by the webhook and the controller", ServerAccepts: true,
			Change: set(v1alpha1.NamespacesFromSelector, &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}),
			Errors: []string{path + `.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`}},
	}
}
