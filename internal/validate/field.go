package validate

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
)

// Limits of the schema, in characters or entries. They bound what the API server's CEL rules may cost; Stargate
// has none of them.
const (
	MaxModels            = 256
	MaxRequestAlgorithms = 16
	MaxDecimalLength     = 32

	maxNameLength      = 64
	maxSeedLength      = 1024
	maxModelNameLength = 512
)

// Field is a setting of an algorithm.
type Field struct {
	// Name in a policy; FileName gives the one in lb-config.json.
	Name string
	// Algorithms that take the field, sorted. Any other refuses it, whatever its value.
	Algorithms []v1alpha1.Algorithm
	// Since is the first generation of Stargate that knows the field.
	Since release.Generation
	// Values that a field with a fixed choice can have, in Stargate's order; the first is the default.
	Values []string
	// Min and Max of a number, both inclusive; infinite where there is no limit.
	Min, Max float64

	maxLength int // of a text
	of        func(*v1alpha1.AlgorithmSettings) any
}

// FileName is the name of the field in lb-config.json: the snake_case of its name.
func (f *Field) FileName() string {
	var b strings.Builder
	for _, r := range f.Name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// SupportedBy tells whether the algorithm takes the field.
func (f *Field) SupportedBy(a v1alpha1.Algorithm) bool { return slices.Contains(f.Algorithms, a) }

// IsSet tells whether the settings hold the field; false and 0 count as set.
func (f *Field) IsSet(s *v1alpha1.AlgorithmSettings) bool { return isSet(f.of(s)) }

func isSet(value any) bool {
	switch v := value.(type) {
	case *bool:
		return v != nil
	case *int64:
		return v != nil
	case *string:
		return v != nil
	case *v1alpha1.Decimal:
		return v != nil
	}
	return false
}

// Fields returns every setting there is, in the order of v1alpha1.AlgorithmSettings; requestAlgorithms, which
// every model takes and no request algorithm, is not among them.
func Fields() []Field { return slices.Clone(fields) }

var (
	all           = algorithms
	sampling      = []v1alpha1.Algorithm{v1alpha1.PowerOfN}
	scoring       = []v1alpha1.Algorithm{v1alpha1.PowerOfN, v1alpha1.WaitAndWiden}
	hashing       = []v1alpha1.Algorithm{v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden, v1alpha1.WaitAndWiden}
	ranking       = []v1alpha1.Algorithm{v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden}
	widening      = []v1alpha1.Algorithm{v1alpha1.PulsarWaitAndWiden, v1alpha1.WaitAndWiden}
	bandsWidening = []v1alpha1.Algorithm{v1alpha1.PulsarWaitAndWiden}

	unlimited = math.Inf(1)
)

const (
	weightMaximum  = "max-input-tps"
	weightLastMean = "last-mean-input-tps"
)

// The table of fields. CEL rules in api/v1alpha1 repeat it; a test compares the two.
var fields = []Field{
	{Name: "requireCacheAffinityKey", Algorithms: all, of: func(s *v1alpha1.AlgorithmSettings) any { return s.RequireCacheAffinityKey }},
	{Name: "requireInputTokens", Algorithms: all, of: func(s *v1alpha1.AlgorithmSettings) any { return s.RequireInputTokens }},
	{Name: "maxInputWorkSeconds", Algorithms: all, Min: -unlimited, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.MaxInputWorkSeconds }},
	{Name: "comparator", Algorithms: scoring, maxLength: maxNameLength, Values: []string{"ttft", "queue-time", "input-work-seconds", "utilization", "num-requests-queued"},
		of: func(s *v1alpha1.AlgorithmSettings) any { return s.Comparator }},
	{Name: "sampleCount", Algorithms: sampling, Min: 1, Max: 64, of: func(s *v1alpha1.AlgorithmSettings) any { return s.SampleCount }},
	{Name: "seed", Algorithms: hashing, maxLength: maxSeedLength, of: func(s *v1alpha1.AlgorithmSettings) any { return s.Seed }},
	{Name: "considerKvFreeTokens", Algorithms: ranking, of: func(s *v1alpha1.AlgorithmSettings) any { return s.ConsiderKvFreeTokens }},
	{Name: "rendezvousWeight", Algorithms: ranking, Since: release.V2, maxLength: maxNameLength, Values: []string{weightMaximum, weightLastMean},
		of: func(s *v1alpha1.AlgorithmSettings) any { return s.RendezvousWeight }},
	{Name: "cacheAffinityVirtualNodes", Algorithms: widening, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.CacheAffinityVirtualNodes }},
	{Name: "cacheAffinityBackendSelectionCount", Algorithms: widening, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.CacheAffinityBackendSelectionCount }},
	{Name: "cacheAffinityWaitMs", Algorithms: widening, Since: release.V1, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.CacheAffinityWaitMs }},
	{Name: "cacheAffinityInputTokensScale", Algorithms: widening, Since: release.V1, Max: 1, of: func(s *v1alpha1.AlgorithmSettings) any { return s.CacheAffinityInputTokensScale }},
	{Name: "bandWidenIntervalMs", Algorithms: bandsWidening, Since: release.V2, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.BandWidenIntervalMs }},
	{Name: "fallbackMaxQueued", Algorithms: bandsWidening, Since: release.V2, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.FallbackMaxQueued }},
	{Name: "maxQueueTimeFloorMs", Algorithms: widening, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.MaxQueueTimeFloorMs }},
	{Name: "maxQueueTimeCeilMs", Algorithms: widening, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.MaxQueueTimeCeilMs }},
	{Name: "ttftBucketSizeMs", Algorithms: widening, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.TtftBucketSizeMs }},
	{Name: "nextBucketUnlockFactor", Algorithms: widening, Min: -unlimited, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.NextBucketUnlockFactor }},
	{Name: "n", Algorithms: widening, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.N }},
	{Name: "maxQueued", Algorithms: widening, Max: unlimited, of: func(s *v1alpha1.AlgorithmSettings) any { return s.MaxQueued }},
	{Name: "ignoreQueueTime", Algorithms: widening, of: func(s *v1alpha1.AlgorithmSettings) any { return s.IgnoreQueueTime }},
	{Name: "ignoreInputProcessingTime", Algorithms: widening, of: func(s *v1alpha1.AlgorithmSettings) any { return s.IgnoreInputProcessingTime }},
	{Name: "lastClusterAffinity", Algorithms: widening, Since: release.V3, of: func(s *v1alpha1.AlgorithmSettings) any { return s.LastClusterAffinity }},
}

