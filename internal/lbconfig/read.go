package lbconfig

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
)

// Read reads an lb-config.json as Stargate of generation g does at start-up: it parses the file up to the first
// error, and only then builds the load balancers. A release that is unknown or unsupported is taken for V0. A
// refusal is an *Error.
func Read(data []byte, g release.Generation) (*File, error) {
	r := &reader{source: newSource(data), generation: max(g, release.V0)}
	if err := r.parse(); err != nil {
		return nil, err
	}
	if err := build(&r.file); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.file.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &r.file, nil
}

type reader struct {
	*source
	generation release.Generation
	file       File
}

// The fields that are no settings.
const (
	fieldDefault           = "default"
	fieldRequestAlgorithms = "request_algorithms"
	fieldModels            = "models"
	fieldAlgorithm         = "algorithm"
)

// topLevel are the fields of the file, in the order in which an array gives their values.
var topLevel = []string{fieldDefault, fieldRequestAlgorithms, fieldModels}

// parse reads the top level and its two objects as a stream: what stands first in the file is refused first. An
// entry is read whole before anybody looks into it, as Stargate does; that is why duplicates inside of it are
// decided before their values are judged.
func (r *reader) parse() error {
	if err := r.checkEncoding(); err != nil {
		return err
	}
	start, err := r.next()
	if err != nil {
		return err
	}
	switch start.value {
	case json.Delim('{'):
		err = r.topLevelObject()
	case json.Delim('['):
		r.find(PositionalArray, start.offset, nil, "the file is an array: Stargate takes its values for default, request_algorithms and models")
		err = r.topLevelArray()
	default:
		err = r.refuse(InvalidType, start.offset, nil, "invalid type: %s, expected the load balancer configuration", start.describe())
	}
	if err != nil {
		return err
	}
	return r.checkEnd()
}

func (r *reader) topLevelObject() error {
	seen := map[string]bool{}
	return r.members(func(key node, name string) error {
		switch {
		case !slices.Contains(topLevel, name):
			return r.refuseField(UnknownTopLevelField, key.offset, nil, name, "unknown field `%s`, expected one of %s", name, quoted(topLevel))
		case seen[name]:
			return r.refuseField(DuplicateTopLevel, key.offset, nil, name, "duplicate field `%s`", name)
		}
		seen[name] = true
		return r.topLevelField(name)
	})
}

func (r *reader) topLevelArray() error {
	for _, name := range topLevel {
		if !r.decoder.More() {
			break
		}
		if err := r.topLevelField(name); err != nil {
			return err
		}
	}
	end, err := r.next()
	if err == nil && end.value != json.Delim(']') {
		err = r.refuse(JSONSyntax, end.offset, nil, "trailing characters")
	}
	return err
}

func (r *reader) topLevelField(name string) error {
	if name == fieldDefault {
		value, err := r.whole()
		if err != nil {
			return err
		}
		// Only a string or an object can begin a name here; the parser calls anything else bad JSON.
		r.file.Default, err = r.algorithm(value, nil, JSONSyntax)
		return err
	}
	start, err := r.next()
	if err != nil {
		return err
	}
	if start.value != json.Delim('{') {
		return r.refuseField(InvalidType, start.offset, nil, name, "%s: invalid type: %s, expected a map", name, start.describe())
	}
	if name == fieldModels {
		return r.models()
	}
	return r.requestAlgorithms()
}

// members calls do with every key of an object whose opening brace was read; do has to read the value.
func (r *reader) members(do func(key node, name string) error) error {
	for {
		key, err := r.next()
		if err != nil {
			return err
		}
		name, ok := key.value.(string)
		if !ok {
			return nil // the closing brace
		}
		if err := do(key, name); err != nil {
			return err
		}
	}
}

func (r *reader) models() error {
	r.file.Models = map[string]Entry{}
	return r.members(func(key node, name string) error {
		place := &Place{Model: name}
		if _, ok := r.file.Models[name]; ok {
			r.findDuplicate(key.offset, place, name)
		}
		if name == "" {
			r.find(EmptyModelID, key.offset, place, "no request can have an empty model ID: the entry is never used")
		}
		value, err := r.whole()
		if err != nil {
			return err
		}
		r.file.Models[name], err = r.entry(value, place, true)
		return err
	})
}

