package render_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

// since are the generations of the fields that V0 does not know, by the API's spelling.
var since = map[string]release.Generation{
	"cacheAffinityWaitMs":           release.V1,
	"cacheAffinityInputTokensScale": release.V1,
	"bandWidenIntervalMs":           release.V2,
	"fallbackMaxQueued":             release.V2,
	"rendezvousWeight":              release.V2,
	"lastClusterAffinity":           release.V3,
}

var (
	common  = []string{"RequireCacheAffinityKey", "RequireInputTokens", "MaxInputWorkSeconds"}
	widener = []string{"Seed", "CacheAffinityVirtualNodes", "CacheAffinityBackendSelectionCount", "CacheAffinityWaitMs",
		"CacheAffinityInputTokensScale", "MaxQueueTimeFloorMs", "MaxQueueTimeCeilMs", "TtftBucketSizeMs", "NextBucketUnlockFactor",
		"N", "MaxQueued", "IgnoreQueueTime", "IgnoreInputProcessingTime", "LastClusterAffinity"}
	taken = map[v1alpha1.Algorithm][]string{
		v1alpha1.PowerOfN:           append([]string{"Comparator", "SampleCount"}, common...),
		v1alpha1.WaitAndWiden:       slices.Concat([]string{"Comparator"}, widener, common),
		v1alpha1.RoundRobin:         common,
		v1alpha1.Random:             common,
		v1alpha1.Pulsar:             append([]string{"Seed", "ConsiderKvFreeTokens", "RendezvousWeight"}, common...),
		v1alpha1.PulsarWaitAndWiden: slices.Concat([]string{"ConsiderKvFreeTokens", "RendezvousWeight", "BandWidenIntervalMs", "FallbackMaxQueued"}, widener, common),
	}
	algorithms = []v1alpha1.Algorithm{v1alpha1.PowerOfN, v1alpha1.WaitAndWiden, v1alpha1.RoundRobin, v1alpha1.Random, v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden}
)

var (
	decimals = rapid.StringMatching(`-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?`)
	scales   = rapid.StringMatching(`(0(\.[0-9]{1,8})?|1(\.0{1,4})?|[0-9]e-0?[1-9])`)
	strs     = rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9./:_-]{0,40}`), rapid.SampledFrom([]string{"", "\x00", "\u2028", `a"\<>&`}))
)

func drawSettings(t *rapid.T, algorithm v1alpha1.Algorithm) v1alpha1.AlgorithmSettings {
	s := v1alpha1.AlgorithmSettings{Algorithm: algorithm}
	value := reflect.ValueOf(&s).Elem()
	for _, name := range taken[algorithm] {
		if rapid.Bool().Draw(t, "unset") {
			continue
		}
		field := value.FieldByName(name)
		field.Set(reflect.New(field.Type().Elem()))
		drawn := field.Elem()
		switch {
		case name == "SampleCount":
			drawn.SetInt(rapid.Int64Range(1, 64).Draw(t, name))
		case name == "CacheAffinityInputTokensScale":
			drawn.SetString(scales.Draw(t, name))
		case name == "Comparator":
			drawn.SetString(rapid.SampledFrom([]string{"ttft", "queue-time", "input-work-seconds", "utilization", "num-requests-queued"}).Draw(t, name))
		case name == "RendezvousWeight":
			drawn.SetString(rapid.SampledFrom([]string{"max-input-tps", "last-mean-input-tps"}).Draw(t, name))
		case drawn.Type() == reflect.TypeFor[v1alpha1.Decimal]():
			drawn.SetString(decimals.Draw(t, name))
		case drawn.Kind() == reflect.Bool:
			drawn.SetBool(rapid.Bool().Draw(t, name))
		case drawn.Kind() == reflect.Int64:
			drawn.SetInt(rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Min(0)).Draw(t, name))
		default:
			drawn.SetString(strs.Draw(t, name))
		}
	}
	return s
}

