package validate_test

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// The properties hold the rules against the strict reader of lb-config.json, which shares none of them.

// decimalFields are written into the file as they stand.
var decimalFields = []string{"maxInputWorkSeconds", "cacheAffinityInputTokensScale", "nextBucketUnlockFactor"}

var (
	goodNumbers = rapid.SampledFrom([]string{"0", "1", "0.5", "-0", "1.0", "10E-1", "1e-400", "1.00000000000000000001"})
	badNumbers  = rapid.SampledFrom([]string{"-1", "1.1", "2", "1e308", "", ".5", "00.5", "+1", "1e", "NaN", "-", "0x10", "1e309", "true"})
	badTexts    = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "TTFT", "latency", "mean"}))
	badIntegers = rapid.SampledFrom([]int64{-1 << 63, -1, 0, 65, 1<<63 - 1})
)

// once in n times; rapid shrinks it towards no.
func once(t *rapid.T, n int, label string) bool {
	return rapid.IntRange(1, n).Draw(t, label) == n
}

// drawSettings sets every field that the algorithm takes every other time. A value that some fields refuse, or a
// field that the algorithm refuses, is rare, so that about as many policies are valid as are not.
func drawSettings(t *rapid.T, a v1alpha1.Algorithm) v1alpha1.AlgorithmSettings {
	drawn := map[string]any{"algorithm": a}
	for _, f := range validate.Fields() {
		often := 2
		if !f.SupportedBy(a) {
			often = 200
		}
		if !once(t, often, "set "+f.Name) {
			continue
		}
		bad := once(t, 40, "bad "+f.Name)
		var value any
		switch {
		case slices.Contains(decimalFields, f.Name) && bad:
			value = badNumbers.Draw(t, f.Name)
		case slices.Contains(decimalFields, f.Name):
			value = goodNumbers.Draw(t, f.Name)
		case f.Name == "seed", len(f.Values) > 0 && bad:
			value = badTexts.Draw(t, f.Name)
		case len(f.Values) > 0:
			value = rapid.SampledFrom(f.Values).Draw(t, f.Name)
		case f.Max > f.Min && bad:
			value = badIntegers.Draw(t, f.Name)
		case f.Max > f.Min:
			value = rapid.Int64Range(1, 64).Draw(t, f.Name)
		default:
			value = rapid.Bool().Draw(t, f.Name)
		}
		drawn[f.Name] = value
	}
	var s v1alpha1.AlgorithmSettings
	if err := json.Unmarshal(marshal(t, drawn), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func marshal(t *rapid.T, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// drawPolicy avoids what is the API's own business (aliases, anything listed twice, nesting, lengths): what is
// wrong with the drawn policy is wrong with its file.
func drawPolicy(t *rapid.T) v1alpha1.RoutingPolicySpec {
	spec := v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: "llm"}, Models: []v1alpha1.Model{}}
	for _, name := range rapid.SliceOfNDistinct(rapid.String(), 0, 3, rapid.ID).Draw(t, "models") {
		a := rapid.SampledFrom(validate.Algorithms()).Draw(t, "algorithm")
		if once(t, 20, "no algorithm") {
			a = rapid.SampledFrom([]v1alpha1.Algorithm{"", "Pulsar", "least-loaded"}).Draw(t, "algorithm")
		}
		m := v1alpha1.Model{Name: name, AlgorithmSettings: drawSettings(t, a)}
		for _, a := range rapid.SliceOfNDistinct(rapid.SampledFrom(validate.Algorithms()), 0, 2, rapid.ID).Draw(t, "requests") {
			m.RequestAlgorithms = append(m.RequestAlgorithms, v1alpha1.RequestAlgorithm{AlgorithmSettings: drawSettings(t, a)})
		}
		spec.Models = append(spec.Models, m)
	}
	return spec
}

// literally writes a policy down as an lb-config.json, right or wrong.
func literally(t *rapid.T, spec *v1alpha1.RoutingPolicySpec) []byte {
	models := object{}
	for i := range spec.Models {
		m := &spec.Models[i]
		entry := entryOf(t, &m.AlgorithmSettings)
		if len(m.RequestAlgorithms) > 0 {
			requests := object{}
			for j := range m.RequestAlgorithms {
				r := &m.RequestAlgorithms[j]
				requests.add(t, string(r.Algorithm), entryOf(t, &r.AlgorithmSettings).text())
			}
			entry.add(t, "request_algorithms", requests.text())
		}
		models.add(t, m.Name, entry.text())
	}
	file := object{}
	file.add(t, "models", models.text())
	return []byte(file.text())
}

// object is JSON that may be malformed: a decimal that is no number goes in as it is.
type object struct{ members string }

func (o *object) add(t *rapid.T, name, value string) {
	if o.members != "" {
		o.members += ","
	}
	o.members += string(marshal(t, name)) + ":" + value
}

func (o *object) text() string { return "{" + o.members + "}" }

func entryOf(t *rapid.T, s *v1alpha1.AlgorithmSettings) *object {
	var set map[string]json.RawMessage
	if err := json.Unmarshal(marshal(t, s), &set); err != nil {
		t.Fatal(err)
	}
	entry := &object{}
	entry.add(t, "algorithm", string(set["algorithm"]))
	for _, f := range validate.Fields() {
		value, ok := set[f.Name]
		if !ok {
			continue
		}
		if slices.Contains(decimalFields, f.Name) {
			var decimal string
			if err := json.Unmarshal(value, &decimal); err != nil {
				t.Fatal(err)
			}
			value = json.RawMessage(decimal)
		}
		entry.add(t, f.FileName(), string(value))
	}
	return entry
}

func TestAPolicyIsRefusedExactlyWhenStargateWouldRefuseItsFile(t *testing.T) {
	verdicts := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		spec := drawPolicy(t)
		errs := validate.Policy(&spec, root)
		file := literally(t, &spec)
		_, err := lbconfig.Read(file, release.Newest)
		if (len(errs) == 0) != (err == nil) {
			t.Fatalf("errors of the policy: %v\nof the file: %v\n%s", errs, err, file)
		}
		verdicts[err == nil]++
	})
	if verdicts[true] == 0 || verdicts[false] == 0 {
		t.Errorf("%d accepted, %d refused: one of the two was not tried", verdicts[true], verdicts[false])
	}
	t.Logf("%d accepted, %d refused", verdicts[true], verdicts[false])
}

