package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsyaml "sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// YAML writes an object without its status, its fields in the order of the API: this is what people keep in Git.
func YAML(gvk schema.GroupVersionKind, meta metav1.ObjectMeta, spec any) ([]byte, error) {
	data, err := json.Marshal(struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       any            `json:"spec"`
	}{gvk.GroupVersion().String(), gvk.Kind, named(meta), spec})
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", gvk.Kind, meta.Name, err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil { // JSON is YAML, and keeps its order here
		return nil, fmt.Errorf("encoding %s %s: %w", gvk.Kind, meta.Name, err)
	}
	plain(&document)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(&document); err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", gvk.Kind, meta.Name, err)
	}
	return out.Bytes(), nil
}

func named(meta metav1.ObjectMeta) map[string]any {
	m := map[string]any{"name": meta.Name}
	if meta.Namespace != "" {
		m["namespace"] = meta.Namespace
	}
	return m
}

// plain takes the style of JSON off everything that reads the same without it. Texts that some reader of YAML takes
// for something else (yes, 0x10, 1e3) stay in quotes.
func plain(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || needsNoQuotes(n.Value) {
		n.Style = 0
	}
	for _, child := range n.Content {
		plain(child)
	}
}

func needsNoQuotes(s string) bool {
	out, err := sigsyaml.Marshal(s)
	return err == nil && strings.TrimSuffix(string(out), "\n") == s
}
