package render

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
)

type settings = v1alpha1.AlgorithmSettings

// field is one optional setting of an entry.
type field struct {
	name   string // as a policy spells it
	key    string // `,"name_of_the_file":`
	since  release.Generation
	isFlag bool
	isSet  func(*settings) bool
	append func([]byte, *settings) ([]byte, error)
}

// fields in the order in which they are written, which is that of the API.
var fields = []field{
	boolean("requireCacheAffinityKey", release.V0, func(s *settings) *bool { return s.RequireCacheAffinityKey }),
	boolean("requireInputTokens", release.V0, func(s *settings) *bool { return s.RequireInputTokens }),
	decimal("maxInputWorkSeconds", release.V0, func(s *settings) *v1alpha1.Decimal { return s.MaxInputWorkSeconds }),
	text("comparator", release.V0, func(s *settings) *string { return s.Comparator }),
	integer("sampleCount", release.V0, func(s *settings) *int64 { return s.SampleCount }),
	text("seed", release.V0, func(s *settings) *string { return s.Seed }),
	boolean("considerKvFreeTokens", release.V0, func(s *settings) *bool { return s.ConsiderKvFreeTokens }),
	text("rendezvousWeight", release.V2, func(s *settings) *string { return s.RendezvousWeight }),
	integer("cacheAffinityVirtualNodes", release.V0, func(s *settings) *int64 { return s.CacheAffinityVirtualNodes }),
	integer("cacheAffinityBackendSelectionCount", release.V0, func(s *settings) *int64 { return s.CacheAffinityBackendSelectionCount }),
	integer("cacheAffinityWaitMs", release.V1, func(s *settings) *int64 { return s.CacheAffinityWaitMs }),
	decimal("cacheAffinityInputTokensScale", release.V1, func(s *settings) *v1alpha1.Decimal { return s.CacheAffinityInputTokensScale }),
	integer("bandWidenIntervalMs", release.V2, func(s *settings) *int64 { return s.BandWidenIntervalMs }),
	integer("fallbackMaxQueued", release.V2, func(s *settings) *int64 { return s.FallbackMaxQueued }),
	integer("maxQueueTimeFloorMs", release.V0, func(s *settings) *int64 { return s.MaxQueueTimeFloorMs }),
	integer("maxQueueTimeCeilMs", release.V0, func(s *settings) *int64 { return s.MaxQueueTimeCeilMs }),
	integer("ttftBucketSizeMs", release.V0, func(s *settings) *int64 { return s.TtftBucketSizeMs }),
	decimal("nextBucketUnlockFactor", release.V0, func(s *settings) *v1alpha1.Decimal { return s.NextBucketUnlockFactor }),
	integer("n", release.V0, func(s *settings) *int64 { return s.N }),
	integer("maxQueued", release.V0, func(s *settings) *int64 { return s.MaxQueued }),
	boolean("ignoreQueueTime", release.V0, func(s *settings) *bool { return s.IgnoreQueueTime }),
	boolean("ignoreInputProcessingTime", release.V0, func(s *settings) *bool { return s.IgnoreInputProcessingTime }),
	lastClusterAffinity(),
}

func lastClusterAffinity() field {
	f := boolean("lastClusterAffinity", release.V3, func(s *settings) *bool { return s.LastClusterAffinity })
	f.isFlag = true
	return f
}

func boolean(name string, since release.Generation, get func(*settings) *bool) field {
	return optional(name, since, get, func(b []byte, v bool) ([]byte, error) { return strconv.AppendBool(b, v), nil })
}

func integer(name string, since release.Generation, get func(*settings) *int64) field {
	return optional(name, since, get, func(b []byte, v int64) ([]byte, error) { return strconv.AppendInt(b, v, 10), nil })
}

func text(name string, since release.Generation, get func(*settings) *string) field {
	return optional(name, since, get, func(b []byte, v string) ([]byte, error) { return appendString(b, v), nil })
}

func decimal(name string, since release.Generation, get func(*settings) *v1alpha1.Decimal) field {
	return optional(name, since, get, func(b []byte, v v1alpha1.Decimal) ([]byte, error) {
		canonical, err := canonicalDecimal(string(v))
		return append(b, canonical...), err
	})
}

func optional[T any](name string, since release.Generation, get func(*settings) *T, appendValue func([]byte, T) ([]byte, error)) field {
	return field{
		name:   name,
		key:    `,"` + snake(name) + `":`,
		since:  since,
		isSet:  func(s *settings) bool { return get(s) != nil },
		append: func(b []byte, s *settings) ([]byte, error) { return appendValue(b, *get(s)) },
	}
}

// snake is the one rule between the API's field names and those of the file.
func snake(camel string) string {
	var b strings.Builder
	for _, r := range camel {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// appendString appends a JSON string that people can read: only what JSON forbids is escaped, so not the
// characters of HTML.
func appendString(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a string into memory: neither can fail
	return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.ValidString(s)
}