// check refuses a field on an algorithm that does not take it, and a value that no algorithm takes. Where the
// algorithm itself is not known only the value can be judged.
func (f *Field) check(s *v1alpha1.AlgorithmSettings, parent *field.Path) field.ErrorList {
	value := f.of(s)
	if !isSet(value) {
		return nil
	}
	errs := f.checkValue(value, parent)
	if !f.SupportedBy(s.Algorithm) && known(s.Algorithm) {
		errs = append(errs, field.Invalid(parent.Child(f.Name), field.OmitValueType{},
			fmt.Sprintf("%s is not supported by algorithm %s; supported by: %s; remove the field or change the algorithm",
				f.Name, s.Algorithm, join(f.Algorithms))))
	}
	return errs
}

// checkValue makes no path unless there is an error: nearly every value is good.
func (f *Field) checkValue(value any, parent *field.Path) field.ErrorList {
	switch v := value.(type) {
	case *int64:
		if n := float64(*v); n < f.Min || n > f.Max {
			return field.ErrorList{field.Invalid(parent.Child(f.Name), *v, f.Name+" must be "+f.limits())}
		}
	case *v1alpha1.Decimal:
		if tooLong(string(*v), MaxDecimalLength) {
			return field.ErrorList{field.TooLong(parent.Child(f.Name), *v, MaxDecimalLength)}
		}
		n, ok := ParseDecimal(*v)
		if !ok {
			return field.ErrorList{field.Invalid(parent.Child(f.Name), *v, notADecimal)}
		}
		if n < f.Min || n > f.Max {
			return field.ErrorList{field.Invalid(parent.Child(f.Name), *v, f.Name+" must be "+f.limits())}
		}
	case *string:
		if tooLong(*v, f.maxLength) {
			return field.ErrorList{field.TooLong(parent.Child(f.Name), *v, f.maxLength)}
		}
		if f.Values != nil && !slices.Contains(f.Values, *v) {
			return field.ErrorList{field.Invalid(parent.Child(f.Name), *v, f.Name+" must be one of: "+join(f.Values))}
		}
	}
	return nil
}

func (f *Field) limits() string {
	if math.IsInf(f.Max, 1) {
		return fmt.Sprintf("%g or more", f.Min)
	}
	return fmt.Sprintf("from %g to %g", f.Min, f.Max)
}

const notADecimal = "must be a number as JSON writes it and within a 64-bit floating-point number, in quotes: '0.25', '2', '1e-3'"

// ParseDecimal reads a decimal: exactly the grammar of a JSON number, and finite as a 64-bit floating-point
// number, since that is what Stargate reads from its file.
func ParseDecimal(d v1alpha1.Decimal) (float64, bool) {
	s := string(d)
	// A valid JSON text that begins like a number is one; only white space could follow it.
	if s == "" || (s[0] != '-' && !isDigit(s[0])) || !isDigit(s[len(s)-1]) || !json.Valid([]byte(s)) {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func checkLength(s string, limit int, path *field.Path) field.ErrorList {
	if tooLong(s, limit) {
		return field.ErrorList{field.TooLong(path, s, limit)}
	}
	return nil
}

func tooLong(s string, limit int) bool {
	return len(s) > limit && utf8.RuneCountInString(s) > limit
}
