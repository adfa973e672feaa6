// Package preview says what one configuration of a plane changes against another: in meaning, field by field, and for
// the sessions that are under way. It is pure.
package preview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// Change is a setting that differs.
type Change struct {
	// Place of the entry; of the plane itself where it names neither a model nor a request algorithm.
	Place lbconfig.Place
	// Field as a policy spells it; algorithm for the entry as a whole.
	Field string
	// From and To are the values as YAML has them; empty where the field is unset, or the entry is not there.
	From, To string
}

// fieldAlgorithm is there in every entry, so that its absence is that of the entry.
const fieldAlgorithm = "algorithm"

// Added tells of an entry that is there only after the change.
func (c Change) Added() bool { return c.Field == fieldAlgorithm && c.From == "" }

// Removed tells of an entry that is there only before the change.
func (c Change) Removed() bool { return c.Field == fieldAlgorithm && c.To == "" }

// Where names the place of a change.
func (c Change) Where() string { return where(c.Place) }

// where names a place; the plane itself where it is no entry.
func where(place lbconfig.Place) string {
	if place == (lbconfig.Place{Plane: true}) {
		return "the plane"
	}
	return place.String()
}

// Diff lists what differs in meaning, models by name and the plane last: 0.10 and 0.1 are one value, unset and false
// are two. Of an entry that is there on one side only, all fields are listed.
func Diff(from, to render.Config) []Change {
	before, after := entriesOf(from), entriesOf(to)
	var changes []Change
	for _, place := range slices.SortedFunc(either(before, after), lbconfig.Place.Compare) {
		a, b := before[place], after[place]
		if a != nil && b != nil && reflect.DeepEqual(a, b) {
			continue
		}
		changes = append(changes, diffEntry(place, fieldsOf(a), fieldsOf(b))...)
	}
	if from.DefaultAlgorithm != to.DefaultAlgorithm {
		changes = append(changes, Change{lbconfig.Place{Plane: true}, "defaultAlgorithm", string(from.DefaultAlgorithm), string(to.DefaultAlgorithm)})
	}
	return changes
}

func entriesOf(c render.Config) map[lbconfig.Place]*v1alpha1.AlgorithmSettings {
	entries := make(map[lbconfig.Place]*v1alpha1.AlgorithmSettings, len(c.Models))
	nested := func(place lbconfig.Place, list []v1alpha1.RequestAlgorithm) {
		for i := range list {
			place.RequestAlgorithm = list[i].Algorithm
			entries[place] = &list[i].AlgorithmSettings
		}
	}
	nested(lbconfig.Place{Plane: true}, c.RequestAlgorithms)
	for i := range c.Models {
		place := lbconfig.Place{Model: c.Models[i].Name}
		entries[place] = &c.Models[i].AlgorithmSettings
		nested(place, c.Models[i].RequestAlgorithms)
	}
	return entries
}

// fieldsOf an entry by name, each as JSON; nil where there is no entry.
func fieldsOf(s *v1alpha1.AlgorithmSettings) map[string]string {
	if s == nil {
		return nil
	}
	var raw map[string]json.RawMessage
	data, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(data, &raw)
	}
	if err != nil {
		return map[string]string{fieldAlgorithm: string(s.Algorithm)} // settings of texts and numbers go into JSON and back
	}
	fields := make(map[string]string, len(raw))
	for name, value := range raw {
		fields[name] = strings.Trim(string(value), `"`)
	}
	return fields
}

func diffEntry(place lbconfig.Place, from, to map[string]string) (changes []Change) {
	for _, name := range slices.SortedFunc(either(from, to), compareFields) {
		if !same(name, from[name], to[name]) {
			changes = append(changes, Change{place, name, from[name], to[name]})
		}
	}
	return changes
}

// either goes through the keys that one of two maps has.
func either[K comparable, V any](a, b map[K]V) iter.Seq[K] {
	all := make(map[K]V, max(len(a), len(b)))
	maps.Copy(all, a)
	maps.Copy(all, b)
	return maps.Keys(all)
}

// compareFields puts the algorithm first and the others in the order of the alphabet.
func compareFields(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == fieldAlgorithm:
		return -1
	case b == fieldAlgorithm:
		return 1
	}
	return cmp.Compare(a, b)
}

var decimals = []string{"maxInputWorkSeconds", "cacheAffinityInputTokensScale", "nextBucketUnlockFactor"}

