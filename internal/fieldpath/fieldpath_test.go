package fieldpath_test

import (
	"slices"
	"testing"

	"github.com/routing-operator/routing-operator/internal/fieldpath"
)

func TestKeyTakesTheLongestKeyThatFits(t *testing.T) {
	for name, test := range map[string]struct {
		path      string
		keys      []string
		key, rest string
		ok        bool
	}{
		"a field":                         {"spec.models[3].seed", []string{"spec", "status"}, "spec", ".models[3].seed", true},
		"a field after a dot":             {".models[3].seed", []string{"models"}, "models", "[3].seed", true},
		"the last field":                  {".seed", []string{"seed"}, "seed", "", true},
		"a key in brackets":               {"[a.b/c].x", []string{"a", "a.b/c"}, "a.b/c", ".x", true},
		"a key with dots and no brackets": {".a.b/c", []string{"a", "a.b/c"}, "a.b/c", "", true},
		"a key that is a beginning only":  {".models", []string{"mod"}, "", "", false},
		"a key that is not there":         {".seed", []string{"n"}, "", "", false},
		"an empty key":                    {"[].x", []string{""}, "", ".x", true},
	} {
		t.Run(name, func(t *testing.T) {
			key, rest, ok := fieldpath.Key(test.path, slices.Values(test.keys))
			if key != test.key || rest != test.rest || ok != test.ok {
				t.Errorf("got %q, %q, %t", key, rest, ok)
			}
		})
	}
}

func TestIndexTakesANumberInBrackets(t *testing.T) {
	for path, want := range map[string]struct {
		index int
		rest  string
		ok    bool
	}{
		"[3].seed": {3, ".seed", true},
		"[12]":     {12, "", true},
		"[a]":      {0, "", false},
		"[-1]":     {0, "", false},
		"[1":       {0, "", false},
		".seed":    {0, "", false},
		"":         {0, "", false},
	} {
		if index, rest, ok := fieldpath.Index(path); index != want.index || rest != want.rest || ok != want.ok {
			t.Errorf("%q: got %d, %q, %t", path, index, rest, ok)
		}
	}
}
