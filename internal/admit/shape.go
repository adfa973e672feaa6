package admit

import (
	"maps"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/internal/fieldpath"
)

// plain tells whether every field of a value is in the schema and has its type, every required one is there, and
// nothing is null. Then the value is what it is decoded to, and nothing of it gets lost on the way.
func plain(value any, schema *structuralschema.Structural) bool {
	switch v := value.(type) {
	case map[string]any:
		return schema.Type == "object" && plainObject(v, schema)
	case []any:
		return schema.Type == "array" && schema.Items != nil && !slices.ContainsFunc(v, func(item any) bool { return !plain(item, schema.Items) })
	case string:
		return schema.Type == "string"
	case bool:
		return schema.Type == "boolean"
	case int64:
		return schema.Type == "integer"
	default:
		return false
	}
}

func plainObject(object map[string]any, schema *structuralschema.Structural) bool {
	for key, value := range object {
		property, known := schema.Properties[key]
		switch {
		case !known:
			return false
		case key == "metadata": // which is judged by itself
		case !plain(value, &property):
			return false
		}
	}
	if schema.ValueValidation == nil {
		return true
	}
	return !slices.ContainsFunc(schema.ValueValidation.Required, func(key string) bool {
		_, present := object[key]
		return !present
	})
}

// remove takes the value at a path out of an object; an item of a list leaves a null, so that the others keep their
// places.
func remove(value any, path string) {
	switch v := value.(type) {
	case map[string]any:
		key, rest, ok := fieldpath.Key(path, maps.Keys(v))
		switch {
		case !ok:
		case rest == "":
			delete(v, key)
		default:
			remove(v[key], rest)
		}
	case []any:
		i, rest, ok := fieldpath.Index(path)
		switch {
		case !ok || i >= len(v):
		case rest == "":
			v[i] = nil
		default:
			remove(v[i], rest)
		}
	}
}

// covered tells whether something was found at the path already, or the path is in what was taken out.
func covered(path string, found field.ErrorList, removed []string) bool {
	return slices.ContainsFunc(found, func(err *field.Error) bool { return err.Field == path }) ||
		slices.ContainsFunc(removed, func(gone string) bool {
			rest, within := strings.CutPrefix(path, gone)
			return within && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
}
