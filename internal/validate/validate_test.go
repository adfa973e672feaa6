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

func TestPlaneChange(t *testing.T) {
	for _, c := range cases.PlaneChanges() {
		t.Run(c.Name, func(t *testing.T) {
			before, after := cases.ValidPlane(), cases.ValidPlane()
			c.Change(&after)
			checkErrors(t, validate.PlaneChange(&before, &after, root), c.Errors)
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

func TestConfigPathLiesWhereTheAdministratorAllows(t *testing.T) {
	tests := map[string]struct {
		allowed []string
		file    string
		refused bool
	}{
		"a slash at the end of the setting makes no difference": {[]string{"/srv/stargate/"}, "/srv/stargate/lb.json", false},
		"the default does not hold beside a setting":            {[]string{"/srv/stargate"}, "/etc/routing-operator/lb-config.json", true},
		"one of several directories will do":                    {[]string{"/srv/stargate", "/opt/llm"}, "/opt/llm/a/b/lb.json", false},
		"a directory that begins alike is another one":          {[]string{"/srv/stargate"}, "/srv/stargate2/lb.json", true},
		"the directory's parent would be mounted over":          {[]string{"/srv/llm/stargate"}, "/srv/llm/stargate", true},
		"the root allows what is two directories deep":          {[]string{"/"}, "/srv/stargate/lb.json", false},
		"the root allows no directory of the root":              {[]string{"/"}, "/etc/lb.json", true},
		"the root allows nothing of the kubelet":                {[]string{"/"}, "/var/run/secrets/lb.json", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := cases.ValidPlane()
			spec.Stargate.ConfigPath = test.file
			errs := validate.Plane(&spec, root, validate.Options{AllowedPathPrefixes: test.allowed})
			if refused := len(errs) == 1 && errs[0].Field == "spec.stargate.configPath"; refused != test.refused || (!refused && len(errs) > 0) {
				t.Errorf("errors %v, want one: %t", errs, test.refused)
			}
		})
	}
}
