package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsjson "sigs.k8s.io/json"

	"github.com/routing-operator/routing-operator/internal/admit"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/validate/cases"
)

// The same object is put to the API server and to the plugin. What each says differs in wording where the API server
// has none of its own; whether it is refused must not differ.
var _ = Describe("The verdict", func() {
	var judge *admit.Judge
	var strict client.Client

	BeforeEach(func() {
		if judge == nil {
			var err error
			judge, err = admit.New(validate.Options{})
			Expect(err).NotTo(HaveOccurred())
		}
		strict = client.WithFieldValidation(admin, metav1.FieldValidationStrict)
	})

	both := func(ctx context.Context, kind string, spec any) {
		GinkgoHelper()
		raw, err := json.Marshal(spec)
		Expect(err).NotTo(HaveOccurred())
		data := fmt.Appendf(nil, `{"apiVersion":"routing.nvcf.io/v1alpha1","kind":%q,"metadata":{"name":"case","namespace":"default"},"spec":%s}`, kind, raw)
		object := map[string]any{}
		Expect(sigsjson.UnmarshalCaseSensitivePreserveInts(data, &object)).To(Succeed())
		verdict := judge.Review(object, data)
		answered := strict.Create(ctx, &unstructured.Unstructured{Object: object}, client.DryRunAll)
		if answered != nil {
			Expect(apierrors.IsInvalid(answered) || apierrors.IsBadRequest(answered)).To(BeTrue(), "%v", answered)
		}
		refused := len(verdict.Errors)+len(verdict.Unknown) > 0
		Expect(refused).To(Equal(answered != nil), "the plugin: %v %v\nthe API server: %v", verdict.Errors, verdict.Unknown, answered)
	}
	for _, c := range cases.Policies() {
		It("is that of the API server: "+c.Name, func(ctx SpecContext) {
			spec := cases.ValidPolicy()
			c.Change(&spec)
			both(ctx, "RoutingPolicy", spec)
		})
	}
	for _, c := range cases.Planes() {
		It("is that of the API server: "+c.Name, func(ctx SpecContext) {
			spec := cases.ValidPlane()
			c.Change(&spec)
			both(ctx, "RoutingPlane", spec)
		})
	}

	policy := func(metadata, model string) string {
		return "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\nmetadata: " + metadata + "\nspec:\n  planeRef: {name: llm}\n  models:\n  - " + model + "\n"
	}
	plane := func(fields string) string {
		return "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPlane\nmetadata: {name: case}\nspec:\n  stargate: {workloadRef: {kind: Deployment, name: r}}\n" + fields + "\n"
	}
	const named = "{name: case}"
	for name, text := range map[string]string{
		"a good policy":                              policy(named, "{name: m, algorithm: random}"),
		"a good plane":                               plane(""),
		"a list of objects":                          "apiVersion: v1\nkind: List\nitems:\n- " + indented(policy(named, "{name: m, algorithm: random}")),
		"a bad object in a list":                     "apiVersion: v1\nkind: List\nitems:\n- " + indented(policy(named, "{name: m, algorithm: random, n: 1}")),
		"JSON":                                       `{"apiVersion":"routing.nvcf.io/v1alpha1","kind":"RoutingPolicy","metadata":{"name":"case"},"spec":{"planeRef":{"name":"llm"},"models":[]}}`,
		"two documents, the second of them bad":      policy(named, "{name: m, algorithm: random}") + "---\n" + policy("{name: other}", "{name: m, algorithm: random, sampleCount: 1}"),
		"a separator with a comment":                 policy(named, "{name: m, algorithm: random}") + "--- # next\n" + policy("{name: other}", "{name: m, algorithm: random}"),
		"a separator with more than that":            policy(named, "{name: m, algorithm: random}") + "--- {}\n" + policy("{name: other}", "{name: m, algorithm: random}"),
		"an unquoted n, which YAML takes for false":  policy(named, "{name: m, algorithm: wait-and-widen, n: 2}"),
		"a quoted n":                                 policy(named, `{name: m, algorithm: wait-and-widen, "n": 2}`),
		"an unquoted on for a text":                  policy(named, "{name: m, algorithm: pulsar, seed: on}"),
		"a number for a text":                        policy(named, "{name: 7, algorithm: pulsar}"),
		"a whole number with a fraction of 0":        policy(named, `{name: m, algorithm: wait-and-widen, maxQueued: 2.0}`),
		"an octal number":                            policy(named, `{name: m, algorithm: wait-and-widen, maxQueued: 010}`),
		"a number with an underscore":                policy(named, `{name: m, algorithm: wait-and-widen, maxQueued: 1_000}`),
		"a number beyond 64 bits":                    policy(named, `{name: m, algorithm: wait-and-widen, maxQueued: 9223372036854775808}`),
		"a fraction":                                 policy(named, `{name: m, algorithm: wait-and-widen, maxQueued: 2.5}`),
		"a truth value by an old name":               policy(named, `{name: m, algorithm: pulsar, considerKvFreeTokens: yes}`),
		"a null setting":                             policy(named, `{name: m, algorithm: pulsar, seed: null}`),
		"a null name":                                policy(named, `{name: null, algorithm: pulsar}`),
		"a model without a name":                     policy(named, `{algorithm: pulsar}`),
		"a model that is a text":                     policy(named, `random`),
		"a field in the spelling of the file":        policy(named, `{name: m, algorithm: wait-and-widen, max_queued: 2}`),
		"a field in capitals":                        policy(named, `{name: m, algorithm: wait-and-widen, MaxQueued: 2}`),
		"a key that stands twice":                    policy(named, "{name: m, algorithm: random}") + "  planeRef: {name: other}\n",
		"an anchor and an alias":                     policy(named, "&a {name: m, algorithm: random}") + "  - {name: k, algorithm: pulsar, requestAlgorithms: [{algorithm: random}]}\n",
		"no spec":                                    "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: case}\n",
		"no models":                                  "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: case}\nspec: {planeRef: {name: llm}}\n",
		"an unknown field beside the spec":           policy(named, "{name: m, algorithm: random}") + "extra: 1\n",
		"a status of the author's own":               policy(named, "{name: m, algorithm: random}") + "status: {summary: mine, models: [{name: m, state: Pending}]}\n",
		"an unknown field in the status":             policy(named, "{name: m, algorithm: random}") + "status: {bogus: 1}\n",
		"a name in capitals":                         policy("{name: Case}", "{name: m, algorithm: random}"),
		"a label with a blank":                       policy("{name: case, labels: {a: b c}}", "{name: m, algorithm: random}"),
		"a label of a number":                        policy("{name: case, labels: {a: 1}}", "{name: m, algorithm: random}"),
		"an annotation with dots":                    policy(`{name: case, annotations: {a.b/c: "d"}}`, "{name: m, algorithm: random}"),
		"an unknown field of the metadata":           policy("{name: case, lables: {a: b}}", "{name: m, algorithm: random}"),
		"a creation time of null":                    policy("{name: case, creationTimestamp: null}", "{name: m, algorithm: random}"),
		"no version":                                 strings.Replace(policy(named, "{name: m, algorithm: random}"), "apiVersion: routing.nvcf.io/v1alpha1\n", "", 1),
		"no kind":                                    strings.Replace(policy(named, "{name: m, algorithm: random}"), "kind: RoutingPolicy\n", "", 1),
		"a version that there is not":                strings.Replace(policy(named, "{name: m, algorithm: random}"), "v1alpha1", "v1", 1),
		"a kind that there is not":                   strings.Replace(policy(named, "{name: m, algorithm: random}"), "RoutingPolicy", "RoutingPolicies", 1),
		"an empty choice":                            plane(`  deletionPolicy: ""`),
		"no waves":                                   plane(`  rollout: {waves: []}`),
		"a wave beyond 32 bits":                      plane(`  rollout: {waves: [2147483648]}`),
		"a wave of a fraction":                       plane(`  rollout: {waves: [1.5]}`),
		"waves of both kinds":                        plane(`  rollout: {waves: [1, "50%"]}`),
		"a duration in days":                         plane(`  rollout: {quietPeriod: 1d}`),
		"a duration in any form of Go's":             plane(`  rollout: {quietPeriod: +1h1.5m.5s10µs}`),
		"a duration of more than 290 years":          plane(`  rollout: {quietPeriod: 9999999h}`),
		"a number for a duration":                    plane(`  rollout: {quietPeriod: 5}`),
		"a path outside of what the webhook allows":  strings.Replace(plane(""), "name: r}", "name: r}, configPath: /opt/other/lb-config.json", 1),
		"a selector with an operator there is not":   plane(`  allowedPolicies: {namespaces: {from: Selector, selector: {matchExpressions: [{key: a, operator: Is}]}}}`),
		"a selector with a label that can be none":   plane(`  allowedPolicies: {namespaces: {from: Selector, selector: {matchLabels: {"a b": c}}}}`),
		"a gateway twice":                            plane(`  gateways: [{workloadRef: {kind: Deployment, name: g}}, {workloadRef: {kind: Deployment, name: g}}]`),
		"a release that is stated twice":             strings.Replace(plane(""), "name: r}", "name: r}, releases: [{image: a, version: V3}, {image: a, version: V2}]", 1),
		"a template that was not rendered":           policy(named, "{name: {{ .Values.model }}, algorithm: random}"),
		"a byte order mark":                          "\ufeff" + policy(named, "{name: m, algorithm: random}"),
		"UTF-16, as the shell of Windows writes it":  "\xff\xfe" + strings.Join(strings.Split(policy(named, "{name: m, algorithm: random, n: 1}"), ""), "\x00") + "\x00",
		"a request algorithm nested in another":      policy(named, "{name: m, algorithm: random, requestAlgorithms: [{algorithm: pulsar, requestAlgorithms: [{algorithm: random}]}]}"),
		"an empty list in a request algorithm":       policy(named, "{name: m, algorithm: random, requestAlgorithms: [{algorithm: pulsar, requestAlgorithms: []}]}"),
		"a null list of request algorithms":          policy(named, "{name: m, algorithm: random, requestAlgorithms: null}"),
		"a null list of models":                      "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: case}\nspec: {planeRef: {name: llm}, models: null}\n",
		"a spec of text":                             "apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: case}\nspec: text\n",
		"a plane whose optional parts are all empty": plane("  gateways: []\n  lastCluster: {}\n  rollout: {}\n  allowedPolicies: {}"),
		"a plane whose optional parts are null":      plane("  gateways: null\n  lastCluster: null\n  rollout: {pin: null}"),
	} {
		It("on text is that of kubectl and the API server: "+name, func(ctx SpecContext) {
			apply := env.Kubectl(ctx, "apply", "--dry-run=server", "-f", "-")
			apply.Stdin = strings.NewReader(text)
			out, err := apply.CombinedOutput()
			got := routing(ctx, text, "validate", "-f", "-")
			Expect(got.code).To(Equal(map[bool]int{true: 1}[err != nil]), "the plugin: %+v\nkubectl: %s", got, out)
		})
	}
})

// indented puts a document into a list.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}
