package lbconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
)

// spellings of the algorithms in a file: the canonical names and the aliases that Stargate still takes.
var spellings = map[string]v1alpha1.Algorithm{
	"power-of-n":            v1alpha1.PowerOfN,
	"power-of-two":          v1alpha1.PowerOfN,
	"powerOf2":              v1alpha1.PowerOfN,
	"powerof2":              v1alpha1.PowerOfN,
	"powerOfN":              v1alpha1.PowerOfN,
	"powerofn":              v1alpha1.PowerOfN,
	"wait-and-widen":        v1alpha1.WaitAndWiden,
	"groq-multiregion":      v1alpha1.WaitAndWiden,
	"round-robin":           v1alpha1.RoundRobin,
	"random":                v1alpha1.Random,
	"pulsar":                v1alpha1.Pulsar,
	"pulsar-wait-and-widen": v1alpha1.PulsarWaitAndWiden,
	"pulsar-multiregion":    v1alpha1.PulsarWaitAndWiden,
}

// field is a setting of a detailed entry as the parse stage sees it.
type field struct {
	since      release.Generation
	algorithms []v1alpha1.Algorithm // nil: all
	required   bool                 // null is no value
	read       func(node) (any, error)
}

func (f field) takenBy(a v1alpha1.Algorithm) bool {
	return f.algorithms == nil || slices.Contains(f.algorithms, a)
}

var (
	powerOfN    = []v1alpha1.Algorithm{v1alpha1.PowerOfN}
	withSeed    = []v1alpha1.Algorithm{v1alpha1.WaitAndWiden, v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden}
	pulsars     = []v1alpha1.Algorithm{v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden}
	wideners    = []v1alpha1.Algorithm{v1alpha1.WaitAndWiden, v1alpha1.PulsarWaitAndWiden}
	comparators = []v1alpha1.Algorithm{v1alpha1.PowerOfN, v1alpha1.WaitAndWiden, v1alpha1.PulsarWaitAndWiden}
)

// The fields about which the build stage has a rule of its own.
const (
	comparator          = "comparator"
	bandWidenIntervalMs = "band_widen_interval_ms"
	fallbackMaxQueued   = "fallback_max_queued"
)

// fields of a detailed entry, besides algorithm and request_algorithms. The two wideners are parsed by the same
// rules; what only one of them takes is for the build stage to refuse.
var fields = map[string]field{
	"require_cache_affinity_key": {read: boolean},
	"require_input_tokens":       {read: boolean},
	"max_input_work_seconds":     {read: number},

	comparator: {algorithms: comparators, required: true,
		read: oneOf(UnknownComparator, "ttft", "queue-time", "input-work-seconds", "utilization", "num-requests-queued")},
	"sample_count": {algorithms: powerOfN, required: true, read: sampleCount},

	"seed":                    {algorithms: withSeed, read: text},
	"consider_kv_free_tokens": {algorithms: pulsars, read: boolean},
	"rendezvous_weight": {algorithms: pulsars, since: release.V2, required: true,
		read: oneOf(UnknownWeight, "max-input-tps", "last-mean-input-tps")},

	"cache_affinity_virtual_nodes":           {algorithms: wideners, read: unsigned},
	"cache_affinity_backend_selection_count": {algorithms: wideners, read: unsigned},
	"cache_affinity_wait_ms":                 {algorithms: wideners, since: release.V1, read: unsigned},
	"cache_affinity_input_tokens_scale":      {algorithms: wideners, since: release.V1, read: scale},
	bandWidenIntervalMs:                      {algorithms: wideners, since: release.V2, read: unsigned},
	fallbackMaxQueued:                        {algorithms: wideners, since: release.V2, read: unsigned},
	"max_queue_time_floor_ms":                {algorithms: wideners, read: unsigned},
	"max_queue_time_ceil_ms":                 {algorithms: wideners, read: unsigned},
	"ttft_bucket_size_ms":                    {algorithms: wideners, read: unsigned},
	"next_bucket_unlock_factor":              {algorithms: wideners, read: number},
	"n":                                      {algorithms: wideners, read: unsigned},
	"max_queued":                             {algorithms: wideners, read: unsigned},
	"ignore_queue_time":                      {algorithms: wideners, read: boolean},
	"ignore_input_processing_time":           {algorithms: wideners, read: boolean},
	LastClusterAffinity:                      {algorithms: wideners, since: release.V3, read: boolean},
}

// valueError is what is wrong with the value of a field.
type valueError struct {
	kind    Kind
	message string
}

func (e valueError) Error() string { return e.message }

func wrongType(n node, expected string) error {
	return valueError{InvalidType, fmt.Sprintf("invalid type: %s, expected %s", n.describe(), expected)}
}

func boolean(n node) (any, error) {
	if b, ok := n.value.(bool); ok {
		return b, nil
	}
	return nil, wrongType(n, "a boolean")
}

func text(n node) (any, error) {
	if s, ok := n.value.(string); ok {
		return s, nil
	}
	return nil, wrongType(n, "a string")
}

func number(n node) (any, error) {
	text, ok := n.value.(json.Number)
	if !ok {
		return nil, wrongType(n, "a number")
	}
	value, err := text.Float64()
	return Number{Text: string(text), Value: value}, err
}

func unsigned(n node) (any, error) {
	const expected = "an unsigned 64-bit integer"
	text, ok := n.value.(json.Number)
	if !ok || !isInteger(text) {
		return nil, wrongType(n, expected)
	}
	value, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return nil, valueError{InvalidValue, fmt.Sprintf("invalid value: %s, expected %s", n.describe(), expected)}
	}
	return value, nil
}

func sampleCount(n node) (any, error) {
	value, err := unsigned(n)
	if err != nil {
		return nil, err
	}
	if count := value.(uint64); count < 1 || count > 64 {
		return nil, valueError{SampleCountRange, fmt.Sprintf("must be between 1 and 64, got %d", count)}
	}
	return value, nil
}

func scale(n node) (any, error) {
	value, err := number(n)
	if err != nil {
		return nil, err
	}
	if s := value.(Number); s.Value < 0 || s.Value > 1 {
		return nil, valueError{ScaleRange, fmt.Sprintf("must be between 0.0 and 1.0, got %s", s.Text)}
	}
	return value, nil
}

func oneOf(unknown Kind, names ...string) func(node) (any, error) {
	return func(n node) (any, error) {
		s, ok := n.value.(string)
		if !ok {
			return nil, wrongType(n, "one of "+quoted(names))
		}
		if !slices.Contains(names, s) {
			return nil, valueError{unknown, fmt.Sprintf("unknown variant `%s`, expected one of %s", s, quoted(names))}
		}
		return s, nil
	}
}

func quoted(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
