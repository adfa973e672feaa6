// Package lbconfig reads lb-config.json as strictly as a given generation of Stargate does. It is written from
// the description of the file alone and shares no rule with the validation of policies or with rendering, so
// that it can judge both.
package lbconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// LastClusterAffinity is the field that the operator switches on and off by itself.
const LastClusterAffinity = "last_cluster_affinity"

// File is what Stargate makes of an lb-config.json that it accepts: aliases resolved, null gone, duplicates
// decided. Settings that were not in the file are not here either: a later release may change a default.
type File struct {
	// Default is the algorithm of models without an entry; empty where the file does not say it.
	Default v1alpha1.Algorithm
	// RequestAlgorithms that a request may select for any model.
	RequestAlgorithms map[v1alpha1.Algorithm]Entry
	// Models by model ID, the empty one included.
	Models map[string]Entry
	// Findings are what Stargate accepts and drops, ignores or takes by accident, in the order of the file.
	Findings []Finding
}

// Entry is an algorithm and the settings that the file gives it.
type Entry struct {
	Algorithm v1alpha1.Algorithm
	// Settings by the name of the field: a bool, a uint64, a string or a Number.
	Settings map[string]any
	// RequestAlgorithms of a model's entry; nil for a request algorithm.
	RequestAlgorithms map[v1alpha1.Algorithm]Entry
}

// WithoutFlags is the entry less every last_cluster_affinity that is true; one that is explicitly false is part of the
// entry.
func (e Entry) WithoutFlags() Entry {
	if e.Settings[LastClusterAffinity] == true {
		e.Settings = maps.Clone(e.Settings)
		delete(e.Settings, LastClusterAffinity)
	}
	e.RequestAlgorithms = WithoutFlags(e.RequestAlgorithms)
	return e
}

// WithoutFlags are the entries less every last_cluster_affinity that is true.
func WithoutFlags(entries map[v1alpha1.Algorithm]Entry) map[v1alpha1.Algorithm]Entry {
	if entries == nil {
		return nil
	}
	without := make(map[v1alpha1.Algorithm]Entry, len(entries))
	for algorithm, entry := range entries {
		without[algorithm] = entry.WithoutFlags()
	}
	return without
}

// Number is a number that need not be an integer.
type Number struct {
	// Text as it stands in the file, in JSON's grammar.
	Text string
	// Value that Stargate computes with.
	Value float64
}

// Place names an entry of the file. The model's own entry has no RequestAlgorithm; an entry of the top level's
// request_algorithms is of the Plane and has no Model. An empty model ID is legal.
type Place struct {
	Plane            bool
	Model            string
	RequestAlgorithm v1alpha1.Algorithm
}

func (p Place) String() string {
	switch {
	case p.Plane && p.RequestAlgorithm == "":
		return "the plane's request algorithms"
	case p.Plane:
		return fmt.Sprintf("request algorithm %s of the plane", p.RequestAlgorithm)
	case p.RequestAlgorithm != "":
		return fmt.Sprintf("request algorithm %s of model %q", p.RequestAlgorithm, p.Model)
	default:
		return fmt.Sprintf("model %q", p.Model)
	}
}

// Compare orders places: models by name, a model's own entry before its request algorithms, the plane last.
func (p Place) Compare(other Place) int {
	if p.Plane != other.Plane {
		if p.Plane {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(p.Model, other.Model), cmp.Compare(p.RequestAlgorithm, other.RequestAlgorithm))
}

// Flags lists the entries whose last_cluster_affinity is true, sorted.
func (f *File) Flags() []Place {
	var on []Place
	collect := func(place Place, entry Entry) {
		if entry.Settings[LastClusterAffinity] == true {
			on = append(on, place)
		}
	}
	for algorithm, entry := range f.RequestAlgorithms {
		collect(Place{Plane: true, RequestAlgorithm: algorithm}, entry)
	}
	for model, entry := range f.Models {
		collect(Place{Model: model}, entry)
		for algorithm, nested := range entry.RequestAlgorithms {
			collect(Place{Model: model, RequestAlgorithm: algorithm}, nested)
		}
	}
	slices.SortFunc(on, Place.Compare)
	return on
}

// Same says whether two files mean the same: the same settings are present with the same values. Spelling
// (aliases, key order, null for unset, a name for an entry without settings, an empty object for an absent one,
// 1e-1 for 0.1) does not count; presence does, also of a value that is the default today.
func Same(a, b *File) bool {
	return a.Default == b.Default &&
		maps.EqualFunc(a.RequestAlgorithms, b.RequestAlgorithms, SameEntry) &&
		maps.EqualFunc(a.Models, b.Models, SameEntry)
}

// SameEntry is Same for one entry.
func SameEntry(a, b Entry) bool {
	return a.Algorithm == b.Algorithm &&
		maps.EqualFunc(a.Settings, b.Settings, sameValue) &&
		maps.EqualFunc(a.RequestAlgorithms, b.RequestAlgorithms, SameEntry)
}

func sameValue(a, b any) bool {
	x, ok := a.(Number)
	if !ok {
		return a == b
	}
	y, ok := b.(Number)
	return ok && x.Value == y.Value
}
