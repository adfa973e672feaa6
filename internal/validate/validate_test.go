package validate_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/validate/cases"
)

var root = field.NewPath("spec")

func TestPolicy(t *testing.T) {
	for _, c := range cases.Policies() {
		t.Run(c.Name, func(t *testing.T) {
			spec := cases.ValidPolicy()
			c.Change(&spec)
			checkErrors(t, validate.Policy(&spec, root), c.Errors)
		})
	}
}

func TestPlane(t *testing.T) {
	for _, c := range cases.Planes() {
		t.Run(c.Name, func(t *testing.T) {
			spec := cases.ValidPlane()
			c.Change(&spec)
			checkErrors(t, validate.Plane(&spec, root, validate.Options{}), c.Errors)
		})
	}
}

func checkErrors(t *testing.T, errs field.ErrorList, want []string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("errors:\n%q\nwant:\n%q", got, want)
	}
}
