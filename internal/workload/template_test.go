package workload_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/workload"
)

const (
	revision        = "llm-stargate-0123456789abcdef"
	gatewayRevision = "llm-gateway-0123456789abcdef"
)

// router is a template as the chart of the platform makes it, with a Vault agent that was injected before it.
const router = `
containers:
- {name: vault-agent, image: "hashicorp/vault:1.20.0", args: [agent]}
- name: helm-nvcf-llm-request-router
  image: registry:5000/nvcf/llm-request-router:0.18.0@sha256:0123456789012345678901234567890123456789012345678901234567890123
  args: [--http-port=8000, --lb-config-path=/etc/routing-operator/lb-config.json]
  volumeMounts:
  - {name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}
volumes:
- {name: routing-lb-config, configMap: {name: llm-stargate-0123456789abcdef, defaultMode: 420}}
`

func stargateReader() *workload.Reader {
	table := release.DefaultTable()
	return &workload.Reader{
		Plane: "llm", Artefact: render.ArtefactStargate, Container: "helm-nvcf-llm-request-router",
		ConfigPath: "/etc/routing-operator/lb-config.json", ConfigPathCheck: v1alpha1.ConfigPathCheckArguments,
		Release: func(image string) release.Release { return table.OfImage(image, nil) },
		Lookup: configMaps(map[string]map[string]string{
			"llm-request-router-lb": {"lb-config.json": `{"models":{"a":{"algorithm":"wait-and-widen","last_cluster_affinity":true}}}`, "broken.json": "{"},
		}),
	}
}

func configMaps(data map[string]map[string]string) workload.Lookup {
	return func(name string) *corev1.ConfigMap {
		if d, ok := data[name]; ok {
			return &corev1.ConfigMap{Data: d}
		}
		return nil
	}
}

func spec(t *testing.T, text string) *corev1.PodSpec {
	t.Helper()
	parsed := &corev1.PodSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestARouterIsReadByContainerNameAndWholeImage(t *testing.T) {
	got := stargateReader().Template(spec(t, router))
	if got.Release.Version != "0.18.0" || got.Release.Generation != release.V1 {
		t.Errorf("release %+v", got.Release)
	}
	if got.Revision != revision || !got.Touched || !got.ReadsFile {
		t.Errorf("got %+v", got)
	}
}

func TestARevisionCountsOnlyWhenAPodCannotButReadIt(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*corev1.PodSpec)
		touched bool
	}{
		"the mount is missing":                 {func(s *corev1.PodSpec) { s.Containers[1].VolumeMounts = nil }, true},
		"the mount may be written to":          {func(s *corev1.PodSpec) { s.Containers[1].VolumeMounts[0].ReadOnly = false }, true},
		"the mount is of a path in the volume": {func(s *corev1.PodSpec) { s.Containers[1].VolumeMounts[0].SubPath = "x" }, true},
		"the mount is elsewhere":               {func(s *corev1.PodSpec) { s.Containers[1].VolumeMounts[0].MountPath = "/etc/other" }, true},
		"the mount is in another container": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts, s.Containers[1].VolumeMounts = s.Containers[1].VolumeMounts, nil
		}, true},
		"another mount hides the file": {func(s *corev1.PodSpec) {
			s.Containers[1].VolumeMounts = append(s.Containers[1].VolumeMounts, corev1.VolumeMount{Name: "x", MountPath: "/etc/routing-operator/lb-config.json", SubPath: "y"})
		}, true},
		"the volume may be missing": {func(s *corev1.PodSpec) { optional := true; s.Volumes[0].ConfigMap.Optional = &optional }, true},
		"the volume shows another key": {func(s *corev1.PodSpec) {
			s.Volumes[0].ConfigMap.Items = []corev1.KeyToPath{{Key: "x", Path: "lb-config.json"}}
		}, true},
		"the volume has another source": {func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}, true},
		"the ConfigMap is somebody's own": {func(s *corev1.PodSpec) { s.Volumes[0].ConfigMap.Name = "mine" }, true},
		"the ConfigMap is of another plane": {func(s *corev1.PodSpec) {
			s.Volumes[0].ConfigMap.Name = "llm-two-stargate-0123456789abcdef"
		}, true},
		"nothing is there": {func(s *corev1.PodSpec) { s.Volumes, s.Containers[1].VolumeMounts = nil, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, router)
			test.change(s)
			got := stargateReader().Template(s)
			if got.Revision != "" || got.Touched != test.touched {
				t.Errorf("revision %q, touched %v", got.Revision, got.Touched)
			}
		})
	}
}

