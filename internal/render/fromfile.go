package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
)

// FromFile is the configuration that renders to a file of the same meaning. It fails on what a policy cannot
// hold though a file can: an integer above the largest of 64 bits with a sign.
func FromFile(f *lbconfig.File) (Config, error) {
	c := Config{DefaultAlgorithm: f.Default}
	var err error
	if c.RequestAlgorithms, err = fromRequestAlgorithms(lbconfig.Place{Plane: true}, f.RequestAlgorithms); err != nil {
		return Config{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(f.Models)) {
		place, entry := lbconfig.Place{Model: name}, f.Models[name]
		model := v1alpha1.Model{Name: name}
		if model.AlgorithmSettings, err = fromEntry(place, entry); err != nil {
			return Config{}, err
		}
		if model.RequestAlgorithms, err = fromRequestAlgorithms(place, entry.RequestAlgorithms); err != nil {
			return Config{}, err
		}
		c.Models = append(c.Models, model)
	}
	return c, nil
}

func fromRequestAlgorithms(place lbconfig.Place, entries map[v1alpha1.Algorithm]lbconfig.Entry) ([]v1alpha1.RequestAlgorithm, error) {
	var all []v1alpha1.RequestAlgorithm
	for _, algorithm := range slices.Sorted(maps.Keys(entries)) {
		place.RequestAlgorithm = algorithm
		settings, err := fromEntry(place, entries[algorithm])
		if err != nil {
			return nil, err
		}
		all = append(all, v1alpha1.RequestAlgorithm{AlgorithmSettings: settings})
	}
	return all, nil
}

func fromEntry(place lbconfig.Place, entry lbconfig.Entry) (v1alpha1.AlgorithmSettings, error) {
	fields := map[string]any{}
	for key, value := range entry.Settings {
		if number, ok := value.(lbconfig.Number); ok {
			value = number.Text
		}
		fields[camel(key)] = value
	}
	fields["algorithm"] = entry.Algorithm
	settings := v1alpha1.AlgorithmSettings{}
	data, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(data, &settings)
	}
	if err != nil {
		return settings, fmt.Errorf("%s cannot be held by a policy: %w", place, err)
	}
	return settings, nil
}

// camel is the inverse of snake.
func camel(snake string) string {
	var b strings.Builder
	for i, word := range strings.Split(snake, "_") {
		if r, size := utf8.DecodeRuneInString(word); i > 0 && size > 0 {
			b.WriteString(strings.ToUpper(string(r)))
			word = word[size:]
		}
		b.WriteString(word)
	}
	return b.String()
}
