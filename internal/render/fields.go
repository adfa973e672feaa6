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
	name  string // as a policy spells it
	key   string // `,"name_of_the_file":`
	since release.Generation
	get   func(*settings) value
}

// value of a setting: one pointer, or none where it is unset.
type value struct {
	boolean *bool
	integer *int64
	text    *string
	decimal *v1alpha1.Decimal
}

const lastClusterAffinity = "lastClusterAffinity"

// fields in the order in which they are written, which is that of the API.
var fields = []field{
	setting("requireCacheAffinityKey", release.V0, func(s *settings) value { return value{boolean: s.RequireCacheAffinityKey} }),
	setting("requireInputTokens", release.V0, func(s *settings) value { return value{boolean: s.RequireInputTokens} }),
	setting("maxInputWorkSeconds", release.V0, func(s *settings) value { return value{decimal: s.MaxInputWorkSeconds} }),
	setting("comparator", release.V0, func(s *settings) value { return value{text: s.Comparator} }),
	setting("sampleCount", release.V0, func(s *settings) value { return value{integer: s.SampleCount} }),
	setting("seed", release.V0, func(s *settings) value { return value{text: s.Seed} }),
	setting("considerKvFreeTokens", release.V0, func(s *settings) value { return value{boolean: s.ConsiderKvFreeTokens} }),
	setting("rendezvousWeight", release.V2, func(s *settings) value { return value{text: s.RendezvousWeight} }),
	setting("cacheAffinityVirtualNodes", release.V0, func(s *settings) value { return value{integer: s.CacheAffinityVirtualNodes} }),
	setting("cacheAffinityBackendSelectionCount", release.V0, func(s *settings) value { return value{integer: s.CacheAffinityBackendSelectionCount} }),
	setting("cacheAffinityWaitMs", release.V1, func(s *settings) value { return value{integer: s.CacheAffinityWaitMs} }),
	setting("cacheAffinityInputTokensScale", release.V1, func(s *settings) value { return value{decimal: s.CacheAffinityInputTokensScale} }),
	setting("bandWidenIntervalMs", release.V2, func(s *settings) value { return value{integer: s.BandWidenIntervalMs} }),
	setting("fallbackMaxQueued", release.V2, func(s *settings) value { return value{integer: s.FallbackMaxQueued} }),
	setting("maxQueueTimeFloorMs", release.V0, func(s *settings) value { return value{integer: s.MaxQueueTimeFloorMs} }),
	setting("maxQueueTimeCeilMs", release.V0, func(s *settings) value { return value{integer: s.MaxQueueTimeCeilMs} }),
	setting("ttftBucketSizeMs", release.V0, func(s *settings) value { return value{integer: s.TtftBucketSizeMs} }),
	setting("nextBucketUnlockFactor", release.V0, func(s *settings) value { return value{decimal: s.NextBucketUnlockFactor} }),
	setting("n", release.V0, func(s *settings) value { return value{integer: s.N} }),
	setting("maxQueued", release.V0, func(s *settings) value { return value{integer: s.MaxQueued} }),
	setting("ignoreQueueTime", release.V0, func(s *settings) value { return value{boolean: s.IgnoreQueueTime} }),
	setting("ignoreInputProcessingTime", release.V0, func(s *settings) value { return value{boolean: s.IgnoreInputProcessingTime} }),
	setting(lastClusterAffinity, release.V3, func(s *settings) value { return value{boolean: s.LastClusterAffinity} }),
}

func setting(name string, since release.Generation, get func(*settings) value) field {
	return field{name: name, key: `,"` + snake(name) + `":`, since: since, get: get}
}

func (v value) appendTo(b []byte) ([]byte, error) {
	switch {
	case v.boolean != nil:
		return strconv.AppendBool(b, *v.boolean), nil
	case v.integer != nil:
		return strconv.AppendInt(b, *v.integer, 10), nil
	case v.text != nil:
		return appendString(b, *v.text), nil
	default:
		return appendDecimal(b, string(*v.decimal))
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

// plain says whether a string stands in JSON as it is.
func plain(s string) bool {
	ascii := true
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.ValidString(s)
}
