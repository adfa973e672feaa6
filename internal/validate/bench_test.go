package validate_test

import (
	"fmt"
	"testing"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/validate/cases"
)

// largest returns 256 models with every field that their algorithms take and, where asked for, all request
// algorithms.
func largest(requests bool) *v1alpha1.RoutingPolicySpec {
	spec := cases.ValidPolicy()
	spec.Models = nil
	for i := range validate.MaxModels {
		all := validate.Algorithms()
		m := v1alpha1.Model{Name: fmt.Sprintf("org/model-%d", i), AlgorithmSettings: cases.Full(all[i%len(all)])}
		for _, a := range all {
			if requests {
				m.RequestAlgorithms = append(m.RequestAlgorithms, v1alpha1.RequestAlgorithm{AlgorithmSettings: cases.Full(a)})
			}
		}
		spec.Models = append(spec.Models, m)
	}
	return &spec
}

func BenchmarkPolicyOf256Models(b *testing.B) {
	for name, requests := range map[string]bool{"models only": false, "with all request algorithms": true} {
		spec := largest(requests)
		b.Run("errors/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if errs := validate.Policy(spec, root); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
		b.Run("warnings/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if warnings := validate.PolicyWarnings(spec, root, validate.AnyGeneration); len(warnings) == 0 {
					b.Fatal("no warnings")
				}
			}
		})
	}
}
