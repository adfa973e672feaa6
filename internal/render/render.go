// Package render turns a merged configuration into the artefacts that the workloads read: lb-config.json for
// Stargate and environment variables for the gateways. It is pure and deterministic.
package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
)

// Config is the effective configuration of one plane, merged from its own spec and from its policies. It has
// passed validation.
type Config struct {
	// DefaultAlgorithm of models without an entry; empty leaves it to Stargate.
	DefaultAlgorithm v1alpha1.Algorithm
	// RequestAlgorithms of the plane, one per algorithm, in any order.
	RequestAlgorithms []v1alpha1.RequestAlgorithm
	// Models with unique names, in any order.
	Models []v1alpha1.Model
}

// Rendered is an lb-config.json and what it does not say.
type Rendered struct {
	// Data is the file.
	Data []byte
	// On are the flags that are true in the file, in its order.
	On []Flag
	// Omitted are the settings that were left out because the generation does not know them, in the order of
	// the file.
	Omitted []Omission
}

// Omission is a setting that the target generation does not know.
type Omission struct {
	// Place of the entry.
	Place Flag
	// Field as a policy spells it, such as cacheAffinityWaitMs.
	Field string
	// Since is the first generation that knows the field.
	Since release.Generation
}

// LBConfig renders the lb-config.json of a generation, with one line for each model. What the spec leaves unset
// is absent, and so is what the generation does not know (a release that is unknown or unsupported gets the
// fields of V0). A lastClusterAffinity that the spec wants true is absent unless it is among on; an explicit
// false stays. The bytes depend on the meaning of c alone, not on its order.
//
// An error is one of the configuration that validation refuses too: a Decimal that is no finite JSON number, or
// two entries for one model or for one request algorithm.
func LBConfig(c Config, on Flags, g release.Generation) (Rendered, error) {
	w := writer{generation: g, isOn: on.Has}
	w.file(c)
	if w.err != nil {
		return Rendered{}, fmt.Errorf("render lb-config.json: %w", w.err)
	}
	return Rendered{Data: w.buf, On: w.on, Omitted: w.omitted}, nil
}

// LargestSize is the size in bytes of the largest lb-config.json that any stage of a rollout would render: the
// newest generation with every flag on.
func LargestSize(c Config) int {
	w := largest()
	w.file(c)
	return len(w.buf)
}

// ModelsObjectSize bounds what the models object costs by itself in LargestSize, in bytes.
const ModelsObjectSize = 32

// ModelSize is the share of a model in LargestSize, in bytes: LargestSize of a configuration is at most that of
// the same without models, plus ModelsObjectSize, plus the shares, and it is less by no more than
// ModelsObjectSize.
func ModelSize(m *v1alpha1.Model) int {
	w := largest()
	w.model(m)
	return len(w.buf) + len(",")
}

func largest() writer {
	return writer{generation: release.Newest, isOn: func(Flag) bool { return true }}
}

// writer appends to a buffer by hand: the layout is for people (one model a line), and a large file is rendered
// at every reconcile.
type writer struct {
	generation release.Generation
	isOn       func(Flag) bool

	buf     []byte
	on      []Flag
	omitted []Omission
	err     error // the first
}

// typicalModel is the size in bytes of many a model's line.
const typicalModel = 384

func (w *writer) file(c Config) {
	w.buf = make([]byte, 0, typicalModel*(len(c.Models)+1))
	members := 0
	member := func(name string) {
		if members++; members > 1 {
			w.raw(",")
		}
		w.raw("\n  \"" + name + "\": ")
	}
	w.raw("{")
	if c.DefaultAlgorithm != "" {
		member("default")
		w.buf = appendString(w.buf, string(c.DefaultAlgorithm))
	}
	if len(c.RequestAlgorithms) > 0 {
		member("request_algorithms")
		w.raw("{")
		for i, r := range w.sortedAlgorithms(Flag{Plane: true}, c.RequestAlgorithms) {
			if i > 0 {
				w.raw(",")
			}
			w.raw("\n    ")
			w.buf = appendString(w.buf, string(r.Algorithm))
			w.raw(": ")
			w.entry(Flag{Plane: true, RequestAlgorithm: r.Algorithm}, &r.AlgorithmSettings, nil)
		}
		w.raw("\n  }")
	}
	if len(c.Models) > 0 {
		member("models")
		w.raw("{")
		for i, m := range w.sortedModels(c.Models) {
			if i > 0 {
				w.raw(",")
			}
			w.model(m)
		}
		w.raw("\n  }")
	}
	if members > 0 {
		w.raw("\n")
	}
	w.raw("}\n")
}

