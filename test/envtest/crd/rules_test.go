package crd

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/validate/cases"
)

var spec = field.NewPath("spec")

var _ = Describe("A rule about one object", func() {
	for _, c := range cases.Policies() {
		It("holds at both doors: "+c.Name, func(ctx context.Context) {
			s := cases.ValidPolicy()
			c.Change(&s)
			compare(validate.Policy(&s, spec), c.Errors,
				server.Create(ctx, policy("case", s), client.DryRunAll), c.ServerErrors())
		})
	}
	for _, c := range cases.Planes() {
		It("holds at both doors: "+c.Name, func(ctx context.Context) {
			s := cases.ValidPlane()
			c.Change(&s)
			compare(validate.Plane(&s, spec, validate.Options{}), c.Errors,
				server.Create(ctx, plane("case", s), client.DryRunAll), c.ServerErrors())
		})
	}
})

var _ = Describe("A rule about a change", Ordered, func() {
	stored := plane("changed", cases.ValidPlane())
	BeforeAll(func(ctx context.Context) { Expect(server.Create(ctx, stored)).To(Succeed()) })
	AfterAll(func(ctx context.Context) { Expect(server.Delete(ctx, stored)).To(Succeed()) })

	for _, c := range cases.PlaneChanges() {
		It("holds at both doors: "+c.Name, func(ctx context.Context) {
			changed := stored.DeepCopy()
			c.Change(&changed.Spec)
			compare(validate.PlaneChange(&stored.Spec, &changed.Spec, spec), c.Errors,
				server.Update(ctx, changed, client.DryRunAll), c.ServerErrors())
		})
	}
})

func compare(library field.ErrorList, wantLibrary []string, answer error, wantAnswer []string) {
	GinkgoHelper()
	var got []string
	for _, err := range library {
		got = append(got, err.Error())
	}
	Expect(got).To(Equal(wantLibrary), "internal/validate")
	Expect(causes(answer)).To(ConsistOf(toAny(wantAnswer)...), "API server")
}

func toAny(list []string) []any {
	all := make([]any, len(list))
	for i, s := range list {
		all[i] = s
	}
	return all
}