func (r *reader) requestAlgorithms() error {
	r.file.RequestAlgorithms = map[v1alpha1.Algorithm]Entry{}
	spelled := map[v1alpha1.Algorithm]string{}
	return r.members(func(key node, name string) error {
		algorithm, place, err := r.requestAlgorithm(key.offset, name, Place{Plane: true})
		if err != nil {
			return err
		}
		switch earlier, ok := spelled[algorithm]; {
		case ok && earlier == name:
			r.findDuplicate(key.offset, place, name)
		case ok:
			r.findTwice(key.offset, place, earlier, name)
		}
		spelled[algorithm] = name
		value, err := r.whole()
		if err != nil {
			return err
		}
		r.file.RequestAlgorithms[algorithm], err = r.entry(value, place, false)
		return err
	})
}

// requestAlgorithm reads a key of request_algorithms within the entry at parent.
func (r *reader) requestAlgorithm(offset int, name string, parent Place) (v1alpha1.Algorithm, *Place, error) {
	algorithm, err := r.algorithm(node{name, offset}, &parent, InvalidType)
	if parent.RequestAlgorithm == "" {
		parent.RequestAlgorithm = algorithm
	}
	return algorithm, &parent, err
}

// entry reads the value of a model or of a request algorithm.
func (r *reader) entry(n node, place *Place, ofModel bool) (Entry, error) {
	switch v := n.value.(type) {
	case string:
		algorithm, err := r.algorithm(n, place, InvalidType)
		return Entry{Algorithm: algorithm}, err
	case object:
		return r.detailed(n.offset, r.distinct(v, place), place, ofModel)
	default:
		return Entry{}, r.refuse(ModelEntryWrongType, n.offset, place, "invalid type: %s, expected an algorithm name or a detailed object", n.describe())
	}
}

func (r *reader) detailed(offset int, members map[string]member, place *Place, ofModel bool) (Entry, error) {
	named, ok := members[fieldAlgorithm]
	if !ok {
		return Entry{}, r.refuseField(MissingAlgorithm, offset, place, fieldAlgorithm, "missing field `algorithm`")
	}
	algorithm, err := r.algorithm(named.value, place, InvalidType)
	if err != nil {
		return Entry{}, err
	}
	nested, hasNested := members[fieldRequestAlgorithms]
	delete(members, fieldAlgorithm)
	delete(members, fieldRequestAlgorithms)
	names := slices.Sorted(maps.Keys(members))

	unsupported := slices.Clone(names)
	unsupported = slices.DeleteFunc(unsupported, func(name string) bool {
		f, ok := fields[name]
		return ok && r.generation >= f.since && f.takenBy(algorithm)
	})
	if len(unsupported) > 0 {
		refusal := r.refuse(UnsupportedField, members[unsupported[0]].offset, place, "%s config does not support field(s): %s", algorithm, strings.Join(unsupported, ", "))
		refusal.Fields = unsupported
		return Entry{}, refusal
	}

	entry := Entry{Algorithm: algorithm, Settings: map[string]any{}}
	for _, name := range names {
		value := members[name].value
		if value.value == nil && !fields[name].required {
			continue
		}
		if entry.Settings[name], err = fields[name].read(value); err != nil {
			return Entry{}, r.refuseValue(value.offset, place, name, err)
		}
	}
	if !hasNested {
		return entry, nil
	}
	entry.RequestAlgorithms, err = r.nestedRequestAlgorithms(nested.value, place)
	if !ofModel && len(entry.RequestAlgorithms) > 0 {
		r.find(NestedRequestAlgorithms, nested.offset, place, "request algorithms do not nest: Stargate drops these")
	}
	if !ofModel {
		entry.RequestAlgorithms = nil
	}
	return entry, err
}

