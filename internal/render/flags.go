package render

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
)

// Flag names one lastClusterAffinity by the entry that holds it: a model's own, a request algorithm of a model
// (RequestAlgorithm set), or an entry of the plane's requestAlgorithms (Plane set).
type Flag = lbconfig.Place

// Flags is a set of flags; nil is the empty set.
type Flags = sets.Set[Flag]

// Unit is what flags are switched by: the flags of a model go together, and those of the plane's
// requestAlgorithms, which concern every model, are one unit of their own.
type Unit struct {
	Plane bool
	Model string
}

// UnitOf a flag.
func UnitOf(f Flag) Unit { return Unit{Plane: f.Plane, Model: f.Model} }

// SortFlags lists flags by model, a model's own before its request algorithms', the plane's last.
func SortFlags(flags Flags) []Flag {
	return slices.SortedFunc(maps.Keys(flags), Flag.Compare)
}

// Units lists the units that flags belong to, models by name and the plane last.
func Units(flags Flags) []Unit {
	units := sets.New[Unit]()
	for f := range flags {
		units.Insert(UnitOf(f))
	}
	return slices.SortedFunc(maps.Keys(units), func(a, b Unit) int {
		return Flag{Plane: a.Plane, Model: a.Model}.Compare(Flag{Plane: b.Plane, Model: b.Model})
	})
}

// OfUnits selects the flags that belong to units.
func OfUnits(flags Flags, units ...Unit) Flags {
	chosen := sets.New(units...)
	selected := Flags{}
	for f := range flags {
		if chosen.Has(UnitOf(f)) {
			selected.Insert(f)
		}
	}
	return selected
}

// Desired are the flags that the specs ask for.
func Desired(c Config) Flags {
	desired := Flags{}
	collect := func(place Flag, s *v1alpha1.AlgorithmSettings) {
		if on := s.LastClusterAffinity; on != nil && *on {
			desired.Insert(place)
		}
	}
	for i := range c.RequestAlgorithms {
		s := &c.RequestAlgorithms[i].AlgorithmSettings
		collect(Flag{Plane: true, RequestAlgorithm: s.Algorithm}, s)
	}
	for i := range c.Models {
		model := &c.Models[i]
		collect(Flag{Model: model.Name}, &model.AlgorithmSettings)
		for j := range model.RequestAlgorithms {
			s := &model.RequestAlgorithms[j].AlgorithmSettings
			collect(Flag{Model: model.Name, RequestAlgorithm: s.Algorithm}, s)
		}
	}
	return desired
}
