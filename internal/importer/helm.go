package importer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// routers are the places of the router's values: in the chart's own file, and in a file for the whole stack.
var routers = [][]string{{"llmRequestRouter"}, {"addons", "llm", "requestRouter"}}

// Values are what Helm values say of routing.
type Values struct {
	// Foreign tells of values none of which is a router's: they may be another chart's.
	Foreign bool
	// Config is the inline lb-config.json; nil where there is none.
	Config *Text
	// ConfigPath that the chart passes on, with the file and line that say so; empty where there is none.
	ConfigPath, ConfigPathAt string
	// Tag of the router's image; empty where it is not given.
	Tag string
	// Gateway has the variables STARGATE_LAST_CLUSTER_* that are given to the gateways.
	Gateway map[string]string

	// routed tells whether there are values of a router, and configAt is the place of Config.
	routed   bool
	configAt string
}

// ReadValues reads Helm values in the order in which helm is given them: what a later file says counts.
func ReadValues(files []Text) (Values, error) {
	values := Values{Gateway: map[string]string{}}
	var errs []error
	for _, file := range files {
		// Helm's own reader refuses what Helm refuses, anchors that contain themselves among it; the other has the lines.
		var read any
		var document yaml.Node
		if err := cmp.Or(sigsyaml.Unmarshal(file.Data, &read), yaml.Unmarshal(file.Data, &document)); err != nil {
			return Values{}, fmt.Errorf("%s: no YAML: %w", file.Name, err)
		}
		if len(document.Content) == 0 {
			continue
		}
		if root := document.Content[0]; root.Kind != yaml.MappingNode {
			return Values{}, fmt.Errorf("%s:%d: Helm values are a mapping; this is none", file.Name, root.Line)
		}
		values.Foreign = values.Foreign || len(document.Content[0].Content) > 0
		errs = append(errs, values.router(file.Name, document.Content[0]), values.gateway(file.Name, document.Content[0]))
	}
	values.Foreign = values.Foreign && !values.routed
	return values, errors.Join(errs...)
}

func (v *Values) router(file string, root *yaml.Node) error {
	for _, place := range routers {
		router := lookup(root, place...)
		if router == nil {
			continue
		}
		v.routed = true
		if tag := lookup(router, "image", "tag"); tag != nil {
			v.Tag = tag.Value
		}
		if p := lookup(router, "loadBalancer", "configPath"); p != nil {
			v.ConfigPath, v.ConfigPathAt = text(p), fmt.Sprintf("%s:%d", file, p.Line)
		}
		config := lookup(router, "loadBalancer", "config")
		if config == nil {
			continue
		}
		name := strings.Join(place, ".") + ".loadBalancer.config"
		if v.configAt != "" && v.configAt != name {
			return fmt.Errorf("%s:%d: both %s and %s are given; import one router at a time: remove the other from a copy of the values", file, config.Line, v.configAt, name)
		}
		v.configAt = name
		switch {
		case config.Kind != yaml.ScalarNode:
			return fmt.Errorf("%s:%d: %s is no text, and the chart takes JSON as text; write it as a block: config: |", file, config.Line, name)
		case text(config) == "":
			v.Config = nil
		default:
			v.Config = &Text{Name: fmt.Sprintf("%s:%d: %s", file, config.Line, name), Data: []byte(config.Value)}
			if config.Style&yaml.LiteralStyle != 0 {
				v.Config.Name, v.Config.FirstLine = file, config.Line+1
			}
		}
	}
	return nil
}

// gateway finds the variables wherever the gateway's chart has them: as a key of any mapping, or as the name of an
// entry with a value, as in a container's env.
func (v *Values) gateway(file string, root *yaml.Node) error {
	here := map[string]string{}
	var errs []error
	give := func(name *yaml.Node, value string) {
		if earlier, ok := here[name.Value]; ok && earlier != value {
			errs = append(errs, fmt.Errorf("%s:%d: %s is %q here and %q elsewhere in the file; give the one that runs with --gateway-env %s=...", file, name.Line, name.Value, value, earlier, name.Value))
			return
		}
		here[name.Value] = value
	}
	var search func(*yaml.Node)
	search = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				if key, value := n.Content[i], n.Content[i+1]; isVariable(key.Value) && value.Kind == yaml.ScalarNode {
					give(key, text(value))
				}
			}
			if name, value := lookup(n, "name"), lookup(n, "value"); name != nil && value != nil && isVariable(name.Value) {
				give(name, text(value))
			}
		}
		for _, child := range n.Content {
			search(child)
		}
	}
	search(root)
	maps.Copy(v.Gateway, here)
	return errors.Join(errs...)
}

func isVariable(name string) bool { return slices.Contains(render.GatewayVariableNames(), name) }

// text of a scalar; null is empty.
func text(n *yaml.Node) string {
	if n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

// lookup follows keys through mappings and aliases; nil where they lead nowhere.
func lookup(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n = child(n, key); n == nil {
			return nil
		}
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// child is the value of a key: of two the last, as helm takes it, else that of a mapping that is merged in (<<).
func child(n *yaml.Node, key string) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.SequenceNode: // mappings merged in: the first that has the key counts
		for _, item := range n.Content {
			if found := child(item, key); found != nil {
				return found
			}
		}
	case yaml.MappingNode:
		for i := len(n.Content) - 2; i >= 0; i -= 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].ShortTag() == "!!merge" {
				return child(n.Content[i+1], key)
			}
		}
	}
	return nil
}

// LastCluster reads the gateways' variables as the gateway does: an empty value counts as unset, and a malformed one
// stops it at start-up. Whether the memory is on is no setting of a plane: the operator switches it.
func LastCluster(variables map[string]string) (spec v1alpha1.LastClusterSpec, on bool, err error) {
	var errs []error
	duration := func(name string) *metav1.Duration {
		if variables[name] == "" {
			return nil
		}
		d, err := time.ParseDuration(variables[name])
		if err != nil || d <= 0 {
			errs = append(errs, malformed(name, variables[name], "a duration above 0, such as 10m"))
			return nil
		}
		return &metav1.Duration{Duration: d}
	}
	spec.TTL = duration(render.VariableTTL)
	spec.LookupTimeout = duration(render.VariableLookupTimeout)
	if value := variables[render.VariableLocalMaxEntries]; value != "" {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 {
			errs = append(errs, malformed(render.VariableLocalMaxEntries, value, "a number above 0"))
		} else {
			spec.LocalMaxEntries = &n
		}
	}
	if value := variables[render.VariableEnabled]; value != "" {
		if on, err = strconv.ParseBool(value); err != nil {
			errs = append(errs, malformed(render.VariableEnabled, value, "true or false"))
		}
	}
	return spec, on, errors.Join(errs...)
}

func malformed(name, value, wanted string) error {
	return fmt.Errorf("%s is %q, with which the gateway does not start, also where the feature is off; it takes %s", name, value, wanted)
}
