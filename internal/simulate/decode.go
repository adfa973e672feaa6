package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Duration is a time in a file, written as Go does: "300ms", "1.5s", "10m". The zero value is absent or 0.
type Duration struct {
	time.Duration
	// malformed is what the file says instead of a duration. It is kept so that validation can name the field.
	malformed string
}

// UnmarshalJSON reads a duration. One that is malformed is an error of Validate, not of decoding.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		d.Duration, err = time.ParseDuration(text)
	}
	if err != nil {
		d.malformed = string(data)
	}
	return nil
}

// MarshalJSON writes the duration as Go does.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// decode reads one YAML document into v. It refuses fields that v does not have and keys that occur twice. Every line of
// an error names the source and the field.
func decode(data []byte, source string, v any) error {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return fmt.Errorf("%s: not valid YAML: %s", source, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if hasMore(data) {
		return fmt.Errorf("%s: more than one YAML document; put everything into one", source)
	}
	strict, err := kjson.UnmarshalStrict(asJSON, v)
	if err != nil {
		return fmt.Errorf("%s: %w", source, inPlainWords(err))
	}
	var all []error
	for _, err := range strict {
		message := err.Error()
		var at kjson.FieldError
		if errors.As(err, &at) && strings.HasPrefix(message, "unknown field") {
			message = fmt.Sprintf("%s: unknown field; %s", at.FieldPath(), insteadOf(reflect.TypeOf(v), at.FieldPath()))
		}
		all = append(all, fmt.Errorf("%s: %s", source, message))
	}
	return errors.Join(all...)
}

// hasMore says whether anything follows the first document, which is all that a reader of one document sees.
func hasMore(data []byte) bool {
	documents := yamlv3.NewDecoder(bytes.NewReader(data))
	for number := 1; ; number++ {
		var content any
		if err := documents.Decode(&content); err != nil {
			return !errors.Is(err, io.EOF)
		}
		if number > 1 && content != nil {
			return true
		}
	}
}

// inPlainWords says what is wrong with JSON without speaking of Go's types.
func inPlainWords(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	where := wrong.Field
	if where != "" {
		where += ": "
	}
	return fmt.Errorf("%sis %s; must be %s", where, article(wrong.Value), inWords(wrong.Type))
}

// inFile says in which file validation found its errors.
func inFile(source string, list field.ErrorList) error {
	all := make([]error, len(list))
	for i, err := range list {
		all[i] = fmt.Errorf("%s: %w", source, err)
	}
	return errors.Join(all...)
}

// insteadOf tells what to write in place of an unknown field.
func insteadOf(t reflect.Type, path string) string {
	if strings.HasSuffix(path, ".false") || strings.HasSuffix(path, ".true") {
		return "a bare n or y is a truth value to YAML, so write it in quotes"
	}
	return "allowed here: " + strings.Join(fieldsBeside(t, path), ", ")
}

var index = regexp.MustCompile(`\[[^]]*\]`)

// fieldsBeside lists the fields that the object has in which a path ends, in the order of its type.
func fieldsBeside(t reflect.Type, path string) []string {
	steps := strings.Split(index.ReplaceAllString(path, ""), ".")
	for _, step := range steps[:len(steps)-1] {
		for _, f := range fieldsOf(t) {
			if f.name == step {
				t = f.typ
				break
			}
		}
	}
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

type jsonField struct {
	name string
	typ  reflect.Type
}

// fieldsOf are the fields that a type has in JSON; those of the elements if it is a list, those of an inlined struct
// among its own.
func fieldsOf(t reflect.Type) []jsonField {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var fields []jsonField
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			fields = append(fields, jsonField{name, f.Type})
		case f.Anonymous:
			fields = append(fields, fieldsOf(f.Type)...)
		}
	}
	return fields
}

func article(kind string) string {
	if strings.HasPrefix(kind, "number ") {
		return kind
	}
	return map[string]string{"object": "a mapping", "array": "a list", "bool": "true or false", "string": "a text", "number": "a number"}[kind]
}

func inWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return "a whole number within the range of " + t.Kind().String()
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice:
		return "a list"
	}
	return "a mapping"
}

// checker collects what is wrong with a file.
type checker struct{ errors field.ErrorList }

func (c *checker) invalid(path *field.Path, value any, rule string) {
	c.errors = append(c.errors, field.Invalid(path, value, rule))
}

// longestTime in a file. Sums of times are within the range of a duration.
const longestTime = 500 * time.Hour

// time checks that a duration is well-formed and from the least to the longest.
func (c *checker) time(path *field.Path, d *Duration, least time.Duration) {
	switch {
	case d == nil:
	case d.malformed != "":
		c.errors = append(c.errors, field.Invalid(path, json.RawMessage(d.malformed), `must be a duration with a unit, such as 300ms, 2s or 10m`))
	case d.Duration < least || d.Duration > longestTime:
		c.invalid(path, d.String(), fmt.Sprintf("must be from %v to %v", least, longestTime))
	}
}

// number checks that a number is from the least to the most.
func number[T int | int64 | float64](c *checker, path *field.Path, value *T, least, most T) {
	if value != nil && !(*value >= least && *value <= most) {
		c.invalid(path, *value, fmt.Sprintf("must be from %v to %v", least, most))
	}
}

// oneOf checks a choice.
func oneOf[T ~string](c *checker, path *field.Path, value T, choices ...T) {
	if !slices.Contains(choices, value) {
		c.errors = append(c.errors, field.NotSupported(path, value, choices))
	}
}
