// Package release tells which fields a Stargate build knows: it reads the release off a container image and
// looks up the generation that the release belongs to.
package release

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Generation is a set of configuration fields and header rules that Stargate releases have in common.
// Generations are ordered: each knows what the earlier ones know.
type Generation int

const (
	// Unsupported is a release before the first that the operator supports; it may refuse every file.
	Unsupported Generation = iota - 2
	// Unknown is an image whose release is not known; it is taken to know the fields of V0 only.
	Unknown
	// V0 knows every field that no later generation brought.
	V0
	// V1 brought cache_affinity_wait_ms and cache_affinity_input_tokens_scale.
	V1
	// V2 brought band_widen_interval_ms, fallback_max_queued and rendezvous_weight.
	V2
	// V3 brought last_cluster_affinity and consumes the header x-stargate-last-cluster-id.
	V3
)

// Newest is the newest generation there is.
const Newest = V3

func (g Generation) String() string {
	switch g {
	case Unsupported:
		return "unsupported"
	case Unknown:
		return "unknown"
	default:
		return fmt.Sprintf("V%d", int(g))
	}
}

// ParseGeneration reads "V0" to "V3".
func ParseGeneration(s string) (Generation, bool) {
	for g := V0; g <= Newest; g++ {
		if s == g.String() {
			return g, true
		}
	}
	return Unknown, false
}

// Table maps each generation to the first Stargate release that belongs to it. A generation without an entry
// is reached by statement only: a wrong guess would render a field that Stargate refuses.
type Table struct {
	first []entry // newest generation first
}

type entry struct {
	generation Generation
	release    *version.Version
}

// DefaultTable is what the operator ships with: V0 from 0.10.0 and V1 from 0.18.0 on. The releases of V2 and
// V3 differ between builds and are for the administrator to state.
func DefaultTable() Table {
	return Table{first: []entry{
		{V1, version.MustParseSemantic("0.18.0")},
		{V0, version.MustParseSemantic("0.10.0")},
	}}
}

// ParseTable reads a table from generation to first release, {"V0": "0.10.0", "V2": "0.21.0"}. V0 has to be
// among the generations, and a later generation cannot begin at an earlier release.
func ParseTable(releases map[string]string) (Table, error) {
	var table Table
	for name, first := range releases {
		generation, ok := ParseGeneration(name)
		if !ok {
			return Table{}, fmt.Errorf("feature table: %q is no generation; there are V0 to %s", name, Newest)
		}
		parsed, err := version.ParseSemantic(first)
		if err != nil {
			return Table{}, fmt.Errorf("feature table: first release of %s: %q is no release such as 0.18.0: %w", name, first, err)
		}
		table.first = append(table.first, entry{generation, parsed})
	}
	slices.SortFunc(table.first, func(a, b entry) int { return int(b.generation - a.generation) })
	if len(table.first) == 0 || table.first[len(table.first)-1].generation != V0 {
		return Table{}, fmt.Errorf("feature table: the first release of V0 is missing; state it, for example V0=0.10.0")
	}
	for i := 1; i < len(table.first); i++ {
		if newer, older := table.first[i-1], table.first[i]; newer.release.LessThan(older.release) {
			return Table{}, fmt.Errorf("feature table: %s begins at %s, before %s at %s; a generation cannot be older than the one before it",
				newer.generation, newer.release, older.generation, older.release)
		}
	}
	return table, nil
}

// Generation of a release.
func (t Table) Generation(release *version.Version) Generation {
	for _, e := range t.first {
		if release.AtLeast(e.release) {
			return e.generation
		}
	}
	return Unsupported
}

// Release is what is known of a container image's release.
type Release struct {
	// Version in words: the release, "V3" where only the generation was stated, or "unknown".
	Version string
	// Generation that the release belongs to.
	Generation Generation
}

// OfImage finds the release of an image: a statement about exactly this image counts first, then a tag that is
// a semantic version with or without a leading v ("0.18.0", "v0.18.0-rc1"). Everything else (no tag, a digest
// alone, "latest", a branch, "0.18", a malformed reference) is Unknown. A pre-release is older than its release.
func (t Table) OfImage(image string, stated []v1alpha1.ReleaseOverride) Release {
	for _, s := range stated {
		if s.Image == image {
			if r, err := t.Parse(s.Version); err == nil {
				return r
			}
		}
	}
	if r, err := t.Parse(tagOf(image)); err == nil {
		return r
	}
	return Release{Version: "unknown", Generation: Unknown}
}

// Parse reads a release ("0.18.0", "v0.18.0") or the name of a generation ("V0" to "V3").
func (t Table) Parse(s string) (Release, error) {
	if g, ok := ParseGeneration(s); ok {
		return Release{Version: s, Generation: g}, nil
	}
	v, err := version.ParseSemantic(s)
	if err != nil {
		return Release{}, fmt.Errorf("%q is neither a release such as 0.18.0 nor a generation from V0 to %s", s, Newest)
	}
	return Release{Version: strings.TrimPrefix(s, "v"), Generation: t.Generation(v)}, nil
}

func tagOf(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	if tagged, ok := named.(reference.Tagged); ok {
		return tagged.Tag()
	}
	return ""
}
