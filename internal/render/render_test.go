package render_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

func withWork(seconds string) render.Config {
	return render.Config{Models: []v1alpha1.Model{{Name: "m", AlgorithmSettings: v1alpha1.AlgorithmSettings{
		Algorithm: v1alpha1.Random, MaxInputWorkSeconds: new(v1alpha1.Decimal(seconds))}}}}
}

// renderedWork is how a Decimal is written.
func renderedWork(t interface{ Fatal(...any) }, seconds string) string {
	rendered, err := render.LBConfig(withWork(seconds), nil, release.V0)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Models map[string]struct {
			Work json.Number `json:"max_input_work_seconds"`
		}
	}
	if err := json.Unmarshal(rendered.Data, &file); err != nil {
		t.Fatal(err)
	}
	return string(file.Models["m"].Work)
}

func TestDecimalsHaveOneSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "0e999": "0", "-0.0E-5": "0",
		"1": "1", "1.0": "1", "2e0": "2", "10": "10", "-1": "-1", "100e-2": "1", "0.1": "0.1", "0.10": "0.1", "1e-1": "0.1", "1E-1": "0.1",
		"12.50": "12.5", "1e3": "1000", "1.5e+3": "1500", "0.000001": "0.000001", "0.0000001": "1e-7", "1.20e-7": "1.2e-7",
		"100000000000000000000": "100000000000000000000", "1e20": "100000000000000000000", "1e21": "1e21", "1e300": "1e300",
		// A binary float would make 0.1000000000000000055511151231257827 of the first and lose the last digit of the second.
		"0.1000000000000000055511151231": "0.1000000000000000055511151231",
		"9007199254740993.25":            "9007199254740993.25",
		"1e-400":                         "1e-400", "1e-99999999999999999999": "0", "0.01e-9223372036854775807": "0",
	} {
		if got := renderedWork(t, in); got != want {
			t.Errorf("%s is written as %s, want %s", in, got, want)
		}
	}
}

func TestASpellingKeepsTheExactValueAndIsItsOwnSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := decimals.Draw(t, "decimal")
		out := renderedWork(t, in)
		a, _ := new(big.Rat).SetString(in)
		b, ok := new(big.Rat).SetString(out)
		if !ok || a.Cmp(b) != 0 {
			t.Fatalf("%s became %s", in, out)
		}
		if again := renderedWork(t, out); again != out {
			t.Fatalf("%s became %s, which became %s", in, out, again)
		}
		if padded := renderedWork(t, shifted(in)); padded != out {
			t.Fatalf("%s is %s, and written as %s it is %s", in, out, shifted(in), padded)
		}
	})
}

// shifted spells the same number with its point one place to the left.
func shifted(decimal string) string {
	mantissa, exponent, found := strings.Cut(strings.ToLower(decimal), "e")
	if !found {
		exponent = "0"
	}
	power, _ := new(big.Int).SetString(strings.TrimPrefix(exponent, "+"), 10)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	negative := strings.HasPrefix(whole, "-")
	whole = strings.TrimPrefix(whole, "-")
	last := len(whole) - 1
	head := whole[:last]
	if head == "" {
		head = "0"
	}
	sign := ""
	if negative {
		sign = "-"
	}
	return fmt.Sprintf("%s%s.%s%s0e%s", sign, head, whole[last:], fraction, power.Add(power, big.NewInt(1)))
}