func TestTheLastConfigurationPathInCommandAndArgumentsCounts(t *testing.T) {
	for name, test := range map[string]struct {
		command, args []string
		check         v1alpha1.ConfigPathCheck
		reads         bool
		path          string
	}{
		"with an equals sign":        {args: []string{"--lb-config-path=/etc/routing-operator/lb-config.json"}, reads: true},
		"as two arguments":           {args: []string{"--x", "--lb-config-path", "/etc/routing-operator/lb-config.json"}, reads: true},
		"in the command":             {command: []string{"stargate", "--lb-config-path=/etc/routing-operator/lb-config.json"}, reads: true},
		"spelt in another way":       {args: []string{"--lb-config-path=/etc//routing-operator/./lb-config.json"}, reads: true},
		"of two, the second":         {args: []string{"--lb-config-path=/etc/routing-operator/lb-config.json", "--lb-config-path", "/elsewhere"}, path: "/elsewhere"},
		"arguments follow a command": {command: []string{"--lb-config-path=/elsewhere"}, args: []string{"--lb-config-path=/etc/routing-operator/lb-config.json"}, reads: true},
		"none":                       {args: []string{"--http-port=8000"}},
		"without its value":          {args: []string{"--lb-config-path"}},
		"of another name":            {args: []string{"--lb-config-path-x=/etc/routing-operator/lb-config.json"}},
		"none, and the plane knows":  {check: v1alpha1.ConfigPathCheckSkip, reads: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, router)
			s.Containers[1].Command, s.Containers[1].Args = test.command, test.args
			reader := stargateReader()
			if test.check != "" {
				reader.ConfigPathCheck = test.check
			}
			got := reader.Template(s)
			if got.ReadsFile != test.reads || got.Unread.Path != test.path {
				t.Errorf("reads %v, unread %q", got.ReadsFile, got.Unread.Path)
			}
		})
	}
}

func TestTheOperatorsFileIsNotTakenAwayFromWhereItIsRead(t *testing.T) {
	elsewhere := func(s *corev1.PodSpec) {
		s.Containers[1].Args[1] = "--lb-config-path=/etc/llm-request-router/lb-config.json"
	}
	for name, test := range map[string]struct {
		configPath string
		change     func(*corev1.PodSpec)
		reads      bool
		problem    string
	}{
		"another directory":             {configPath: "/etc/routing-operator/v2/lb-config.json", reads: true, problem: "/etc/routing-operator/v2/lb-config.json"},
		"another file in the directory": {configPath: "/etc/routing-operator/other.json", reads: true, problem: "/etc/routing-operator/other.json"},
		"a file of another name": {configPath: "/etc/routing-operator/lb-config.json", reads: true, problem: "/etc/routing-operator/lb-config.json", change: func(s *corev1.PodSpec) {
			s.Containers[1].Args[1] = "--lb-config-path=/etc/routing-operator/other.json"
			s.Volumes[0].ConfigMap.Items = []corev1.KeyToPath{{Key: "lb-config.json", Path: "other.json"}}
		}},
		"the path that is read":                  {configPath: "/etc/routing-operator/lb-config.json", reads: true},
		"a file of the chart's is read":          {configPath: "/etc/routing-operator/v2/lb-config.json", change: elsewhere},
		"a file that the operator's mount lacks": {configPath: "/etc/routing-operator/lb-config.json", change: func(s *corev1.PodSpec) { s.Containers[1].Args[1] = "--lb-config-path=/etc/routing-operator/other.json" }},
	} {
		t.Run(name, func(t *testing.T) {
			s, reader := spec(t, router), stargateReader()
			if test.change != nil {
				test.change(s)
			}
			reader.ConfigPath = test.configPath
			got := reader.Template(s)
			if got.ReadsFile != test.reads || test.reads && got.Revision != revision || !got.Touched {
				t.Errorf("got %+v", got)
			}
			if problem := reader.Problem(s); (problem != "") != (test.problem != "") || !contains(problem, test.problem) {
				t.Errorf("problem %q", problem)
			}
		})
	}
}

