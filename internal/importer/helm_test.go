package importer_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/internal/importer"
	"github.com/routing-operator/routing-operator/internal/release"
)

func values(files ...string) []importer.Text {
	var all []importer.Text
	for i, data := range files {
		all = append(all, importer.Text{Name: string(rune('a'+i)) + ".yaml", Data: []byte(data)})
	}
	return all
}

func TestTheFileIsFoundInHelmValues(t *testing.T) {
	for name, test := range map[string]struct {
		files  []string
		config string // "-" for none
		tag    string
		err    string
	}{
		"in the chart's own values": {
			[]string{"llmRequestRouter:\n  image: {tag: 0.14.1}\n  loadBalancer:\n    config: |\n      {}\n"}, "{}\n", "0.14.1", ""},
		"in a stack file": {
			[]string{"addons: {llm: {requestRouter: {loadBalancer: {config: '{\"default\":\"random\"}'}}}}"}, `{"default":"random"}`, "", ""},
		"in a later file, which wins": {
			[]string{"llmRequestRouter: {loadBalancer: {config: '[1]'}}", "llmRequestRouter: {loadBalancer: {config: '{}'}}"}, "{}", "", ""},
		"a later file can take it away": {
			[]string{"llmRequestRouter: {loadBalancer: {config: '[1]'}}", "llmRequestRouter: {loadBalancer: {config: null}}"}, "-", "", ""},
		"an empty text is none": {[]string{"llmRequestRouter: {loadBalancer: {config: ''}}"}, "-", "", ""},
		"values without it":     {[]string{"{}"}, "-", "", ""},
		"an empty file":         {[]string{""}, "-", "", ""},
		"through an alias":      {[]string{"x: &x {config: '{}'}\nllmRequestRouter: {loadBalancer: *x}"}, "{}", "", ""},
		"a mapping in place of text": {[]string{"llmRequestRouter:\n  loadBalancer:\n    config: {default: random}"}, "", "",
			"a.yaml:3: llmRequestRouter.loadBalancer.config is no text"},
		"in both places": {[]string{"llmRequestRouter: {loadBalancer: {config: '{}'}}\naddons: {llm: {requestRouter: {loadBalancer: {config: '{}'}}}}"}, "", "",
			"a.yaml:2: both llmRequestRouter.loadBalancer.config and addons.llm.requestRouter.loadBalancer.config are given"},
		"in two files, in another place in each": {[]string{"llmRequestRouter: {loadBalancer: {config: '{}'}}", "addons: {llm: {requestRouter: {loadBalancer: {config: '{}'}}}}"}, "", "",
			"b.yaml:1: both llmRequestRouter.loadBalancer.config and addons.llm.requestRouter.loadBalancer.config are given"},
		"by an alias and a merge, as YAML has them": {
			[]string{"x: &image {tag: 0.14.1}\ny: &router\n  image: *image\n  loadBalancer: {config: '[1]'}\nllmRequestRouter:\n  <<: *router\n  loadBalancer: {config: '{}'}\n"}, "{}", "0.14.1", ""},
		"by several merges, the first of which counts": {
			[]string{"y: &one {loadBalancer: {config: '{}'}}\nz: &two {loadBalancer: {config: '[1]'}, image: {tag: 0.14.1}}\nllmRequestRouter: {<<: [*one, *two]}\n"}, "{}", "0.14.1", ""},
		"an anchor that contains itself": {[]string{"llmRequestRouter: &a\n  <<: *a\n"}, "", "", "a.yaml: no YAML: "},
		"under a key that stands twice, the last of which helm takes": {
			[]string{"llmRequestRouter: {loadBalancer: {config: '[1]'}}\nllmRequestRouter: {loadBalancer: {config: '{}'}}\n"}, "{}", "", ""},
		"values that are no mapping": {[]string{"- a"}, "", "", "a.yaml:1: Helm values are a mapping"},
		"values that are no YAML":    {[]string{"a: ["}, "", "", "a.yaml: no YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := importer.ReadValues(values(test.files...))
			switch {
			case test.err != "":
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error with %q", err, test.err)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			config := "-"
			if got.Config != nil {
				config = string(got.Config.Data)
			}
			if config != test.config || got.Tag != test.tag {
				t.Errorf("got config %q and tag %q", config, got.Tag)
			}
		})
	}
}