func TestLBConfigRefuses(t *testing.T) {
	entry := v1alpha1.RequestAlgorithm{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Pulsar}}
	model := v1alpha1.Model{Name: "m", AlgorithmSettings: entry.AlgorithmSettings}
	tests := map[string]struct {
		in   render.Config
		want string
	}{
		"a number that JSON does not have": {withWork("00.5"), `render lb-config.json: model "m": maxInputWorkSeconds: "00.5" is no JSON number; write it like "0.1", "2" or "1e-3"`},
		"a number with a blank":            {withWork("1 "), `"1 " is no JSON number`},
		"a point without a digit":          {withWork(".5"), `".5" is no JSON number`},
		"text for a number":                {withWork("NaN"), `"NaN" is no JSON number`},
		"no text for a number":             {withWork(""), `"" is no JSON number`},
		"more JSON for a number":           {withWork("1,\"n\":2"), `is no JSON number`},
		"a number beyond a float":          {withWork("1e309"), `"1e309" is beyond the range`},
		"a model twice":                    {render.Config{Models: []v1alpha1.Model{model, model}}, `model "m": listed twice`},
		"a request algorithm twice":        {render.Config{RequestAlgorithms: []v1alpha1.RequestAlgorithm{entry, entry}}, `request algorithm pulsar of the plane: listed twice`},
		"a request algorithm of a model twice": {render.Config{Models: []v1alpha1.Model{{Name: "m", AlgorithmSettings: entry.AlgorithmSettings,
			RequestAlgorithms: []v1alpha1.RequestAlgorithm{entry, entry}}}}, `request algorithm pulsar of model "m": listed twice`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rendered, err := render.LBConfig(test.in, nil, release.V3)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %s", err, test.want)
			}
			if rendered.Data != nil {
				t.Errorf("rendered %s beside the error", rendered.Data)
			}
		})
	}
}

func TestEverySettingOfTheAPIIsRendered(t *testing.T) {
	settings := reflect.TypeFor[v1alpha1.AlgorithmSettings]()
	for i := range settings.NumField() {
		name, _, _ := strings.Cut(settings.Field(i).Tag.Get("json"), ",")
		if name == "algorithm" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}
			value := reflect.ValueOf(&s).Elem().Field(i)
			value.Set(reflect.New(value.Type().Elem()))
			if value.Elem().Type() == reflect.TypeFor[v1alpha1.Decimal]() {
				value.Elem().SetString("0")
			}
			rendered, err := render.LBConfig(render.Config{Models: []v1alpha1.Model{{Name: "m", AlgorithmSettings: s}}}, nil, release.Newest)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(rendered.Data), `"`+snake.Replace(name)+`":`) {
				t.Errorf("not in %s", rendered.Data)
			}
		})
	}
}

func TestFlagsAreListedAndGroupedByUnit(t *testing.T) {
	b, bNested := render.Flag{Model: "b"}, render.Flag{Model: "b", RequestAlgorithm: v1alpha1.PulsarWaitAndWiden}
	a := render.Flag{Model: "a", RequestAlgorithm: v1alpha1.WaitAndWiden}
	nameless := render.Flag{}
	plane := render.Flag{Plane: true, RequestAlgorithm: v1alpha1.WaitAndWiden}
	flags := sets.New(plane, bNested, a, b, nameless)

	if got, want := render.SortFlags(flags), []render.Flag{nameless, a, b, bNested, plane}; !slices.Equal(got, want) {
		t.Errorf("flags %v, want %v", got, want)
	}
	if got, want := render.Units(flags), []render.Unit{{}, {Model: "a"}, {Model: "b"}, {Plane: true}}; !slices.Equal(got, want) {
		t.Errorf("units %v, want %v", got, want)
	}
	if got, want := render.OfUnits(flags, render.Unit{Model: "b"}, render.Unit{Plane: true}), sets.New(b, bNested, plane); !got.Equal(want) {
		t.Errorf("flags of units %v, want %v", got, want)
	}
}

func TestGatewayVariables(t *testing.T) {
	tests := map[string]struct {
		spec    v1alpha1.LastClusterSpec
		enabled bool
		want    map[string]string
	}{
		"what is unset has the gateway's default": {v1alpha1.LastClusterSpec{}, true, map[string]string{
			"STARGATE_LAST_CLUSTER_ENABLED":           "true",
			"STARGATE_LAST_CLUSTER_TTL":               "10m0s",
			"STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT":    "20ms",
			"STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES": "100000",
		}},
		"what is set is what is rendered, and off is an explicit false": {v1alpha1.LastClusterSpec{
			TTL:             &metav1.Duration{Duration: 90 * time.Minute},
			LookupTimeout:   &metav1.Duration{Duration: 1500 * time.Microsecond},
			LocalMaxEntries: new(int64(1)),
		}, false, map[string]string{
			"STARGATE_LAST_CLUSTER_ENABLED":           "false",
			"STARGATE_LAST_CLUSTER_TTL":               "1h30m0s",
			"STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT":    "1.5ms",
			"STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES": "1",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := render.GatewayVariables(test.spec, test.enabled)
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("variables %v, want %v", got, test.want)
			}
			for _, name := range []string{"STARGATE_LAST_CLUSTER_TTL", "STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT"} {
				if _, err := time.ParseDuration(got[name]); err != nil {
					t.Errorf("%s: the gateway cannot parse %q", name, got[name])
				}
			}
			names := render.GatewayVariableNames()
			if len(names) != len(got) || !slices.IsSorted(names) {
				t.Errorf("names %v of variables %v", names, got)
			}
			for _, name := range names {
				if _, ok := got[name]; !ok {
					t.Errorf("%s is named and not rendered", name)
				}
			}
		})
	}
}

