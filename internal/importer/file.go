package importer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// Text is a configuration and where it stands, for messages.
type Text struct {
	// Name of the file, and of the place in it where the text is a part of the file only.
	Name string
	// Data is the JSON.
	Data []byte
	// FirstLine of the text in the file; 0 where its lines are not those of the file.
	FirstLine int
}

// at names a position in the text; line 0 is the whole.
func (t Text) at(line, column int) string {
	switch {
	case line == 0:
		return t.Name
	case t.FirstLine == 0:
		return fmt.Sprintf("%s, line %d column %d of the JSON", t.Name, line, column)
	case t.FirstLine == 1:
		return fmt.Sprintf("%s:%d:%d", t.Name, line, column)
	default:
		return fmt.Sprintf("%s:%d", t.Name, t.FirstLine+line-1) // the column is off by the indentation
	}
}

// Read reads an lb-config.json as Stargate of generation g does. Beyond what Stargate refuses it refuses what a
// policy cannot hold: the top level as an array, an object in place of an algorithm's name, an integer above the
// largest of 64 bits with a sign, and texts beyond the API's limits. The warnings are about what Stargate drops or
// ignores in silence.
func Read(text Text, g release.Generation) (config render.Config, warnings []string, err error) {
	file, err := lbconfig.Read(text.Data, g)
	if err != nil {
		return render.Config{}, nil, refusal(text, g, err)
	}
	var errs []error
	for _, f := range file.Findings {
		where := text.at(f.Line, f.Column)
		if f.Place != nil {
			where += ": " + f.Place.String()
		}
		switch f.Kind {
		case lbconfig.PositionalArray:
			errs = append(errs, fmt.Errorf("%s: the file is a JSON array, which Stargate takes by an accident of its parser; write it as an object with the fields default, request_algorithms and models", where))
		case lbconfig.NameAsObject:
			errs = append(errs, fmt.Errorf("%s: an object stands in place of an algorithm's name, which Stargate takes by an accident of its parser; write the name as a string", where))
		default:
			warnings = append(warnings, where+": "+f.Message)
		}
	}
	errs = append(errs, tooLarge(text, file)...)
	if len(errs) > 0 {
		return render.Config{}, warnings, errors.Join(errs...)
	}
	shorten(file)
	config, err = render.FromFile(file)
	if err != nil {
		return render.Config{}, warnings, fmt.Errorf("%s: %w", text.Name, err)
	}
	return config, warnings, nil
}

// refusal says what Stargate refuses, where, and what its own message leaves out.
func refusal(text Text, g release.Generation, err error) error {
	var refused *lbconfig.Error
	if !errors.As(err, &refused) {
		return fmt.Errorf("%s: %w", text.Name, err)
	}
	where := text.at(refused.Line, refused.Column)
	if refused.Place != nil {
		where += ": " + refused.Place.String()
	}
	message := strings.TrimSuffix(err.Error(), fmt.Sprintf(" at line %d column %d", refused.Line, refused.Column))
	hint := mistaken(text.Data)
	if since := known(text.Data, g); refused.Kind == lbconfig.UnsupportedField && since > g {
		hint = fmt.Sprintf("; Stargate takes this file from generation %s on: if that is what runs, say --stargate-version %s", since, since)
	}
	return &refusedError{fmt.Sprintf("%s: Stargate of generation %s does not start with this file: %s%s", where, g, message, hint), refused}
}

// mistaken says what the text is instead of a file that Stargate reads: one with the byte order mark that editors and
// shells of some systems write unasked, or the ConfigMap around the file.
func mistaken(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return "; the file begins with a byte order mark: save it as UTF-8 without one"
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return "; the file is UTF-16: save it as UTF-8 without a byte order mark"
	}
	if configMap.Match(data) {
		return "; this is a ConfigMap, not the file in it: kubectl get configmap NAME -o jsonpath='{.data.lb-config\\.json}' prints the file"
	}
	return ""
}

var configMap = regexp.MustCompile(`(?m)^ *"?kind"?: *"?ConfigMap\b`)

// refusedError is Stargate's refusal in our words.
type refusedError struct {
	message string
	cause   *lbconfig.Error
}

func (e *refusedError) Error() string { return e.message }

func (e *refusedError) Unwrap() error { return e.cause }

// known is the first generation after g that accepts the file, or g where none does.
func known(data []byte, g release.Generation) release.Generation {
	for newer := g + 1; newer <= release.Newest; newer++ {
		if _, err := lbconfig.Read(data, newer); err == nil {
			return newer
		}
	}
	return g
}

// tooLarge finds what the API cannot hold though Stargate can.
func tooLarge(text Text, file *lbconfig.File) (errs []error) {
	visit(file, func(place lbconfig.Place, entry lbconfig.Entry) {
		for _, name := range slices.Sorted(maps.Keys(entry.Settings)) {
			if n, ok := entry.Settings[name].(uint64); ok && n > math.MaxInt64 {
				errs = append(errs, fmt.Errorf("%s: %s: %s is %d, and a policy holds integers up to %d; write that, which is as good as no limit",
					text.Name, place, name, n, int64(math.MaxInt64)))
			}
		}
	})
	return errs
}

// shorten rewrites numbers that are longer than a policy takes to the shortest text of the same 64-bit float, which
// is all that Stargate keeps of them.
func shorten(file *lbconfig.File) {
	visit(file, func(_ lbconfig.Place, entry lbconfig.Entry) {
		for name, value := range entry.Settings {
			if n, ok := value.(lbconfig.Number); ok && len(n.Text) > validate.MaxDecimalLength {
				n.Text = strconv.FormatFloat(n.Value, 'g', -1, 64)
				entry.Settings[name] = n
			}
		}
	})
}

// visit goes through every entry of the file in order.
func visit(file *lbconfig.File, do func(lbconfig.Place, lbconfig.Entry)) {
	nested := func(place lbconfig.Place, entries map[v1alpha1.Algorithm]lbconfig.Entry) {
		for _, algorithm := range slices.Sorted(maps.Keys(entries)) {
			place.RequestAlgorithm = algorithm
			do(place, entries[algorithm])
		}
	}
	nested(lbconfig.Place{Plane: true}, file.RequestAlgorithms)
	for _, model := range slices.Sorted(maps.Keys(file.Models)) {
		place := lbconfig.Place{Model: model}
		do(place, file.Models[model])
		nested(place, file.Models[model].RequestAlgorithms)
	}
}

// WithoutFile is the configuration of a router that is given no file: power-of-n for every model, and every
// algorithm selectable by a request.
func WithoutFile() render.Config {
	config := render.Config{DefaultAlgorithm: v1alpha1.PowerOfN}
	for _, algorithm := range validate.Algorithms() {
		config.RequestAlgorithms = append(config.RequestAlgorithms, v1alpha1.RequestAlgorithm{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: algorithm}})
	}
	return config
}
