package simulate

import (
	"strings"
	"testing"

	"github.com/routing-operator/routing-operator/internal/manifests"
	"github.com/routing-operator/routing-operator/internal/release"
)

// policyOf is a RoutingPolicy for the model m in YAML with the given settings, each line one.
func policyOf(settings string) string {
	return `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPolicy
metadata: {name: p, namespace: ns}
spec:
  planeRef: {name: plane}
  models:
  - {name: m, ` + settings + `}
`
}

// manifestsOf text on standard input.
func manifestsOf(t testing.TB, yaml string) manifests.Set {
	t.Helper()
	set, err := manifests.Read([]string{manifests.Stdin}, strings.NewReader(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func variantsOf(t testing.TB, yaml string) []Variant {
	t.Helper()
	p, err := ReadPolicies("p", manifestsOf(t, yaml))
	if err != nil {
		t.Fatal(err)
	}
	variants, _, err := p.Variants(release.Release{Version: "V3", Generation: release.V3})
	if err != nil {
		t.Fatal(err)
	}
	return variants
}

func siteOf(t testing.TB, yaml string) Site {
	t.Helper()
	s, err := ReadSite([]byte(yaml), "site.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func workloadOf(t testing.TB, yaml string) Workload {
	t.Helper()
	w, err := ReadWorkload([]byte(yaml), "workload.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func run(t testing.TB, setup Setup) *Result {
	t.Helper()
	r, err := Run(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
