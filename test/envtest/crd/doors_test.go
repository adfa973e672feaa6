package crd

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/validate/cases"
)

const misspelt = `
apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPolicy
metadata: {name: misspelt, namespace: nvcf}
spec:
  planeRef: {name: llm}
  models:
  - name: m
    algorithm: wait-and-widen
    maxQueud: 4
    requestAlgorithms:
    - {algorithm: pulsar, sed: x}
`

func kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(env.Assets, "kubectl"), append([]string{"--kubeconfig", env.KubeConfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// recorder keeps the warnings of the API server.
type recorder struct {
	lock     sync.Mutex
	warnings []string
}

func (r *recorder) HandleWarningHeader(_ int, _, text string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.warnings = append(r.warnings, text)
}

var _ = Describe("A misspelt field", func() {
	It("is refused by kubectl apply, wherever it stands", func(ctx context.Context) {
		out, err := kubectl(ctx, misspelt, "apply", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(`unknown field "spec.models[0].maxQueud"`))
		Expect(out).To(ContainSubstring(`unknown field "spec.models[0].requestAlgorithms[0].sed"`))
	})

	It("is refused by server-side apply", func(ctx context.Context) {
		out, err := kubectl(ctx, misspelt, "apply", "--server-side", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(`maxQueud`))
	})

	It("is refused by server-side apply even without field validation", func(ctx context.Context) {
		out, err := kubectl(ctx, misspelt, "apply", "--server-side", "--validate=ignore", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("field not declared in schema"))
	})

	It("comes back as a warning to a client that asks for no validation", func(ctx context.Context) {
		warnings := &recorder{}
		u := raw("RoutingPolicy", "misspelt", `{"planeRef":{"name":"llm"},"models":[{"name":"m","algorithm":"pulsar","sed":"x"}]}`)
		Expect(newClient(warnings).Create(ctx, u, client.DryRunAll)).To(Succeed())
		Expect(warnings.warnings).To(ConsistOf(`unknown field "spec.models[0].sed"`))
	})
})

var _ = Describe("What the Go types cannot hold", func() {
	accepted := func(kind, spec string) func(context.Context) {
		return func(ctx context.Context) {
			u := raw(kind, "raw", spec)
			Expect(server.Create(ctx, u)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(server.Delete(ctx, u)).To(Succeed()) })
			// One object that does not fit would blind every client that lists the kind.
			Expect(server.List(ctx, &v1alpha1.RoutingPolicyList{})).To(Succeed())
			Expect(server.List(ctx, &v1alpha1.RoutingPlaneList{})).To(Succeed())
		}
	}
	refused := func(kind, spec string, problems ...string) func(context.Context) {
		return func(ctx context.Context) {
			err := server.Create(ctx, raw(kind, "raw", spec))
			Expect(err).To(HaveOccurred())
			Expect(causes(err)).To(ConsistOf(toAny(problems)...))
		}
	}
	model := func(fields string) string {
		return `{"planeRef":{"name":"llm"},"models":[{"name":"m",` + fields + `}]}`
	}
	plane := func(fields string) string {
		return `{"stargate":{"workloadRef":{"kind":"Deployment","name":"r"}},` + fields + `}`
	}
	const (
		duration   = `spec.rollout.quietPeriod: Invalid value: %q: quietPeriod must be from 0s to 8760h, such as 10m, 1h30m or 20ms`
		notInteger = `spec.models[0].n: Invalid value: "float64": spec.models[0].n in body must be of type int64: "float64"`
		wave       = "spec.rollout.waves[0]: Invalid value: %s: a wave must be a number of models, 1 or more, or a percentage from 1%% to 100%%"
	)

	It("is refused: a policy without models", refused("RoutingPolicy", `{"planeRef":{"name":"llm"}}`, "spec.models: Required value"))
	It("is refused: a model without an algorithm", refused("RoutingPolicy", model(`"n":1`), "spec.models[0].algorithm: Required value"))
	It("is refused: a number where a decimal is a text", refused("RoutingPolicy", model(`"algorithm":"random","maxInputWorkSeconds":1.5`),
		`spec.models[0].maxInputWorkSeconds: Invalid value: "number": spec.models[0].maxInputWorkSeconds in body must be of type string: "number"`))
	It("is refused: a text where a number is wanted", refused("RoutingPolicy", model(`"algorithm":"power-of-n","sampleCount":"2"`),
		`spec.models[0].sampleCount: Invalid value: "string": spec.models[0].sampleCount in body must be of type integer: "string"`))
	It("is refused: a fraction where an integer is wanted", refused("RoutingPolicy", model(`"algorithm":"wait-and-widen","n":2.5`),
		notInteger))
	It("is refused: an integer beyond 64 bits", refused("RoutingPolicy", model(`"algorithm":"wait-and-widen","n":9223372036854775808`),
		notInteger))
	It("is refused: an integer beyond 64 bits with an exponent", refused("RoutingPolicy", model(`"algorithm":"wait-and-widen","n":1e20`),
		notInteger))
	It("is accepted as an integer: a whole number with a fraction of 0", accepted("RoutingPolicy", model(`"algorithm":"wait-and-widen","n":2.0`)))
	It("is accepted as unset: null", accepted("RoutingPolicy", model(`"algorithm":"wait-and-widen","n":null`)))
	It("is accepted: an empty list of nested request algorithms", accepted("RoutingPolicy",
		model(`"algorithm":"random","requestAlgorithms":[{"algorithm":"pulsar","requestAlgorithms":[]}]`)))
	It("is refused: nested request algorithms of any shape", refused("RoutingPolicy",
		model(`"algorithm":"random","requestAlgorithms":[{"algorithm":"pulsar","requestAlgorithms":[{"bogus":{"a":[1]}}]}]`),
		"spec.models[0].requestAlgorithms[0].requestAlgorithms: Invalid value: a request algorithm has no requestAlgorithms of its own (Stargate would drop them in silence); list them beside it"))

	It("is refused: an empty choice", refused("RoutingPlane", plane(`"deletionPolicy":"","allowedPolicies":{"namespaces":{"from":""}}`),
		`spec.deletionPolicy: Invalid value: "": must be one of: Unwind, Retain`,
		`spec.allowedPolicies.namespaces.from: Invalid value: "": must be one of: Same, All, Selector`))
	It("is refused: no waves", refused("RoutingPlane", plane(`"rollout":{"waves":[]}`),
		"spec.rollout.waves: Invalid value: list at least one wave, or leave waves out for the default"))
	It("is refused: a wave beyond 32 bits", refused("RoutingPlane", plane(`"rollout":{"waves":[2147483648]}`), fmt.Sprintf(wave, "2147483648")))
	It("is refused: a wave of a fraction", refused("RoutingPlane", plane(`"rollout":{"waves":[1.5]}`),
		`spec.rollout.waves[0]: Invalid value: "number": spec.rollout.waves[0] in body must be of type integer,string: "number"`,
		`spec.rollout.waves[0]: Invalid value: "number": spec.rollout.waves[0] in body must be of type integer: "number"`))
	It("is refused: a port beyond 32 bits", refused("RoutingPlane", plane(`"gateways":[{"workloadRef":{"kind":"Deployment","name":"g"},"metrics":{"port":4294967296}}]`),
		"spec.gateways[0].metrics.port: Invalid value: 4294967296: port must be from 1 to 65535"))
	It("is refused: a duration in days", refused("RoutingPlane", plane(`"rollout":{"quietPeriod":"1d"}`), fmt.Sprintf(duration, "1d")))
	It("is refused: a duration without a unit", refused("RoutingPlane", plane(`"rollout":{"quietPeriod":"5"}`), fmt.Sprintf(duration, "5")))
	It("is refused: a duration in words", refused("RoutingPlane", plane(`"rollout":{"quietPeriod":"5 minutes"}`), fmt.Sprintf(duration, "5 minutes")))
	It("is refused: an empty duration", refused("RoutingPlane", plane(`"rollout":{"quietPeriod":""}`), fmt.Sprintf(duration, "")))
	It("is refused: a duration of more than 290 years", refused("RoutingPlane", plane(`"rollout":{"quietPeriod":"9999999h"}`),
		`spec.rollout.quietPeriod: Invalid value: "string": type conversion error from 'string' to 'google.protobuf.Duration' evaluating rule: `+
			"quietPeriod must be from 0s to 8760h, such as 10m, 1h30m or 20ms"))
	It("is accepted: a duration in any form that Go takes", accepted("RoutingPlane",
		plane(`"rollout":{"quietPeriod":"+1h1.5m.5s10µs","minInterval":"0","waveInterval":"1.s"}`)))
})

var _ = Describe("A new object", func() {
	It("has a status of no generation yet, and the defaults that the descriptions name", func(ctx context.Context) {
		spec := cases.ValidPlane()
		p := plane("defaults", spec)
		Expect(server.Create(ctx, p, client.DryRunAll)).To(Succeed())
		Expect(p.Status.ObservedGeneration).To(BeEquivalentTo(-1))
		Expect(p.Spec.Stargate.ConfigPath).To(Equal("/etc/routing-operator/lb-config.json"))
		Expect(p.Spec.Stargate.DefaultAlgorithm).To(Equal(v1alpha1.PowerOfN))
		Expect(p.Spec.Stargate.Metrics).To(Equal(v1alpha1.StargateMetrics{Port: 9090, Prefix: "stargate_"}))
		Expect(p.Spec.Gateways[0].Metrics.Port).To(BeEquivalentTo(9464))
		Expect(p.Spec.LastCluster.TTL.Duration.String()).To(Equal("10m0s"))
		Expect(p.Spec.LastCluster.LookupTimeout.Duration.String()).To(Equal("20ms"))
		Expect(*p.Spec.LastCluster.LocalMaxEntries).To(BeEquivalentTo(100000))
		Expect(p.Spec.Rollout.GatewayWarmup).To(BeNil())
		Expect(p.Spec.Rollout.Waves).To(BeNil())
		Expect(p.Spec.AllowedPolicies.Namespaces.From).To(Equal(v1alpha1.NamespacesFromSame))
		Expect(p.Spec.DeletionPolicy).To(Equal(v1alpha1.DeletionUnwind))

		o := policy("defaults", cases.ValidPolicy())
		Expect(server.Create(ctx, o, client.DryRunAll)).To(Succeed())
		Expect(o.Status.ObservedGeneration).To(BeEquivalentTo(-1))
		Expect(o.Spec).To(Equal(cases.ValidPolicy()), "nothing is defaulted: unset, false and 0 are three things")
	})
})

var _ = Describe("The largest policy", func() {
	large := func(change func(*v1alpha1.AlgorithmSettings)) *v1alpha1.RoutingPolicy {
		spec := cases.ValidPolicy()
		spec.Models = nil
		for i := range validate.MaxModels {
			m := v1alpha1.Model{Name: fmt.Sprintf("org/model-%d", i), AlgorithmSettings: cases.Full(v1alpha1.PulsarWaitAndWiden)}
			for _, a := range validate.Algorithms() {
				m.RequestAlgorithms = append(m.RequestAlgorithms, v1alpha1.RequestAlgorithm{AlgorithmSettings: cases.Full(a)})
			}
			change(&m.AlgorithmSettings)
			for j := range m.RequestAlgorithms {
				change(&m.RequestAlgorithms[j].AlgorithmSettings)
			}
			spec.Models = append(spec.Models, m)
		}
		return policy("large", spec)
	}

	It("is accepted with every field on every model and every request algorithm", func(ctx context.Context) {
		Expect(server.Create(ctx, large(func(*v1alpha1.AlgorithmSettings) {}), client.DryRunAll)).To(Succeed())
	})

	It("is refused with every one of its problems, within what rules may cost", func(ctx context.Context) {
		p := large(func(s *v1alpha1.AlgorithmSettings) { s.SampleCount = new(int64(65)) })
		want := validate.Policy(&p.Spec, spec)
		Expect(len(want)).To(BeNumerically(">", 10*validate.MaxModels))
		var problems []string
		for _, err := range want {
			problems = append(problems, err.Error())
		}
		slices.Sort(problems)
		got := causes(server.Create(ctx, p, client.DryRunAll))
		slices.Sort(got)
		Expect(slices.Equal(got, problems)).To(BeTrue(), "%d problems, and of the API server %d", len(problems), len(got))
	})
})

var _ = Describe("A model listed twice", func() {
	It("is refused by server-side apply too", func(ctx context.Context) {
		out, err := kubectl(ctx, `
apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPolicy
metadata: {name: twice, namespace: nvcf}
spec:
  planeRef: {name: llm}
  models: [{name: m, algorithm: random}, {name: m, algorithm: pulsar}]
`, "apply", "--server-side", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(`duplicate entries for key [name="m"]`))
	})
})

var _ = Describe("kubectl explain", func() {
	It("tells what a field means, its unit, its default, for which algorithms it is and since which release", func(ctx context.Context) {
		// The documentation of a new kind is published a while after the kind is.
		expectExplained := func(path string, words ...types.GomegaMatcher) {
			GinkgoHelper()
			Eventually(func() string {
				out, _ := kubectl(ctx, "", "explain", path) // an error is among the words
				return strings.Join(strings.Fields(out), " ")
			}).WithTimeout(time.Minute).Should(And(words...))
		}
		expectExplained("rp.spec.models.cacheAffinityWaitMs",
			ContainSubstring("the time in milliseconds that a request waits for its affinity group"), ContainSubstring("Default 0."),
			ContainSubstring("For wait-and-widen"), ContainSubstring("pulsar-wait-and-widen"), ContainSubstring("Since generation V1 (Stargate 0.18.0)"))
		expectExplained("rp.spec.models", ContainSubstring("V0 begins with release 0.10.0"))
		expectExplained("rpl.spec.rollout.waves", ContainSubstring(`Default [1, "100%"].`))
	})
})
