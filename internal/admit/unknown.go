package admit

import (
	"strings"

	"github.com/routing-operator/routing-operator/internal/validate"
)

// UnknownField is a field that the API does not have.
type UnknownField struct {
	Path string
	// Hint says what was probably meant.
	Hint string
}

func unknownFields(paths []string) (fields []UnknownField) {
	for _, path := range paths {
		fields = append(fields, UnknownField{path, hint(path)})
	}
	return fields
}

// hint says what was probably meant by a field that does not exist.
func hint(path string) string {
	name := path[strings.LastIndexAny(path, ".]")+1:]
	switch name {
	case "false":
		return `there is no such field; YAML reads an unquoted n as false: write "n"`
	case "true":
		return "there is no such field; YAML reads an unquoted y, yes or on as true: put it in quotes"
	}
	for _, f := range validate.Fields() {
		if name == f.FileName() || strings.EqualFold(name, f.Name) {
			return "there is no such field; the one of that name is " + f.Name
		}
	}
	if name == "request_algorithms" || strings.EqualFold(name, "requestAlgorithms") {
		return "there is no such field; the one of that name is requestAlgorithms"
	}
	return "there is no such field; kubectl explain lists those there are"
}