func TestRevisionNames(t *testing.T) {
	data := map[string]string{"lb-config.json": "{}\n"}
	if got, want := render.RevisionName("llm", render.ArtefactStargate, data), "llm-stargate-"; !strings.HasPrefix(got, want) || len(got) != len(want)+16 {
		t.Errorf("name %s, want %s and a hash", got, want)
	}
	if a, b := render.RevisionName("a", render.ArtefactStargate, data), render.RevisionName("b", render.ArtefactStargate, data); a[1:] != b[1:] {
		t.Errorf("the hash is not of the data alone: %s and %s", a, b)
	}

	long := strings.Repeat("a", 253)
	names := map[string]string{}
	for what, name := range map[string]string{
		"a plane":                              render.RevisionName("llm", render.ArtefactStargate, data),
		"its gateways":                         render.RevisionName("llm", render.ArtefactGateway, data),
		"another content":                      render.RevisionName("llm", render.ArtefactStargate, map[string]string{"lb-config.json": "{}"}),
		"no content":                           render.RevisionName("llm", render.ArtefactStargate, nil),
		"another key":                          render.RevisionName("llm", render.ArtefactStargate, map[string]string{"x": "{}\n"}),
		"a key that takes from its value":      render.RevisionName("llm", render.ArtefactStargate, map[string]string{"lb-config.json{": "}\n"}),
		"two keys":                             render.RevisionName("llm", render.ArtefactStargate, map[string]string{"a": "b", "c": "d"}),
		"one key of the same bytes":            render.RevisionName("llm", render.ArtefactStargate, map[string]string{"a": "bcd"}),
		"a plane named like a revision":        render.RevisionName("llm-stargate", render.ArtefactStargate, data),
		"a plane with a dot":                   render.RevisionName("llm.stargate", render.ArtefactStargate, data),
		"the longest name":                     render.RevisionName(long, render.ArtefactStargate, data),
		"the longest name with another end":    render.RevisionName(long[:252]+"b", render.ArtefactStargate, data),
		"the longest name of a gateway":        render.RevisionName(long, render.ArtefactGateway, data),
		"a name whose cut falls behind a dot":  render.RevisionName(strings.Repeat("a.", 126)+"a", render.ArtefactStargate, data),
		"a name whose cut falls behind a dash": render.RevisionName(strings.Repeat("a-", 126)+"a", render.ArtefactStargate, data),
	} {
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("%s: %s: %v", what, name, errs)
		}
		if other, ok := names[name]; ok {
			t.Errorf("%s and %s share the name %s", what, other, name)
		}
		names[name] = what
	}
}

func TestAPlaneCannotTakeTheNameOfAnotherPlanesRevision(t *testing.T) {
	data := map[string]string{"k": "v"}
	long := strings.Repeat("a", 253)
	revision := render.RevisionName(long, render.ArtefactStargate, data)
	// The plane that is called what the long name is cut to.
	impostor := revision[:strings.LastIndex(revision, "-stargate-")]
	if got := render.RevisionName(impostor, render.ArtefactStargate, data); got == revision {
		t.Errorf("planes %s and %s share the revision %s", impostor, long, got)
	}
}

func TestRevisionNamesAreUniqueForEveryLengthOfName(t *testing.T) {
	seen := map[string]int{}
	for length := 1; length <= 253; length++ {
		name := render.RevisionName(strings.Repeat("p", length), render.ArtefactGateway, nil)
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("%d characters: %s: %v", length, name, errs)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%d and %d characters share the name %s", length, other, name)
		}
		seen[name] = length
	}
}