func same(name, from, to string) bool {
	if from == to {
		return true
	}
	if !slices.Contains(decimals, name) {
		return false
	}
	a, aOK := validate.ParseDecimal(v1alpha1.Decimal(from))
	b, bOK := validate.ParseDecimal(v1alpha1.Decimal(to))
	return aOK && bOK && a == b
}

// Remap is an entry whose sessions do not find their clusters again.
type Remap struct {
	Place lbconfig.Place
	// Why says what moves them, and which.
	Why string
}

// Where names the place of a remap.
func (r Remap) Where() string { return where(r.Place) }

// Remaps lists the entries that send sessions of a cache-affinity key elsewhere than before, models by name and the
// plane last. A model without an entry follows the plane's default algorithm.
func Remaps(from, to render.Config) (remaps []Remap) {
	before, after := entriesOf(from), entriesOf(to)
	bare := func(c render.Config) *v1alpha1.AlgorithmSettings {
		return &v1alpha1.AlgorithmSettings{Algorithm: cmp.Or(c.DefaultAlgorithm, v1alpha1.PowerOfN)}
	}
	entry := func(entries map[lbconfig.Place]*v1alpha1.AlgorithmSettings, place lbconfig.Place, c render.Config) *v1alpha1.AlgorithmSettings {
		if s, ok := entries[place]; ok || place.RequestAlgorithm != "" {
			return s
		}
		return bare(c)
	}
	for _, place := range slices.SortedFunc(either(before, after), lbconfig.Place.Compare) {
		if why := moved(entry(before, place, from), entry(after, place, to)); why != "" {
			remaps = append(remaps, Remap{place, why})
		}
	}
	if why := moved(bare(from), bare(to)); why != "" {
		remaps = append(remaps, Remap{lbconfig.Place{Plane: true}, "models without an entry: " + why})
	}
	return remaps
}

// moved says why sessions go elsewhere; empty where they do not, or nothing kept them before.
func moved(from, to *v1alpha1.AlgorithmSettings) string {
	if from == nil || !keepsSessions(from) {
		return ""
	}
	if to == nil || !keepsSessions(to) {
		return fmt.Sprintf("%s no longer keeps sessions on their clusters", nameOf(to))
	}
	var all, some []string
	differ := func(list *[]string, what string, a, b any) {
		if a != b {
			*list = append(*list, fmt.Sprintf("%s %v -> %v", what, a, b))
		}
	}
	if ring(from) != ring(to) {
		return fmt.Sprintf("%s -> %s: every session is placed anew, since one ranks and the other walks a ring", from.Algorithm, to.Algorithm)
	}
	differ(&all, "seed", strconv.Quote(text(from.Seed)), strconv.Quote(text(to.Seed)))
	if ring(from) {
		differ(&all, "cacheAffinityVirtualNodes", max(number(from.CacheAffinityVirtualNodes, 150), 1), max(number(to.CacheAffinityVirtualNodes, 150), 1))
	} else {
		differ(&some, "rendezvousWeight", weight(from), weight(to))
	}
	differ(&some, "k", group(from), group(to))
	switch {
	case len(all) > 0:
		return strings.Join(append(all, some...), ", ") + ": every session is placed anew"
	case len(some) > 0:
		return strings.Join(some, ", ") + ": a part of the sessions moves"
	}
	return ""
}

// keepsSessions tells whether the algorithm prefers clusters by the affinity key.
func keepsSessions(s *v1alpha1.AlgorithmSettings) bool {
	switch s.Algorithm {
	case v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden:
		return true
	case v1alpha1.WaitAndWiden:
		return number(s.CacheAffinityBackendSelectionCount, 0) > 0
	}
	return false
}

// ring: wait-and-widen finds a key's clusters on a hash ring; the pulsars rank them.
func ring(s *v1alpha1.AlgorithmSettings) bool { return s.Algorithm == v1alpha1.WaitAndWiden }

// group is k, the number of clusters that a session may be on before anybody waits.
func group(s *v1alpha1.AlgorithmSettings) int64 {
	if s.Algorithm == v1alpha1.Pulsar {
		return 1
	}
	return max(number(s.CacheAffinityBackendSelectionCount, 1), 1)
}

func weight(s *v1alpha1.AlgorithmSettings) string { return cmp.Or(text(s.RendezvousWeight), "unset") }

func nameOf(s *v1alpha1.AlgorithmSettings) string {
	if s == nil {
		return "what takes its place"
	}
	return string(s.Algorithm)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func number(n *int64, otherwise int64) int64 {
	if n == nil {
		return otherwise
	}
	return *n
}