func drawRequestAlgorithms(t *rapid.T) []v1alpha1.RequestAlgorithm {
	var drawn []v1alpha1.RequestAlgorithm
	for _, algorithm := range rapid.Permutation(algorithms).Draw(t, "order") {
		if rapid.Bool().Draw(t, "listed") {
			drawn = append(drawn, v1alpha1.RequestAlgorithm{AlgorithmSettings: drawSettings(t, algorithm)})
		}
	}
	return drawn
}

func drawConfig(t *rapid.T) render.Config {
	c := render.Config{
		DefaultAlgorithm:  rapid.SampledFrom(append([]v1alpha1.Algorithm{""}, algorithms...)).Draw(t, "default"),
		RequestAlgorithms: drawRequestAlgorithms(t),
	}
	for _, name := range rapid.SliceOfNDistinct(strs, 0, 5, rapid.ID).Draw(t, "names") {
		c.Models = append(c.Models, v1alpha1.Model{
			Name:              name,
			AlgorithmSettings: drawSettings(t, rapid.SampledFrom(algorithms).Draw(t, "algorithm")),
			RequestAlgorithms: drawRequestAlgorithms(t),
		})
	}
	return c
}

func drawFlags(t *rapid.T, c render.Config) render.Flags {
	on := render.Flags{}
	for _, flag := range render.SortFlags(render.Desired(c)) {
		if rapid.Bool().Draw(t, "on") {
			on.Insert(flag)
		}
	}
	return on
}

func TestWhatIsRenderedIsAcceptedAndMeansWhatWasAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		on := drawFlags(t, c)
		g := rapid.SampledFrom([]release.Generation{release.Unsupported, release.Unknown, release.V0, release.V1, release.V2, release.V3}).Draw(t, "generation")
		rendered, err := render.LBConfig(c, on, g)
		if err != nil {
			t.Fatal(err)
		}
		file, err := lbconfig.Read(rendered.Data, g)
		if err != nil {
			t.Fatalf("Stargate %s refuses the file: %v\n%s", g, err, rendered.Data)
		}
		for _, finding := range file.Findings {
			if finding.Kind != lbconfig.EmptyModelID {
				t.Errorf("Stargate passes over %+v\n%s", finding, rendered.Data)
			}
		}
		want := reference{on: on, generation: g}
		text := want.file(t, c)
		meant, err := lbconfig.Read(text, g)
		if err != nil {
			t.Fatalf("the reference is refused: %v\n%s", err, text)
		}
		if !lbconfig.Same(file, meant) {
			t.Errorf("rendered\n%s\nwant the meaning of\n%s", rendered.Data, text)
		}
		if !slices.Equal(file.Flags(), render.SortFlags(sets.New(rendered.On...))) {
			t.Errorf("the file has the flags %v, reported are %v", file.Flags(), rendered.On)
		}
		if g == release.V3 && !on.Equal(sets.New(rendered.On...)) {
			t.Errorf("flags on: %v, want %v", rendered.On, on)
		}
		var omitted []string
		for _, o := range rendered.Omitted {
			omitted = append(omitted, fmt.Sprintf("%s: %s since %s", o.Place, o.Field, o.Since))
		}
		slices.Sort(omitted)
		slices.Sort(want.omitted)
		if !slices.Equal(omitted, want.omitted) {
			t.Errorf("omitted %q, want %q", omitted, want.omitted)
		}
		if largest := render.LargestSize(c); len(rendered.Data) > largest {
			t.Errorf("%d bytes, and the largest is said to be %d", len(rendered.Data), largest)
		}
	})
}

// reference renders by way of encoding/json from the API's own field names: another road to the same meaning.
type reference struct {
	on         render.Flags
	generation release.Generation
	omitted    []string
}