func TestWhatIsAcceptedRendersAFileThatEveryGenerationAccepts(t *testing.T) {
	rapid.Check(t, acceptedRenders)
}

// FuzzWhatIsAcceptedRendersAFileThatEveryGenerationAccepts is the same, led by coverage.
func FuzzWhatIsAcceptedRendersAFileThatEveryGenerationAccepts(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(acceptedRenders))
}

func acceptedRenders(t *rapid.T) {
	spec := drawPolicy(t)
	spec.Models = slices.DeleteFunc(spec.Models, func(m v1alpha1.Model) bool {
		one := v1alpha1.RoutingPolicySpec{PlaneRef: spec.PlaneRef, Models: []v1alpha1.Model{m}}
		return len(validate.Policy(&one, root)) > 0
	})
	if errs := validate.Policy(&spec, root); len(errs) > 0 {
		t.Fatalf("models that are accepted one by one are refused together: %v", errs)
	}
	config := render.Config{DefaultAlgorithm: v1alpha1.PowerOfN, Models: spec.Models}
	for g := release.Unsupported; g <= release.Newest; g++ {
		rendered, err := render.LBConfig(config, render.Desired(config), g)
		if err != nil {
			t.Fatalf("%s: %v", g, err)
		}
		if _, err := lbconfig.Read(rendered.Data, g); err != nil {
			t.Fatalf("%s refuses what was accepted: %v\n%s", g, err, rendered.Data)
		}
	}
}
