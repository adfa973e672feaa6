package lbconfig

import "fmt"

// Stage is the step of Stargate's start-up that refuses a file.
type Stage string

// The stages, in their order. Only a file that passes the first reaches the second.
const (
	Parse Stage = "parse"
	Build Stage = "build"
)

// Kind is the kind of reason for which Stargate refuses a file.
type Kind string

// The kinds of refusal.
const (
	JSONSyntax            Kind = "json-syntax"
	UnknownTopLevelField  Kind = "unknown-top-level-field"
	DuplicateTopLevel     Kind = "duplicate-top-level-field"
	ModelEntryWrongType   Kind = "model-entry-wrong-type"
	MissingAlgorithm      Kind = "missing-algorithm"
	UnknownAlgorithm      Kind = "unknown-algorithm"
	UnsupportedField      Kind = "unsupported-field"
	InvalidType           Kind = "invalid-type"
	InvalidValue          Kind = "invalid-value"
	SampleCountRange      Kind = "sample-count-range"
	ScaleRange            Kind = "scale-range"
	UnknownComparator     Kind = "unknown-comparator"
	UnknownWeight         Kind = "unknown-rendezvous-weight"
	KeyMismatch           Kind = "request-algorithm-key-mismatch"
	ComparatorUnsupported Kind = "comparator-unsupported"
	PulsarOnlyField       Kind = "pulsar-only-field-on-wait-and-widen"
)

// Error is a refusal. Its text is of the kind that Stargate logs before it exits; the other fields say what
// Stargate does not.
type Error struct {
	Kind  Kind
	Stage Stage
	// Fields that the refusal names, sorted.
	Fields []string
	// Place of the entry; nil where the refusal is of the file as a whole.
	Place *Place
	// Line and Column (in bytes) of what is refused, from 1; both 0 in the build stage.
	Line, Column int

	message string
}

func (e *Error) Error() string {
	if e.Stage == Build {
		return e.message
	}
	return fmt.Sprintf("%s at line %d column %d", e.message, e.Line, e.Column)
}

// FindingKind is the kind of thing that Stargate passes over in silence.
type FindingKind string

// The kinds of finding.
const (
	// DuplicateKey: a key stands twice in an object; the last one counts.
	DuplicateKey FindingKind = "duplicate-key"
	// AlgorithmTwice: two spellings of one algorithm are keys of one request_algorithms; one counts.
	AlgorithmTwice FindingKind = "algorithm-twice"
	// NestedRequestAlgorithms: a request algorithm has request algorithms of its own, which are dropped.
	NestedRequestAlgorithms FindingKind = "nested-request-algorithms"
	// EmptyModelID: no request can match the entry.
	EmptyModelID FindingKind = "empty-model-id"
	// PositionalArray: the file is an array of the top-level fields' values.
	PositionalArray FindingKind = "positional-array"
	// NameAsObject: {"random": null} stands for "random".
	NameAsObject FindingKind = "name-as-object"
)

// Finding is something that Stargate accepts and drops, ignores or takes by accident.
type Finding struct {
	Kind FindingKind
	// Place of the entry; nil where the finding is of the file as a whole.
	Place *Place
	// Line and Column (in bytes), from 1.
	Line, Column int
	// Message says what is dropped or taken, and for what.
	Message string
}