func (r *reference) file(t *rapid.T, c render.Config) []byte {
	file := map[string]any{}
	if c.DefaultAlgorithm != "" {
		file["default"] = c.DefaultAlgorithm
	}
	file["request_algorithms"] = r.requestAlgorithms(t, render.Flag{Plane: true}, c.RequestAlgorithms)
	models := map[string]any{}
	for _, m := range c.Models {
		place := render.Flag{Model: m.Name}
		entry := r.entry(t, place, m.AlgorithmSettings)
		entry["request_algorithms"] = r.requestAlgorithms(t, place, m.RequestAlgorithms)
		models[m.Name] = entry
	}
	file["models"] = models
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (r *reference) requestAlgorithms(t *rapid.T, place render.Flag, entries []v1alpha1.RequestAlgorithm) map[string]any {
	rendered := map[string]any{}
	for _, e := range entries {
		place.RequestAlgorithm = e.Algorithm
		rendered[string(e.Algorithm)] = r.entry(t, place, e.AlgorithmSettings)
	}
	return rendered
}

var snake = strings.NewReplacer("A", "_a", "B", "_b", "C", "_c", "F", "_f", "I", "_i", "K", "_k", "M", "_m", "N", "_n",
	"P", "_p", "Q", "_q", "S", "_s", "T", "_t", "U", "_u", "V", "_v", "W", "_w")

func (r *reference) entry(t *rapid.T, place render.Flag, s v1alpha1.AlgorithmSettings) map[string]any {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	entry := map[string]any{}
	for name, value := range fields {
		if first, ok := since[name]; ok && first > max(r.generation, release.V0) {
			r.omitted = append(r.omitted, fmt.Sprintf("%s: %s since %s", place, name, first))
			continue
		}
		if name == "lastClusterAffinity" && value == true && !r.on.Has(place) {
			continue
		}
		if slices.Contains([]string{"maxInputWorkSeconds", "cacheAffinityInputTokensScale", "nextBucketUnlockFactor"}, name) {
			value = json.Number(value.(string))
		}
		entry[snake.Replace(name)] = value
	}
	return entry
}

func TestTheBytesDoNotDependOnTheOrderOfTheInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		on := drawFlags(t, c)
		first, err := render.LBConfig(c, on, release.V3)
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		shuffled := render.Config{
			DefaultAlgorithm:  c.DefaultAlgorithm,
			RequestAlgorithms: slices.Clone(c.RequestAlgorithms),
			Models:            slices.Clone(c.Models),
		}
		random.Shuffle(len(shuffled.Models), reflect.Swapper(shuffled.Models))
		random.Shuffle(len(shuffled.RequestAlgorithms), reflect.Swapper(shuffled.RequestAlgorithms))
		for i := range shuffled.Models {
			nested := slices.Clone(shuffled.Models[i].RequestAlgorithms)
			random.Shuffle(len(nested), reflect.Swapper(nested))
			shuffled.Models[i].RequestAlgorithms = nested
		}
		second, err := render.LBConfig(shuffled, on, release.V3)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Data, second.Data) {
			t.Errorf("rendered\n%s\nand from another order\n%s", first.Data, second.Data)
		}
	})
}

func TestTheLargestSizeIsThatOfAllFlagsAndTheSumOfItsModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		all, err := render.LBConfig(c, render.Desired(c), release.Newest)
		if err != nil {
			t.Fatal(err)
		}
		if got := render.LargestSize(c); got != len(all.Data) {
			t.Errorf("LargestSize is %d, the file has %d bytes", got, len(all.Data))
		}
		sum := render.LargestSize(render.Config{DefaultAlgorithm: c.DefaultAlgorithm, RequestAlgorithms: c.RequestAlgorithms}) + render.ModelsObjectSize
		for i := range c.Models {
			sum += render.ModelSize(&c.Models[i])
		}
		if largest := len(all.Data); sum < largest || sum > largest+render.ModelsObjectSize {
			t.Errorf("the parts sum up to %d, the whole has %d bytes", sum, largest)
		}
	})
}
