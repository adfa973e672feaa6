package cli

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

func TestAFileThatStargateMayReadIsNotTakenAway(t *testing.T) {
	const (
		skip      = "{stargate: {configPathCheck: Skip}}"
		arguments = "{stargate: {configPathCheck: Arguments}}"
	)
	for name, test := range map[string]struct {
		args, plane string // no plane: it is gone
		unread      bool
		want        string // in the refusal; empty where there is none
	}{
		"the argument names it":                                       {"[--lb-config-path=/etc/routing-operator/lb-config.json]", "", false, "still starts Stargate with --lb-config-path=/etc/routing-operator/lb-config.json"},
		"the argument names it, whatever is said":                     {"[--lb-config-path=/etc/routing-operator/lb-config.json]", "", true, "still starts Stargate with"},
		"the argument names another":                                  {"[--lb-config-path, /etc/chart/lb-config.json]", "", false, ""},
		"no argument, and nobody left who knows":                      {"[--http-port=8000]", "", false, "run this again with --unread"},
		"no argument, and it is said that the file is not read":       {"[--http-port=8000]", "", true, ""},
		"no argument, and the plane says that Stargate has no other":  {"[--http-port=8000]", arguments, false, ""},
		"no argument, and the plane says that it may have some other": {"[--http-port=8000]", skip, false, "configPathCheck is Skip"},
	} {
		t.Run(name, func(t *testing.T) {
			router := &appsv1.Deployment{}
			if err := yaml.UnmarshalStrict([]byte(`
metadata: {name: router, namespace: nvcf}
spec:
  template:
    spec:
      containers:
      - {name: router, args: `+test.args+`, volumeMounts: [{name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}]}
      volumes: [{name: routing-lb-config, configMap: {name: llm-stargate-0123456789abcdef}}]
`), router); err != nil {
				t.Fatal(err)
			}
			var plane *v1alpha1.RoutingPlane
			if test.plane != "" {
				plane = &v1alpha1.RoutingPlane{}
				if err := yaml.UnmarshalStrict([]byte(test.plane), &plane.Spec); err != nil {
					t.Fatal(err)
				}
			}
			r := &releasing{key: types.NamespacedName{Namespace: "nvcf", Name: "llm"}, unread: test.unread}
			found := r.append(nil, v1alpha1.KindDeployment, router, &router.Spec.Template.Spec)
			if len(found) != 1 || found[0].revision != "llm-stargate-0123456789abcdef" {
				t.Fatalf("found %+v", found)
			}
			got := ""
			if err := r.check(plane, found); err != nil {
				got = err.Error()
			}
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}
