package routing

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// The algorithms that take a setting, as Stargate accepts it.
var (
	allAlgorithms  = []v1alpha1.Algorithm{v1alpha1.PowerOfN, v1alpha1.WaitAndWiden, v1alpha1.RoundRobin, v1alpha1.Random, v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden}
	comparing      = []v1alpha1.Algorithm{v1alpha1.PowerOfN, v1alpha1.WaitAndWiden}
	sampling       = []v1alpha1.Algorithm{v1alpha1.PowerOfN}
	seeded         = []v1alpha1.Algorithm{v1alpha1.WaitAndWiden, v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden}
	ranking        = []v1alpha1.Algorithm{v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden}
	widening       = []v1alpha1.Algorithm{v1alpha1.WaitAndWiden, v1alpha1.PulsarWaitAndWiden}
	wideningRanked = []v1alpha1.Algorithm{v1alpha1.PulsarWaitAndWiden}
)

// ConfigFrom reads settings of the API at a path. It reports every setting that Stargate would refuse to start
// with; warnings and the limits of older generations are not its concern.
func ConfigFrom(s *v1alpha1.AlgorithmSettings, path *field.Path) (Config, field.ErrorList) {
	if !slices.Contains(allAlgorithms, s.Algorithm) {
		return Config{}, field.ErrorList{field.NotSupported(path.Child("algorithm"), s.Algorithm, allAlgorithms)}
	}
	c := DefaultConfig(s.Algorithm)
	r := &reader{algorithm: s.Algorithm, path: path}
	var inputTokensAlwaysRequired bool
	set(r, "requireCacheAffinityKey", allAlgorithms, s.RequireCacheAffinityKey, &c.RequireAffinityKey)
	set(r, "requireInputTokens", allAlgorithms, s.RequireInputTokens, &inputTokensAlwaysRequired)
	r.decimal("maxInputWorkSeconds", allAlgorithms, s.MaxInputWorkSeconds, math.Inf(-1), math.Inf(1), &c.MaxInputWork)
	choice(r, "comparator", comparing, s.Comparator, &c.Comparator,
		CompareTTFT, CompareQueueTime, CompareInputWork, CompareUtilization, CompareQueued)
	count(r, "sampleCount", sampling, s.SampleCount, 1, 64, &c.SampleCount)
	set(r, "seed", seeded, s.Seed, &c.Seed)
	set(r, "considerKvFreeTokens", ranking, s.ConsiderKvFreeTokens, &c.ConsiderKVFree)
	choice(r, "rendezvousWeight", ranking, s.RendezvousWeight, &c.Weight, WeightMaxInputTPS, WeightLastMeanInputTPS)
	count(r, "cacheAffinityVirtualNodes", widening, s.CacheAffinityVirtualNodes, 0, MaxVirtualNodes, &c.VirtualNodes)
	count(r, "cacheAffinityBackendSelectionCount", widening, s.CacheAffinityBackendSelectionCount, 0, math.MaxInt32, &c.GroupSize)
	r.milliseconds("cacheAffinityWaitMs", widening, s.CacheAffinityWaitMs, &c.AffinityWait)
	r.decimal("cacheAffinityInputTokensScale", widening, s.CacheAffinityInputTokensScale, 0, 1, &c.AffinityScale)
	r.milliseconds("bandWidenIntervalMs", wideningRanked, s.BandWidenIntervalMs, &c.BandWidenInterval)
	count(r, "fallbackMaxQueued", wideningRanked, s.FallbackMaxQueued, 0, math.MaxInt64, &c.FallbackMaxQueued)
	r.milliseconds("maxQueueTimeFloorMs", widening, s.MaxQueueTimeFloorMs, &c.QueueTimeFloor)
	r.milliseconds("maxQueueTimeCeilMs", widening, s.MaxQueueTimeCeilMs, &c.QueueTimeCeil)
	c.QueueSLO = s.MaxQueueTimeFloorMs != nil && s.MaxQueueTimeCeilMs != nil
	r.milliseconds("ttftBucketSizeMs", widening, s.TtftBucketSizeMs, &c.BucketSize)
	r.decimal("nextBucketUnlockFactor", widening, s.NextBucketUnlockFactor, math.Inf(-1), math.Inf(1), &c.UnlockFactor)
	count(r, "n", widening, s.N, 0, math.MaxInt64, &c.SampleN)
	count(r, "maxQueued", widening, s.MaxQueued, 0, math.MaxInt64, &c.MaxQueued)
	set(r, "ignoreQueueTime", widening, s.IgnoreQueueTime, &c.IgnoreQueueTime)
	set(r, "ignoreInputProcessingTime", widening, s.IgnoreInputProcessingTime, &c.IgnoreInputTime)
	set(r, "lastClusterAffinity", widening, s.LastClusterAffinity, &c.LastClusterAffinity)
	return c, r.errors
}

