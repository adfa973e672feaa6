package manifests

import (
	"fmt"
	"iter"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/routing-operator/routing-operator/internal/fieldpath"
)

// Document is an object as it stands in a file.
type Document struct {
	// File that it stands in.
	File string
	// Object as JSON values; integers are int64 where they fit.
	Object map[string]any
	// JSON is the same as text.
	JSON []byte

	text *text
	item string // path of the object in the text, where that is a list
}

// Position is a line and a column of a file, both from 1.
type Position struct{ Line, Column int }

// Position of the field at a path; where there is no such field, of what there is of the path.
func (d *Document) Position(path string) Position {
	if d.item != "" {
		path = d.item + "." + path
	}
	return d.text.position(path)
}

// Duplicate is a key that stands twice in a mapping: the last one counts, in silence.
type Duplicate struct {
	Position
	Key string
}

// Duplicates in the text that the object stands in.
func (d *Document) Duplicates() []Duplicate {
	if !d.text.duplicates {
		return nil
	}
	return d.text.findDuplicates()
}

// text is parsed a second time, for the positions of its nodes, only when one is asked for.
type text struct {
	data []byte
	line int // of the first byte
	// duplicates: some key stands twice in a mapping.
	duplicates bool

	once sync.Once
	root *yaml.Node
}

func (t *text) parse() *yaml.Node {
	t.once.Do(func() {
		var document yaml.Node
		// Text with tabs between the tokens of JSON is no YAML; then the object has the position of its beginning.
		if err := yaml.Unmarshal(t.data, &document); err == nil && len(document.Content) > 0 {
			t.root = document.Content[0]
		}
	})
	return t.root
}

func (t *text) position(path string) Position {
	node := t.parse()
	if node == nil {
		return Position{t.line, 1}
	}
	at := node
	for path != "" {
		key, value, rest, ok := step(node, path)
		if !ok {
			break
		}
		at, node, path = key, value, rest
	}
	return Position{t.line + at.Line - 1, at.Column}
}

// step goes one step down a path, and returns also the node that stands for the step: a mapping's key, a list's item.
func step(n *yaml.Node, path string) (at, value *yaml.Node, rest string, ok bool) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		key, rest, ok := fieldpath.Key(path, keys(n))
		if !ok {
			return nil, nil, "", false
		}
		for i := len(n.Content) - 2; i >= 0; i -= 2 { // of two, the last one counts
			if keyOf(n.Content[i]) == key {
				return n.Content[i], n.Content[i+1], rest, true
			}
		}
	case yaml.SequenceNode:
		if i, rest, ok := fieldpath.Index(path); ok && i < len(n.Content) {
			return n.Content[i], n.Content[i], rest, true
		}
	}
	return nil, nil, "", false
}

func keys(n *yaml.Node) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(keyOf(n.Content[i])) {
				return
			}
		}
	}
}

// keyOf a mapping is the text that JSON has in its place: an unquoted n is the truth value false to kubectl's YAML.
func keyOf(n *yaml.Node) string {
	if n.Style == 0 && n.Tag == "!!str" {
		switch n.Value {
		case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			return "true"
		case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			return "false"
		}
	}
	return n.Value
}

func (t *text) findDuplicates() (found []Duplicate) {
	var search func(*yaml.Node)
	search = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			seen := map[string]bool{}
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := n.Content[i]
				if name := fmt.Sprintf("%s %s", key.ShortTag(), key.Value); seen[name] {
					found = append(found, Duplicate{Position{t.line + key.Line - 1, key.Column}, key.Value})
				} else {
					seen[name] = true
				}
			}
		}
		for _, child := range n.Content {
			search(child)
		}
	}
	if root := t.parse(); root != nil {
		search(root)
	}
	return found
}