// nestedRequestAlgorithms reads the request_algorithms of an entry, in the byte order of their spelling.
func (r *reader) nestedRequestAlgorithms(n node, place *Place) (map[v1alpha1.Algorithm]Entry, error) {
	raw, ok := n.value.(object)
	if !ok {
		return nil, r.refuseField(InvalidType, n.offset, place, fieldRequestAlgorithms, "%s: invalid type: %s, expected a map", fieldRequestAlgorithms, n.describe())
	}
	members := r.distinct(raw, place)
	entries := map[v1alpha1.Algorithm]Entry{}
	spelled := map[v1alpha1.Algorithm]string{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		algorithm, at, err := r.requestAlgorithm(members[name].offset, name, *place)
		if err != nil {
			return nil, err
		}
		if earlier, ok := spelled[algorithm]; ok {
			r.findTwice(members[name].offset, at, earlier, name)
		}
		spelled[algorithm] = name
		if entries[algorithm], err = r.entry(members[name].value, at, false); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// algorithm reads a name. What is neither a name nor {"name": null} is refused as wrong.
func (r *reader) algorithm(n node, place *Place, wrong Kind) (v1alpha1.Algorithm, error) {
	switch v := n.value.(type) {
	case string:
		algorithm, ok := spellings[v]
		if !ok {
			return "", r.refuse(UnknownAlgorithm, n.offset, place, "unknown algorithm `%s`, expected one of %s", v, quoted(canonicalNames()))
		}
		return algorithm, nil
	case object:
		if len(v) == 0 {
			break
		}
		algorithm, err := r.algorithm(node{v[0].key, v[0].offset}, place, wrong)
		if err != nil {
			return "", err
		}
		if v[0].value.value != nil {
			return "", r.refuse(InvalidType, v[0].value.offset, place, "invalid type: %s, expected null", v[0].value.describe())
		}
		if len(v) > 1 {
			break
		}
		r.find(NameAsObject, n.offset, place, "an object stands for the name %q", v[0].key)
		return algorithm, nil
	}
	return "", r.refuse(wrong, n.offset, place, "%s where an algorithm name is expected", n.describe())
}

func canonicalNames() []string {
	names := map[string]bool{}
	for _, algorithm := range spellings {
		names[string(algorithm)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// distinct decides duplicate keys of an object that was read whole: the last one counts.
func (r *reader) distinct(members object, place *Place) map[string]member {
	last := make(map[string]member, len(members))
	for _, m := range members {
		if _, ok := last[m.key]; ok {
			r.findDuplicate(m.offset, place, m.key)
		}
		last[m.key] = m
	}
	return last
}

// build refuses what only the construction of the load balancers finds out.
func build(file *File) error {
	if err := buildRequestAlgorithms(file.RequestAlgorithms, Place{Plane: true}); err != nil {
		return err
	}
	for _, model := range slices.Sorted(maps.Keys(file.Models)) {
		entry, place := file.Models[model], Place{Model: model}
		if err := buildEntry(entry, place); err != nil {
			return err
		}
		if err := buildRequestAlgorithms(entry.RequestAlgorithms, place); err != nil {
			return err
		}
	}
	return nil
}

func buildRequestAlgorithms(entries map[v1alpha1.Algorithm]Entry, place Place) error {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		place.RequestAlgorithm = key
		entry := entries[key]
		if entry.Algorithm != key {
			return &Error{Kind: KeyMismatch, Stage: Build, Place: &place,
				message: fmt.Sprintf("request algorithm key %s does not match its algorithm %s", key, entry.Algorithm)}
		}
		if err := buildEntry(entry, place); err != nil {
			return err
		}
	}
	return nil
}

func buildEntry(entry Entry, place Place) error {
	switch entry.Algorithm {
	case v1alpha1.PulsarWaitAndWiden:
		return refuseInBuild(ComparatorUnsupported, entry, place, comparator)
	case v1alpha1.WaitAndWiden:
		return refuseInBuild(PulsarOnlyField, entry, place, bandWidenIntervalMs, fallbackMaxQueued)
	default:
		return nil
	}
}

// refuseInBuild refuses an entry that has any of the fields.
func refuseInBuild(kind Kind, entry Entry, place Place, names ...string) error {
	present := slices.DeleteFunc(names, func(name string) bool {
		_, ok := entry.Settings[name]
		return !ok
	})
	if len(present) == 0 {
		return nil
	}
	return &Error{Kind: kind, Stage: Build, Fields: present, Place: &place,
		message: fmt.Sprintf("%s does not support %s", entry.Algorithm, strings.Join(present, ", "))}
}

func (r *reader) refuseField(kind Kind, offset int, place *Place, name, format string, args ...any) *Error {
	refusal := r.refuse(kind, offset, place, format, args...)
	refusal.Fields = []string{name}
	return refusal
}

func (r *reader) refuseValue(offset int, place *Place, name string, err error) *Error {
	kind := InvalidValue
	if wrong := (valueError{}); errors.As(err, &wrong) {
		kind = wrong.kind
	}
	return r.refuseField(kind, offset, place, name, "%s: %v", name, err)
}

func (r *reader) find(kind FindingKind, offset int, place *Place, format string, args ...any) {
	line, column := r.position(offset)
	r.file.Findings = append(r.file.Findings, Finding{kind, place, line, column, fmt.Sprintf(format, args...)})
}

func (r *reader) findDuplicate(offset int, place *Place, key string) {
	r.find(DuplicateKey, offset, place, "the key %q stands here again: Stargate takes this value and drops the earlier one", key)
}

func (r *reader) findTwice(offset int, place *Place, dropped, taken string) {
	r.find(AlgorithmTwice, offset, place, "%q and %q are one algorithm: Stargate takes %q and drops the other entry", dropped, taken, taken)
}