func (w *writer) model(m *v1alpha1.Model) {
	w.raw("\n    ")
	w.buf = appendString(w.buf, m.Name)
	w.raw(": ")
	w.entry(Flag{Model: m.Name}, &m.AlgorithmSettings, m.RequestAlgorithms)
}

// entry writes the algorithm with its settings, or its name alone where there are none.
func (w *writer) entry(place Flag, s *v1alpha1.AlgorithmSettings, requestAlgorithms []v1alpha1.RequestAlgorithm) {
	start := len(w.buf)
	w.raw(`{"algorithm":`)
	name := len(w.buf)
	w.buf = appendString(w.buf, string(s.Algorithm))
	named := len(w.buf)
	for i := range fields {
		if v := fields[i].get(s); v != (value{}) {
			w.setting(place, &fields[i], v)
		}
	}
	if len(requestAlgorithms) > 0 {
		w.raw(`,"request_algorithms":{`)
		for i, r := range w.sortedAlgorithms(place, requestAlgorithms) {
			if i > 0 {
				w.raw(",")
			}
			w.buf = appendString(w.buf, string(r.Algorithm))
			w.raw(":")
			nested := place
			nested.RequestAlgorithm = r.Algorithm
			w.entry(nested, &r.AlgorithmSettings, nil)
		}
		w.raw("}")
	}
	if len(w.buf) == named {
		w.buf = append(w.buf[:start], w.buf[name:named]...)
		return
	}
	w.raw("}")
}

func (w *writer) setting(place Flag, f *field, v value) {
	if f.since > max(w.generation, release.V0) {
		w.omitted = append(w.omitted, Omission{Place: place, Field: f.name, Since: f.since})
		return
	}
	if f.name == lastClusterAffinity && *v.boolean {
		if !w.isOn(place) {
			return
		}
		w.on = append(w.on, place)
	}
	var err error
	if w.buf, err = v.appendTo(append(w.buf, f.key...)); err != nil {
		w.fail("%s: %s: %w", place, f.name, err)
	}
}

func (w *writer) sortedAlgorithms(place Flag, entries []v1alpha1.RequestAlgorithm) []*v1alpha1.RequestAlgorithm {
	sorted, twice := sortedBy(entries, func(r *v1alpha1.RequestAlgorithm) string { return string(r.Algorithm) })
	if twice != nil {
		place.RequestAlgorithm = twice.Algorithm
		w.fail("%s: listed twice; keep one of the entries", place)
	}
	return sorted
}

func (w *writer) sortedModels(models []v1alpha1.Model) []*v1alpha1.Model {
	sorted, twice := sortedBy(models, func(m *v1alpha1.Model) string { return m.Name })
	if twice != nil {
		w.fail("%s: listed twice; keep one of the entries", Flag{Model: twice.Name})
	}
	return sorted
}

// sortedBy sorts by a key without copying the entries, and finds one whose key another one has.
func sortedBy[T any](entries []T, key func(*T) string) (sorted []*T, twice *T) {
	type keyed struct {
		key   string
		entry *T
	}
	byKey := make([]keyed, len(entries))
	for i := range entries {
		byKey[i] = keyed{key(&entries[i]), &entries[i]}
	}
	slices.SortFunc(byKey, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	sorted = make([]*T, len(entries))
	for i := range byKey {
		sorted[i] = byKey[i].entry
		if i > 0 && byKey[i-1].key == byKey[i].key {
			twice = sorted[i]
		}
	}
	return sorted, twice
}

func (w *writer) raw(s string) { w.buf = append(w.buf, s...) }

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}