func TestAProblemInAHelmBlockIsNamedByTheLineOfTheValues(t *testing.T) {
	got, err := importer.ReadValues(values("llmRequestRouter:\n  loadBalancer:\n    config: |\n      {\"models\":\n        {\"m\": \"nope\"}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = importer.Read(*got.Config, release.V3)
	if err == nil || !strings.HasPrefix(err.Error(), `a.yaml:5: model "m": Stargate of generation V3 does not start with this file: unknown algorithm`) {
		t.Errorf("got %v", err)
	}
}

func TestTheChartsPathIsReported(t *testing.T) {
	got, err := importer.ReadValues(values("llmRequestRouter:\n  loadBalancer:\n    configPath: /etc/x/lb-config.json"))
	if err != nil || got.ConfigPath != "/etc/x/lb-config.json" || got.ConfigPathAt != "a.yaml:3" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestGatewayVariablesAreFoundWhereverTheyAre(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		want  map[string]string
		err   string
	}{
		"as keys of a mapping": {[]string{"llmApiGateway: {settings: {STARGATE_LAST_CLUSTER_TTL: 15m, STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES: 5}}"},
			map[string]string{"STARGATE_LAST_CLUSTER_TTL": "15m", "STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES": "5"}, ""},
		"as entries of env": {[]string{"gateway: {env: [{name: STARGATE_LAST_CLUSTER_ENABLED, value: true}, {name: OTHER, value: x}]}"},
			map[string]string{"STARGATE_LAST_CLUSTER_ENABLED": "true"}, ""},
		"a later file wins": {[]string{"a: {STARGATE_LAST_CLUSTER_TTL: 1m}", "b: {STARGATE_LAST_CLUSTER_TTL: 2m}"},
			map[string]string{"STARGATE_LAST_CLUSTER_TTL": "2m"}, ""},
		"the same value twice is fine": {[]string{"a: {STARGATE_LAST_CLUSTER_TTL: 1m}\nb: {STARGATE_LAST_CLUSTER_TTL: 1m}"},
			map[string]string{"STARGATE_LAST_CLUSTER_TTL": "1m"}, ""},
		"two values in one file are refused": {[]string{"a: {STARGATE_LAST_CLUSTER_TTL: 1m}\nb: {STARGATE_LAST_CLUSTER_TTL: 2m}"}, nil,
			`a.yaml:2: STARGATE_LAST_CLUSTER_TTL is "2m" here and "1m" elsewhere`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := importer.ReadValues(values(test.files...))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error with %q", err, test.err)
				}
				return
			}
			if err != nil || !maps.Equal(got.Gateway, test.want) {
				t.Errorf("got %v and %v", got.Gateway, err)
			}
		})
	}
}

func TestGatewayVariablesAreReadAsTheGatewayReadsThem(t *testing.T) {
	spec, on, err := importer.LastCluster(map[string]string{
		"STARGATE_LAST_CLUSTER_ENABLED": "T", "STARGATE_LAST_CLUSTER_TTL": "1h30m", "STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT": "", "STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES": "7",
	})
	if err != nil || !on || spec.TTL.Duration != 90*time.Minute || spec.LookupTimeout != nil || *spec.LocalMaxEntries != 7 {
		t.Errorf("got %+v, %t, %v", spec, on, err)
	}
	for name, value := range map[string]string{
		"STARGATE_LAST_CLUSTER_ENABLED": "yes", "STARGATE_LAST_CLUSTER_TTL": "0s", "STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT": "20", "STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES": "0",
	} {
		if _, _, err := importer.LastCluster(map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name+" is ") || !strings.Contains(err.Error(), "does not start") {
			t.Errorf("%s=%s: got %v", name, value, err)
		}
	}
}
