package preview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/preview"
	"github.com/routing-operator/routing-operator/internal/render"
)

// config of models, in YAML as in a policy, and of a plane's request algorithms behind "plane".
func config(t *testing.T, text string) render.Config {
	t.Helper()
	var parsed struct {
		DefaultAlgorithm  v1alpha1.Algorithm
		RequestAlgorithms []v1alpha1.RequestAlgorithm
		Models            []v1alpha1.Model
	}
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	return render.Config{DefaultAlgorithm: parsed.DefaultAlgorithm, RequestAlgorithms: parsed.RequestAlgorithms, Models: parsed.Models}
}

func TestADifferenceIsOneOfMeaning(t *testing.T) {
	for name, test := range map[string]struct {
		from, to string
		want     []string
	}{
		"the order of models, and how a number is written, mean nothing": {
			`models: [{name: a, algorithm: random, maxInputWorkSeconds: "0.10"}, {name: b, algorithm: random}]`,
			`models: [{name: b, algorithm: random}, {name: a, algorithm: random, maxInputWorkSeconds: "1e-1"}]`, nil},
		"unset and the default are two": {
			`models: [{name: a, algorithm: wait-and-widen}]`, `models: [{name: a, algorithm: wait-and-widen, maxQueued: 0}]`,
			[]string{`model "a" maxQueued: "" -> "0"`}},
		"settings of a model and of its request algorithms": {
			`models: [{name: a, algorithm: pulsar, seed: x, requestAlgorithms: [{algorithm: random}]}]`,
			`models: [{name: a, algorithm: pulsar, seed: z, considerKvFreeTokens: true, requestAlgorithms: [{algorithm: round-robin}]}]`,
			[]string{`model "a" considerKvFreeTokens: "" -> "true"`, `model "a" seed: "x" -> "z"`,
				`request algorithm random of model "a" algorithm: "random" -> ""`, `request algorithm round-robin of model "a" algorithm: "" -> "round-robin"`}},
		"a model that is new, with all that it has, and one that is gone": {
			`models: [{name: a, algorithm: pulsar, seed: x}]`, `models: [{name: b, algorithm: pulsar, seed: x}]`,
			[]string{`model "a" algorithm: "pulsar" -> ""`, `model "a" seed: "x" -> ""`, `model "b" algorithm: "" -> "pulsar"`, `model "b" seed: "" -> "x"`}},
		"what the plane says for all models": {
			`{defaultAlgorithm: random, requestAlgorithms: [{algorithm: pulsar}]}`, `{defaultAlgorithm: pulsar, requestAlgorithms: [{algorithm: pulsar, seed: s}]}`,
			[]string{`request algorithm pulsar of the plane seed: "" -> "s"`, `the plane defaultAlgorithm: "random" -> "pulsar"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range preview.Diff(config(t, test.from), config(t, test.to)) {
				got = append(got, fmt.Sprintf("%s %s: %q -> %q", c.Where(), c.Field, c.From, c.To))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestEntriesOnOneSideAreToldApart(t *testing.T) {
	from, to := config(t, `models: [{name: a, algorithm: random}]`), config(t, `models: [{name: b, algorithm: random}]`)
	changes := preview.Diff(from, to)
	if len(changes) != 2 || !changes[0].Removed() || changes[0].Added() || !changes[1].Added() || changes[1].Removed() {
		t.Errorf("got %+v", changes)
	}
}

func TestSessionsMoveWhereWhatPlacesThemChanges(t *testing.T) {
	model := func(settings string) string { return `models: [{name: m, ` + settings + `}]` }
	for name, test := range map[string]struct{ from, to, want string }{
		"another seed":            {model(`algorithm: pulsar, seed: a`), model(`algorithm: pulsar, seed: b`), `model "m": seed "a" -> "b": every session is placed anew`},
		"the same in other words": {model(`algorithm: pulsar-wait-and-widen`), model(`algorithm: pulsar-wait-and-widen, cacheAffinityBackendSelectionCount: 0, seed: ""`), ""},
		"from pulsar to pulsar-wait-and-widen the ranking stays": {model(`algorithm: pulsar, seed: a`), model(`algorithm: pulsar-wait-and-widen, seed: a, maxQueued: 4`), ""},
		"a larger group": {model(`algorithm: pulsar-wait-and-widen`), model(`algorithm: pulsar-wait-and-widen, cacheAffinityBackendSelectionCount: 2`), `model "m": k 1 -> 2: a part of the sessions moves`},
		"another weight": {model(`algorithm: pulsar`), model(`algorithm: pulsar, rendezvousWeight: last-mean-input-tps`), `model "m": rendezvousWeight unset -> last-mean-input-tps: a part of the sessions moves`},
		"from a ranking to a ring": {model(`algorithm: pulsar`), model(`algorithm: wait-and-widen, cacheAffinityBackendSelectionCount: 1`),
			`model "m": pulsar -> wait-and-widen: every session is placed anew, since one ranks and the other walks a ring`},
		"more points on the ring": {model(`algorithm: wait-and-widen, cacheAffinityBackendSelectionCount: 1`), model(`algorithm: wait-and-widen, cacheAffinityBackendSelectionCount: 1, cacheAffinityVirtualNodes: 10`),
			`model "m": cacheAffinityVirtualNodes 150 -> 10: every session is placed anew`},
		"no group any more":                                  {model(`algorithm: wait-and-widen, cacheAffinityBackendSelectionCount: 1`), model(`algorithm: wait-and-widen`), `model "m": wait-and-widen no longer keeps sessions on their clusters`},
		"nothing was kept before":                            {model(`algorithm: random`), model(`algorithm: pulsar, seed: a`), ""},
		"a seed without a group":                             {model(`algorithm: wait-and-widen, seed: a`), model(`algorithm: wait-and-widen, seed: b`), ""},
		"a model that goes, to a default that keeps nothing": {model(`algorithm: pulsar`), `{}`, `model "m": power-of-n no longer keeps sessions on their clusters`},
		"a model that comes out of a default that kept them": {`defaultAlgorithm: pulsar`, `{defaultAlgorithm: pulsar, models: [{name: m, algorithm: pulsar, seed: a}]}`, `model "m": seed "" -> "a": every session is placed anew`},
		"another default":                                    {`defaultAlgorithm: pulsar`, `defaultAlgorithm: random`, `the plane: models without an entry: random no longer keeps sessions on their clusters`},
		"a request algorithm that goes": {model(`algorithm: random, requestAlgorithms: [{algorithm: pulsar}]`), model(`algorithm: random`),
			`request algorithm pulsar of model "m": what takes its place no longer keeps sessions on their clusters`},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range preview.Remaps(config(t, test.from), config(t, test.to)) {
				got = append(got, r.Where()+": "+r.Why)
			}
			if strings.Join(got, "; ") != test.want {
				t.Errorf("got %q, want %q", strings.Join(got, "; "), test.want)
			}
		})
	}
}
