package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Setting of a plane that differs. What concerns the router's file is a Change instead.
type Setting struct {
	// Path of the field within the spec.
	Path string `json:"path"`
	// From and To are the values as YAML has them; empty where the field is unset.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Settings lists what differs between two specs of a plane, sorted by path.
func Settings(from, to *v1alpha1.RoutingPlaneSpec) ([]Setting, error) {
	before, err := leaves(from)
	if err != nil {
		return nil, err
	}
	after, err := leaves(to)
	if err != nil {
		return nil, err
	}
	var settings []Setting
	for _, path := range slices.Sorted(either(before, after)) {
		if before[path] != after[path] {
			settings = append(settings, Setting{path, before[path], after[path]})
		}
	}
	return settings, nil
}

// leaves are the values of a spec by their paths.
func leaves(spec *v1alpha1.RoutingPlaneSpec) (map[string]string, error) {
	own := *spec
	own.Stargate.DefaultAlgorithm, own.Stargate.RequestAlgorithms = "", nil
	data, err := json.Marshal(&own)
	if err != nil {
		return nil, fmt.Errorf("encoding the spec of a plane: %w", err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("decoding the spec of a plane: %w", err)
	}
	found := map[string]string{}
	collect(tree, "spec", found)
	return found, nil
}

func collect(value any, path string, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			collect(v[key], path+"."+key, into)
		}
	case []any:
		for i, item := range v {
			collect(item, fmt.Sprintf("%s[%d]", path, i), into)
		}
	default:
		into[path] = fmt.Sprint(v)
	}
}
