package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

func TestVariablesAreTheSameByWhatTheGatewayMakesOfThem(t *testing.T) {
	want := render.GatewayVariables(v1alpha1.LastClusterSpec{TTL: &metav1.Duration{Duration: time.Hour}}, true)
	for name, test := range map[string]struct {
		enabled, ttl, entries string // lookup timeout: unset
		same                  bool
	}{
		"as they are rendered": {"true", "1h0m0s", "100000", true},
		"true is 1":            {"1", "1h0m0s", "100000", true},
		"true is T, an hour is 60m, +100000 is one": {"T", "60m", "+100000", true},
		"what is not set is the gateway's default":  {"true", "1h", "", true},
		"but not off":    {"0", "1h", "100000", false},
		"nor unset":      {"", "1h", "100000", false},
		"nor malformed":  {"yes", "1h", "100000", false},
		"another time":   {"true", "1m", "100000", false},
		"another number": {"true", "1h", "1", false},
	} {
		t.Run(name, func(t *testing.T) {
			have := map[string]string{}
			for variable, value := range map[string]string{render.VariableEnabled: test.enabled, render.VariableTTL: test.ttl, render.VariableLocalMaxEntries: test.entries} {
				if value != "" {
					have[variable] = value
				}
			}
			if got := sameVariables(have, want); got != test.same {
				t.Errorf("got %t", got)
			}
		})
	}
}