func TestTheFileThatIsReadInsteadIsFollowedToItsConfigMap(t *testing.T) {
	for name, test := range map[string]struct {
		path, mount string
		found       bool
	}{
		"a mounted ConfigMap":              {"/etc/llm-request-router/lb-config.json", `[{name: lb, mountPath: /etc/llm-request-router}]`, true},
		"a single file":                    {"/etc/x/lb-config.json", `[{name: lb, mountPath: /etc/x/lb-config.json, subPath: lb-config.json}]`, true},
		"the deeper of two mounts":         {"/etc/a/b/lb-config.json", `[{name: other, mountPath: /etc/a}, {name: lb, mountPath: /etc/a/b}]`, true},
		"a key that is not there":          {"/etc/llm-request-router/other.json", `[{name: lb, mountPath: /etc/llm-request-router}]`, false},
		"a file that cannot be read":       {"/etc/llm-request-router/broken.json", `[{name: lb, mountPath: /etc/llm-request-router}]`, false},
		"a directory with a like name":     {"/etc/llm-request-router-2/lb-config.json", `[{name: lb, mountPath: /etc/llm-request-router}]`, false},
		"a ConfigMap that is not there":    {"/etc/x/lb-config.json", `[{name: gone, mountPath: /etc/x}]`, false},
		"a volume that is no ConfigMap":    {"/etc/x/lb-config.json", `[{name: other, mountPath: /etc/x}]`, false},
		"no mount at all":                  {"/etc/x/lb-config.json", `[]`, false},
		"a path that the pod's name is in": {"/etc/x/lb-config.json", `[{name: lb, mountPath: /etc/x, subPathExpr: $(POD_NAME)}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, `
containers:
- name: helm-nvcf-llm-request-router
  image: router
  volumeMounts: `+test.mount+`
volumes:
- {name: lb, configMap: {name: llm-request-router-lb}}
- {name: gone, configMap: {name: gone}}
- {name: other, emptyDir: {}}
`)
			s.Containers[0].Args = []string{"--lb-config-path=" + test.path}
			got := stargateReader().Template(s).Unread
			if (got.File != nil) != test.found || got.Path != test.path {
				t.Fatalf("got %+v", got)
			}
			if test.found && got.Flags.Len() != 1 {
				t.Errorf("flags %v", got.Flags)
			}
		})
	}
}

func TestTheContainerIsFoundByNameOrBecauseItIsTheOnlyOne(t *testing.T) {
	two, one := spec(t, router), spec(t, `{containers: [{name: router}], initContainers: [{name: setup}]}`)
	for name, test := range map[string]struct {
		spec            *corev1.PodSpec
		asked, want     string
		problemContains string
	}{
		"by name among two":       {two, "helm-nvcf-llm-request-router", "helm-nvcf-llm-request-router", ""},
		"the only one":            {one, "", "router", ""},
		"none is named among two": {two, "", "", "vault-agent, helm-nvcf-llm-request-router"},
		"of a name that is not":   {one, "other", "", `no container "other"; it has: router`},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem := workload.ResolveContainer(test.spec, test.asked)
			if got != test.want || (problem == "") != (test.problemContains == "") || !contains(problem, test.problemContains) {
				t.Errorf("got %q, problem %q", got, problem)
			}
		})
	}
}

func TestOfAMissingContainerNothingIsKnownButThatARevisionMayBeRead(t *testing.T) {
	unknown := release.Release{Version: "unknown", Generation: release.Unknown}
	reader := stargateReader()
	reader.Container = "gone"
	for name, test := range map[string]struct {
		spec string
		want rollout.Template
	}{
		"with a revision":     {router, rollout.Template{Revision: revision, Touched: true, ReadsFile: true, Release: unknown}},
		"with somebody's own": {strings.ReplaceAll(router, revision, "theirs"), rollout.Template{Release: unknown}},
		"without a volume":    {`{containers: [{name: router}]}`, rollout.Template{Release: unknown}},
	} {
		if diff := cmp.Diff(test.want, reader.Template(spec(t, test.spec))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func gatewayReader() *workload.Reader {
	data := map[string]map[string]string{
		gatewayRevision: render.GatewayVariables(v1alpha1.LastClusterSpec{}, true),
		"with":          {"STARGATE_LAST_CLUSTER_ENABLED": "true", "ENABLED": "1"},
		"without":       {"STARGATE_LAST_CLUSTER_ENABLED": "false"},
		"empty":         {"STARGATE_LAST_CLUSTER_ENABLED": ""},
	}
	return &workload.Reader{
		Plane: "llm", Artefact: render.ArtefactGateway, Container: "gateway",
		Release: func(image string) release.Release {
			switch image {
			case "new":
				return release.Release{Version: "V3", Generation: release.V3}
			case "old":
				return release.Release{Version: "V2", Generation: release.V2}
			}
			return release.Release{Version: "1.9.0", Generation: release.Unknown}
		},
		Lookup: configMaps(data),
	}
}

func TestTheMemoryIsWhatTheVariablesComeTo(t *testing.T) {
	enabled := "STARGATE_LAST_CLUSTER_ENABLED"
	ref := func(name string) string {
		return `{name: ` + enabled + `, valueFrom: {configMapKeyRef: {name: ` + name + `, key: ` + enabled + `}}}`
	}
	for name, test := range map[string]struct {
		env, envFrom, image string
		on, unverified      bool
		unreadable          string
	}{
		"nothing is set":                         {},
		"by envFrom":                             {envFrom: `[{configMapRef: {name: with}}]`, on: true, unverified: true},
		"by envFrom with a prefix":               {envFrom: `[{prefix: STARGATE_LAST_CLUSTER_, configMapRef: {name: with}}]`, on: true, unverified: true},
		"a prefix that does not fit":             {envFrom: `[{prefix: X_, configMapRef: {name: with}}]`},
		"the later envFrom wins":                 {envFrom: `[{configMapRef: {name: with}}, {configMapRef: {name: without}}]`},
		"env wins over envFrom":                  {env: `[{name: ` + enabled + `, value: "true"}]`, envFrom: `[{configMapRef: {name: without}}]`, on: true, unverified: true},
		"an empty variable is unset and wins":    {env: `[{name: ` + enabled + `, value: ""}]`, envFrom: `[{configMapRef: {name: with}}]`},
		"an empty entry counts as unset":         {envFrom: `[{configMapRef: {name: empty}}]`},
		"a malformed value is not on":            {env: `[{name: ` + enabled + `, value: "yes"}]`},
		"any spelling of true":                   {env: `[{name: ` + enabled + `, value: "T"}]`, on: true, unverified: true},
		"by reference":                           {env: `[` + ref("with") + `]`, on: true, unverified: true},
		"a reference to what is missing":         {env: `[` + ref("gone") + `]`, unreadable: "ConfigMap gone, which does not exist"},
		"a release that has it":                  {env: `[` + ref("with") + `]`, image: "new", on: true},
		"a release that has it not":              {env: `[` + ref("with") + `]`, image: "old"},
		"a Secret may set it":                    {envFrom: `[{configMapRef: {name: with}}, {secretRef: {name: s}}]`, unreadable: "Secret s"},
		"a later ConfigMap overrules the Secret": {envFrom: `[{secretRef: {name: s}}, {configMapRef: {name: with}}]`, on: true, unverified: true, unreadable: "Secret s"},
		"from a Secret":                          {env: `[{name: ` + enabled + `, valueFrom: {secretKeyRef: {name: s, key: k}}}]`, unreadable: "Secret s"},
		"from a field":                           {env: `[{name: ` + enabled + `, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`, unreadable: "the source of variable " + enabled},
		"from another":                           {env: `[{name: ` + enabled + `, value: $(X)}]`, unreadable: "the variable that " + enabled + " refers to"},
	} {
		t.Run(name, func(t *testing.T) {
			env, envFrom, image := test.env, test.envFrom, test.image
			if env == "" {
				env = "[]"
			}
			if envFrom == "" {
				envFrom = "[]"
			}
			if image == "" {
				image = "gateway"
			}
			got := gatewayReader().Template(spec(t, "containers:\n- name: gateway\n  image: "+image+"\n  env: "+env+"\n  envFrom: "+envFrom)).Memory
			if got.On != test.on || got.Unverified != test.unverified || got.Unreadable != test.unreadable {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func managedEnv() []corev1.EnvVar {
	var env []corev1.EnvVar
	for _, name := range render.GatewayVariableNames() {
		env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: gatewayRevision}, Key: name,
		}}})
	}
	return env
}

func TestAGatewayHasARevisionWhenAllVariablesComeFromOne(t *testing.T) {
	for name, test := range map[string]struct {
		change   func([]corev1.EnvVar) []corev1.EnvVar
		revision string
		touched  bool
	}{
		"all four": {func(e []corev1.EnvVar) []corev1.EnvVar { return e }, gatewayRevision, true},
		"in another order, among others": {func(e []corev1.EnvVar) []corev1.EnvVar {
			slices.Reverse(e)
			return append([]corev1.EnvVar{{Name: "A", Value: "a"}}, e...)
		}, gatewayRevision, true},
		"three":           {func(e []corev1.EnvVar) []corev1.EnvVar { return e[1:] }, "", true},
		"one has a value": {func(e []corev1.EnvVar) []corev1.EnvVar { e[0].Value, e[0].ValueFrom = "true", nil; return e }, "", true},
		"one is of another": {func(e []corev1.EnvVar) []corev1.EnvVar {
			e[0].ValueFrom.ConfigMapKeyRef.Name = "llm-gateway-fedcba9876543210"
			return e
		}, "", true},
		"one has another key": {func(e []corev1.EnvVar) []corev1.EnvVar { e[0].ValueFrom.ConfigMapKeyRef.Key = "X"; return e }, "", true},
		"all are a chart's": {func(e []corev1.EnvVar) []corev1.EnvVar {
			for i := range e {
				e[i].ValueFrom.ConfigMapKeyRef.Name = "chart"
			}
			return e
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := gatewayReader().Template(&corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway", Env: test.change(managedEnv())}}})
			if got.Revision != test.revision || got.Touched != test.touched {
				t.Errorf("revision %q, touched %v", got.Revision, got.Touched)
			}
		})
	}
}

func TestVariablesThatAreAllOnesOwnNeedNoConfigMapOfOthers(t *testing.T) {
	reader := gatewayReader()
	inner := reader.Lookup
	var asked []string
	reader.Lookup = func(name string) *corev1.ConfigMap { asked = append(asked, name); return inner(name) }
	got := reader.Template(&corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway", Env: managedEnv(),
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "chart"}}}}}}})
	if slices.Contains(asked, "chart") {
		t.Error("the chart's ConfigMap was read")
	}
	if !got.Memory.On || !maps.Equal(got.Memory.Variables, render.GatewayVariables(v1alpha1.LastClusterSpec{}, true)) {
		t.Errorf("got %+v", got.Memory)
	}
}

func TestNamesOfRevisionsAreToldFromOthers(t *testing.T) {
	data := map[string]string{"a": "b"}
	long := string(slices.Repeat([]byte("x"), 250))
	for name, test := range map[string]struct {
		plane, artefact, name string
		want                  bool
	}{
		"its own":                          {"llm", "stargate", render.RevisionName("llm", "stargate", data), true},
		"of a plane with a long name":      {long, "gateway", render.RevisionName(long, "gateway", data), true},
		"of the other artefact":            {"llm", "stargate", render.RevisionName("llm", "gateway", data), false},
		"of a plane whose name is a part":  {"llm", "stargate", render.RevisionName("llm-stargate", "stargate", data), false},
		"of a plane that it is a part of":  {"llm-stargate", "stargate", render.RevisionName("llm", "stargate", data), false},
		"without a hash":                   {"llm", "stargate", "llm-stargate-", false},
		"with something that is no hash":   {"llm", "stargate", "llm-stargate-0123456789abcd-f", false},
		"of something that is no revision": {"llm", "stargate", "llm", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := workload.IsRevision(test.plane, test.artefact, test.name); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func contains(text, part string) bool { return strings.Contains(text, part) }