// ModelFrom reads a model's entry of a policy at a path.
func ModelFrom(m *v1alpha1.Model, path *field.Path) (ModelConfig, field.ErrorList) {
	config, errs := ConfigFrom(&m.AlgorithmSettings, path)
	request, more := RequestAlgorithmsFrom(m.RequestAlgorithms, path.Child("requestAlgorithms"))
	return ModelConfig{Config: config, RequestAlgorithms: request}, append(errs, more...)
}

// RequestAlgorithmsFrom reads the request algorithms of a model or a plane at a path.
func RequestAlgorithmsFrom(list []v1alpha1.RequestAlgorithm, path *field.Path) (map[v1alpha1.Algorithm]Config, field.ErrorList) {
	var errs field.ErrorList
	configs := make(map[v1alpha1.Algorithm]Config, len(list))
	for i := range list {
		at := path.Index(i)
		config, more := ConfigFrom(&list[i].AlgorithmSettings, at)
		errs = append(errs, more...)
		if len(list[i].RequestAlgorithms) > 0 {
			errs = append(errs, field.Forbidden(at.Child("requestAlgorithms"), "request algorithms do not nest; list them in the model's or the plane's requestAlgorithms"))
		}
		if _, twice := configs[list[i].Algorithm]; twice {
			errs = append(errs, field.Duplicate(at.Child("algorithm"), list[i].Algorithm))
		}
		configs[list[i].Algorithm] = config
	}
	return configs, errs
}

// reader reads the settings of one entry and collects what is wrong with them.
type reader struct {
	algorithm v1alpha1.Algorithm
	path      *field.Path
	errors    field.ErrorList
}

// takes says whether a setting that is present may be; presence alone counts, whatever the value.
func (r *reader) takes(name string, by []v1alpha1.Algorithm, value any) bool {
	if slices.Contains(by, r.algorithm) {
		return true
	}
	supported := make([]string, len(by))
	for i, algorithm := range by {
		supported[i] = string(algorithm)
	}
	r.invalid(name, value, name+" is not supported by algorithm "+string(r.algorithm)+"; supported: "+strings.Join(supported, ", "))
	return false
}

func (r *reader) invalid(name string, value any, detail string) {
	r.errors = append(r.errors, field.Invalid(r.path.Child(name), value, detail))
}

func set[T any](r *reader, name string, by []v1alpha1.Algorithm, value *T, to *T) {
	if value != nil && r.takes(name, by, *value) {
		*to = *value
	}
}

func choice[T ~string](r *reader, name string, by []v1alpha1.Algorithm, value *string, to *T, choices ...T) {
	if value == nil || !r.takes(name, by, *value) {
		return
	}
	*to = T(*value)
	if !slices.Contains(choices, *to) {
		r.errors = append(r.errors, field.NotSupported(r.path.Child(name), *to, choices))
	}
}

func count[T int | uint64](r *reader, name string, by []v1alpha1.Algorithm, value *int64, lowest, highest int64, to *T) {
	if value == nil || !r.takes(name, by, *value) {
		return
	}
	*to = T(*value)
	if *value < lowest || *value > highest {
		r.invalid(name, *value, "must be "+strconv.FormatInt(lowest, 10)+" to "+strconv.FormatInt(highest, 10))
	}
}

func (r *reader) milliseconds(name string, by []v1alpha1.Algorithm, value *int64, to *time.Duration) {
	var ms uint64
	count(r, name, by, value, 0, math.MaxInt64, &ms)
	if value != nil {
		*to = time.Duration(min(ms, uint64(forever/time.Millisecond))) * time.Millisecond
	}
}

func (r *reader) decimal(name string, by []v1alpha1.Algorithm, value *v1alpha1.Decimal, lowest, highest float64, to *float64) {
	if value == nil || !r.takes(name, by, *value) {
		return
	}
	number, err := strconv.ParseFloat(string(*value), 64)
	switch {
	case err != nil || !json.Valid([]byte(*value)):
		r.invalid(name, *value, `must be a finite number as JSON writes it, such as "0.1"`)
	case number < lowest || number > highest:
		r.invalid(name, *value, "must be "+strconv.FormatFloat(lowest, 'g', -1, 64)+" to "+strconv.FormatFloat(highest, 'g', -1, 64))
	}
	*to = number
}
