package validate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// algorithms by their canonical names, in the order in which messages list them.
var algorithms = []v1alpha1.Algorithm{
	v1alpha1.PowerOfN,
	v1alpha1.Pulsar,
	v1alpha1.PulsarWaitAndWiden,
	v1alpha1.Random,
	v1alpha1.RoundRobin,
	v1alpha1.WaitAndWiden,
}

// aliases are the legacy spellings that Stargate takes in its file and the operator's API does not.
var aliases = map[v1alpha1.Algorithm]v1alpha1.Algorithm{
	"groq-multiregion":   v1alpha1.WaitAndWiden,
	"power-of-two":       v1alpha1.PowerOfN,
	"powerOf2":           v1alpha1.PowerOfN,
	"powerOfN":           v1alpha1.PowerOfN,
	"powerof2":           v1alpha1.PowerOfN,
	"powerofn":           v1alpha1.PowerOfN,
	"pulsar-multiregion": v1alpha1.PulsarWaitAndWiden,
}

// Algorithms returns the canonical names, sorted.
func Algorithms() []v1alpha1.Algorithm { return slices.Clone(algorithms) }

// Canonical returns the canonical name of an algorithm from its canonical or legacy spelling, and whether there
// is one. Names are case-sensitive and not trimmed, as Stargate takes them.
func Canonical(name string) (v1alpha1.Algorithm, bool) {
	a := v1alpha1.Algorithm(name)
	if canonical, ok := aliases[a]; ok {
		return canonical, true
	}
	return a, known(a)
}

func known(a v1alpha1.Algorithm) bool { return slices.Contains(algorithms, a) }

func checkAlgorithm(a v1alpha1.Algorithm, path *field.Path) field.ErrorList {
	errs := checkLength(string(a), maxNameLength, path)
	if known(a) || len(errs) > 0 {
		return errs
	}
	if canonical, ok := aliases[a]; ok {
		return field.ErrorList{field.Invalid(path, a, fmt.Sprintf("this is a legacy alias; write its canonical name: %s", canonical))}
	}
	return field.ErrorList{field.Invalid(path, a, "no such algorithm; there are: "+join(algorithms))}
}

func join[S ~string](words []S) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}
