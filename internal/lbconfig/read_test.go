package lbconfig_test

import (
	_ "embed"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
)

//go:embed testdata/lb-configs.json
var casesJSON []byte

type fileCase struct {
	ID         string         `json:"id"`
	Text       string         `json:"text"`
	AcceptedBy []string       `json:"acceptedBy"`
	Because    lbconfig.Kind  `json:"refusedByV3Because"`
	Stage      lbconfig.Stage `json:"stage"`
	ErrorNames []string       `json:"errorNames"`
}

func cases(t testing.TB) []fileCase {
	t.Helper()
	var cases []fileCase
	if err := json.Unmarshal(casesJSON, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 100 {
		t.Fatalf("only %d cases: the file is not what it was", len(cases))
	}
	return cases
}

func generations() []release.Generation {
	return []release.Generation{release.V0, release.V1, release.V2, release.V3}
}

func refusal(t *testing.T, err error) *lbconfig.Error {
	t.Helper()
	var refused *lbconfig.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error %v (%T) is no refusal", err, err)
	}
	return refused
}

func TestEveryRecordedFileIsJudgedAsStargateOfEachGenerationJudgesIt(t *testing.T) {
	for _, c := range cases(t) {
		for _, g := range generations() {
			t.Run(c.ID+"/"+g.String(), func(t *testing.T) {
				_, err := lbconfig.Read([]byte(c.Text), g)
				accepted := slices.Contains(c.AcceptedBy, g.String())
				if accepted {
					if err != nil {
						t.Fatalf("refused: %v", err)
					}
					return
				}
				if err == nil {
					t.Fatal("accepted")
				}
				refused := refusal(t, err)
				if c.Because == "" {
					// A field that this generation does not know yet.
					if refused.Kind != lbconfig.UnsupportedField || refused.Stage != lbconfig.Parse {
						t.Fatalf("refused as %s in %s, want an unsupported field in parse", refused.Kind, refused.Stage)
					}
					return
				}
				if g != release.V3 {
					return // only the reasons of V3 are recorded
				}
				if refused.Kind != c.Because || refused.Stage != c.Stage {
					t.Errorf("refused as %s in %s, want %s in %s: %v", refused.Kind, refused.Stage, c.Because, c.Stage, err)
				}
				if c.ErrorNames != nil && !slices.Equal(refused.Fields, c.ErrorNames) {
					t.Errorf("fields %q, want %q", refused.Fields, c.ErrorNames)
				}
				for _, name := range c.ErrorNames {
					if !strings.Contains(err.Error(), name) {
						t.Errorf("the message does not name %s: %v", name, err)
					}
				}
			})
		}
	}
}

func TestRefusalsSayWhatStargateSaysAndWhere(t *testing.T) {
	model := &lbconfig.Place{Model: "m"}
	tests := map[string]struct {
		in           string
		kind         lbconfig.Kind
		place        *lbconfig.Place
		line, column int
		message      string
	}{
		"unsupported fields are named sorted": {
			"{\"models\":{\n \"m\":{\"algorithm\":\"wait-and-widen\",\"zeta\":1,\"sample_count\":2}}}",
			lbconfig.UnsupportedField, model, 2, 45,
			"wait-and-widen config does not support field(s): sample_count, zeta at line 2 column 45",
		},
		"a field of another algorithm is refused before its value is judged": {
			`{"models":{"m":{"algorithm":"random","seed":5}}}`,
			lbconfig.UnsupportedField, model, 1, 38, "random config does not support field(s): seed at line 1 column 38",
		},
		"null does not excuse a field that the algorithm does not take": {
			`{"models":{"m":{"algorithm":"random","seed":null}}}`,
			lbconfig.UnsupportedField, model, 1, 38, "random config does not support field(s): seed at line 1 column 38",
		},
		"a request algorithm of a model is named with its model": {
			`{"models":{"m":{"algorithm":"random","request_algorithms":{"pulsar":{"algorithm":"pulsar","n":1}}}}}`,
			lbconfig.UnsupportedField, &lbconfig.Place{Model: "m", RequestAlgorithm: v1alpha1.Pulsar}, 1, 91,
			"pulsar config does not support field(s): n at line 1 column 91",
		},
		"a request algorithm of the top level is named": {
			`{"request_algorithms":{"pulsar":{"algorithm":"pulsar","consider_kv_free_tokens":0}}}`,
			lbconfig.InvalidType, &lbconfig.Place{Plane: true, RequestAlgorithm: v1alpha1.Pulsar}, 1, 81,
			"consider_kv_free_tokens: invalid type: integer `0`, expected a boolean at line 1 column 81",
		},
		"an unknown key of request_algorithms is an unknown algorithm": {
			`{"request_algorithms":{"Random":"random"}}`,
			lbconfig.UnknownAlgorithm, &lbconfig.Place{Plane: true}, 1, 24,
			"unknown algorithm `Random`, expected one of `power-of-n`, `pulsar`, `pulsar-wait-and-widen`, `random`, `round-robin`, `wait-and-widen` at line 1 column 24",
		},
		"half a surrogate pair is bad JSON": {
			`{"models":{"m":{"algorithm":"pulsar","seed":"\ud83d\u0041"}}}`,
			lbconfig.JSONSyntax, nil, 1, 45, "lone surrogate in a string at line 1 column 45",
		},
		"text that is not UTF-8 is bad JSON": {
			"{\"models\":{\"\xff\":\"random\"}}",
			lbconfig.JSONSyntax, nil, 1, 13, "invalid UTF-8 at line 1 column 13",
		},
		"a file cut short is bad JSON": {
			`{"models":{"m":`,
			lbconfig.JSONSyntax, nil, 1, 16, "unexpected end of the file at line 1 column 16",
		},
		"something after the file is bad JSON": {
			"{}\n{}",
			lbconfig.JSONSyntax, nil, 2, 1, "trailing characters at line 2 column 1",
		},
		"a fourth value of a positional array is bad JSON": {
			`["random",{},{},{}]`,
			lbconfig.JSONSyntax, nil, 1, 17, "trailing characters at line 1 column 17",
		},
		"a name that is neither text nor an object is bad JSON at the top": {
			`{"default":5}`,
			lbconfig.JSONSyntax, nil, 1, 12, "integer `5` where an algorithm name is expected at line 1 column 12",
		},
		"a minus zero is no integer": {
			`{"models":{"m":{"algorithm":"wait-and-widen","n":-0}}}`,
			lbconfig.InvalidType, model, 1, 50, "n: invalid type: floating point `-0`, expected an unsigned 64-bit integer at line 1 column 50",
		},
		"nesting without end is given up": {
			`{"models":{"m":` + strings.Repeat("[", 200),
			lbconfig.JSONSyntax, nil, 1, 141, "recursion limit exceeded at line 1 column 141",
		},
		"what stands first is refused first": {
			`{"models":{"m":"nope"},"unknown":1,}`,
			lbconfig.UnknownAlgorithm, model, 1, 16,
			"unknown algorithm `nope`, expected one of `power-of-n`, `pulsar`, `pulsar-wait-and-widen`, `random`, `round-robin`, `wait-and-widen` at line 1 column 16",
		},
		"a first value of a duplicate model is judged before it is dropped": {
			`{"models":{"m":{"algorithm":"random","x":1},"m":"random"}}`,
			lbconfig.UnsupportedField, model, 1, 38, "random config does not support field(s): x at line 1 column 38",
		},
		"a build error has no position and comes after every parse error": {
			`{"request_algorithms":{"random":"pulsar"},"models":{"m":{"algorithm":"pulsar-wait-and-widen","comparator":"ttft"}}}`,
			lbconfig.KeyMismatch, &lbconfig.Place{Plane: true, RequestAlgorithm: v1alpha1.Random}, 0, 0,
			"request algorithm key random does not match its algorithm pulsar",
		},
		"fields of pulsar-wait-and-widen on wait-and-widen fail the build": {
			`{"models":{"m":{"algorithm":"wait-and-widen","fallback_max_queued":0,"band_widen_interval_ms":0}}}`,
			lbconfig.PulsarOnlyField, model, 0, 0, "wait-and-widen does not support band_widen_interval_ms, fallback_max_queued",
		},
		"a request algorithm is built too": {
			`{"models":{"m":{"algorithm":"random","request_algorithms":{"pulsar-wait-and-widen":{"algorithm":"pulsar-wait-and-widen","comparator":"ttft"}}}}}`,
			lbconfig.ComparatorUnsupported, &lbconfig.Place{Model: "m", RequestAlgorithm: v1alpha1.PulsarWaitAndWiden}, 0, 0,
			"pulsar-wait-and-widen does not support comparator",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := lbconfig.Read([]byte(test.in), release.V3)
			refused := refusal(t, err)
			if refused.Kind != test.kind {
				t.Errorf("kind %s, want %s", refused.Kind, test.kind)
			}
			if !reflect.DeepEqual(refused.Place, test.place) {
				t.Errorf("place %v, want %v", refused.Place, test.place)
			}
			if refused.Line != test.line || refused.Column != test.column {
				t.Errorf("line %d column %d, want %d and %d", refused.Line, refused.Column, test.line, test.column)
			}
			if err.Error() != test.message {
				t.Errorf("message\n%s, want\n%s", err, test.message)
			}
		})
	}
}

func TestAReleaseThatIsNotKnownIsReadAsTheFirstGeneration(t *testing.T) {
	for _, g := range []release.Generation{release.Unknown, release.Unsupported} {
		if _, err := lbconfig.Read([]byte(`{"models":{"m":{"algorithm":"pulsar","seed":"s"}}}`), g); err != nil {
			t.Errorf("%s: %v", g, err)
		}
		_, err := lbconfig.Read([]byte(`{"models":{"m":{"algorithm":"wait-and-widen","cache_affinity_wait_ms":1}}}`), g)
		if kind := refusal(t, err).Kind; kind != lbconfig.UnsupportedField {
			t.Errorf("%s: a field of V1 is refused as %s", g, kind)
		}
	}
}

func TestWhatStargatePassesOverInSilenceIsFound(t *testing.T) {
	type finding struct {
		kind    lbconfig.FindingKind
		message string // a part of it
	}
	tests := map[string]struct {
		in    string
		want  []finding
		means string // the same file without the finding
	}{
		"a duplicate model": {
			`{"models":{"m":"random","m":"pulsar"}}`,
			[]finding{{lbconfig.DuplicateKey, `"m"`}},
			`{"models":{"m":"pulsar"}}`,
		},
		"a duplicate request algorithm": {
			`{"request_algorithms":{"pulsar":{"algorithm":"pulsar","seed":"a"},"pulsar":"pulsar"}}`,
			[]finding{{lbconfig.DuplicateKey, `"pulsar"`}},
			`{"request_algorithms":{"pulsar":"pulsar"}}`,
		},
		"a duplicate algorithm of an entry, whose first value nobody judges": {
			`{"models":{"m":{"algorithm":"nope","algorithm":"pulsar","seed":1,"seed":"s"}}}`,
			[]finding{{lbconfig.DuplicateKey, `"algorithm"`}, {lbconfig.DuplicateKey, `"seed"`}},
			`{"models":{"m":{"algorithm":"pulsar","seed":"s"}}}`,
		},
		"a null after a value unsets it": {
			`{"models":{"m":{"algorithm":"pulsar","seed":"s","seed":null}}}`,
			[]finding{{lbconfig.DuplicateKey, `"seed"`}},
			`{"models":{"m":"pulsar"}}`,
		},
		"two spellings at the top, where the last in the file wins": {
			`{"request_algorithms":{"power-of-two":{"algorithm":"power-of-n","sample_count":5},"power-of-n":{"algorithm":"power-of-n","sample_count":3}}}`,
			[]finding{{lbconfig.AlgorithmTwice, `Stargate takes "power-of-n"`}},
			`{"request_algorithms":{"power-of-n":{"algorithm":"power-of-n","sample_count":3}}}`,
		},
		"two spellings under a model, where the last in byte order wins": {
			`{"models":{"m":{"algorithm":"random","request_algorithms":{"power-of-two":{"algorithm":"power-of-n","sample_count":5},"power-of-n":{"algorithm":"power-of-n","sample_count":3}}}}}`,
			[]finding{{lbconfig.AlgorithmTwice, `Stargate takes "power-of-two"`}},
			`{"models":{"m":{"algorithm":"random","request_algorithms":{"power-of-n":{"algorithm":"power-of-n","sample_count":5}}}}}`,
		},
		"a loser among two spellings is not built": {
			`{"request_algorithms":{"power-of-two":"random","power-of-n":"power-of-n"}}`,
			[]finding{{lbconfig.AlgorithmTwice, `drops the other`}},
			`{"request_algorithms":{"power-of-n":"power-of-n"}}`,
		},
		"nested request algorithms, which are not built": {
			`{"request_algorithms":{"random":{"algorithm":"random","request_algorithms":{"pulsar":"random"}}}}`,
			[]finding{{lbconfig.NestedRequestAlgorithms, "do not nest"}},
			`{"request_algorithms":{"random":"random"}}`,
		},
		"nested request algorithms of a model": {
			`{"models":{"m":{"algorithm":"pulsar","request_algorithms":{"random":{"algorithm":"random","request_algorithms":{"pulsar":"pulsar"}}}}}}`,
			[]finding{{lbconfig.NestedRequestAlgorithms, "do not nest"}},
			`{"models":{"m":{"algorithm":"pulsar","request_algorithms":{"random":"random"}}}}`,
		},
		"an empty model ID": {
			`{"models":{"":"random"}}`,
			[]finding{{lbconfig.EmptyModelID, "empty model ID"}},
			"",
		},
		"a positional array": {
			`["random",{"pulsar":"pulsar"},{"m":"random"}]`,
			[]finding{{lbconfig.PositionalArray, "array"}},
			`{"default":"random","request_algorithms":{"pulsar":"pulsar"},"models":{"m":"random"}}`,
		},
		"an object for a name": {
			`{"default":{"random":null},"models":{"m":{"algorithm":{"powerOf2":null}}}}`,
			[]finding{{lbconfig.NameAsObject, `"random"`}, {lbconfig.NameAsObject, `"powerOf2"`}},
			`{"default":"random","models":{"m":"power-of-n"}}`,
		},
		"nothing where nothing is dropped": {
			`{"models":{"m":{"algorithm":"random","request_algorithms":{"pulsar":{"algorithm":"pulsar","request_algorithms":{}}}}}}`,
			nil,
			`{"models":{"m":{"algorithm":"random","request_algorithms":{"pulsar":"pulsar"}}}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := read(t, test.in)
			if len(file.Findings) != len(test.want) {
				t.Fatalf("findings %+v, want %+v", file.Findings, test.want)
			}
			for i, want := range test.want {
				got := file.Findings[i]
				if got.Kind != want.kind || !strings.Contains(got.Message, want.message) || got.Line != 1 || got.Column < 1 {
					t.Errorf("finding %+v, want %+v", got, want)
				}
			}
			if test.means == "" {
				return
			}
			meant := read(t, test.means)
			if len(meant.Findings) != 0 {
				t.Fatalf("the plain file has findings: %+v", meant.Findings)
			}
			if !lbconfig.Same(file, meant) {
				t.Errorf("does not mean %s", test.means)
			}
		})
	}
}

func read(t *testing.T, text string) *lbconfig.File {
	t.Helper()
	file, err := lbconfig.Read([]byte(text), release.V3)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return file
}

func TestSame(t *testing.T) {
	tests := map[string]struct {
		a, b string
		want bool
	}{
		"key order does not count": {
			`{"default":"random","models":{"a":"pulsar","b":{"algorithm":"pulsar","seed":"s"}}}`,
			`{"models":{"b":{"seed":"s","algorithm":"pulsar"},"a":"pulsar"},"default":"random"}`, true,
		},
		"an alias is its algorithm":               {`{"default":"power-of-two"}`, `{"default":"power-of-n"}`, true},
		"a default that is not said is not said":  {`{}`, `{"default":"power-of-n"}`, false},
		"an empty object is an absent one":        {`{"request_algorithms":{},"models":{}}`, `{}`, true},
		"a model is no absent model":              {`{"models":{"m":"power-of-n"}}`, `{}`, false},
		"model IDs are case-sensitive":            {`{"models":{"m":"random"}}`, `{"models":{"M":"random"}}`, false},
		"a name is an entry without settings":     {`{"models":{"m":"pulsar"}}`, `{"models":{"m":{"algorithm":"pulsar"}}}`, true},
		"null is unset":                           {`{"models":{"m":"pulsar"}}`, `{"models":{"m":{"algorithm":"pulsar","seed":null}}}`, true},
		"an empty seed is not unset":              {`{"models":{"m":"pulsar"}}`, `{"models":{"m":{"algorithm":"pulsar","seed":""}}}`, false},
		"a setting at its default is not unset":   {`{"models":{"m":"power-of-n"}}`, `{"models":{"m":{"algorithm":"power-of-n","sample_count":2}}}`, false},
		"false is not unset":                      {`{"models":{"m":"wait-and-widen"}}`, `{"models":{"m":{"algorithm":"wait-and-widen","last_cluster_affinity":false}}}`, false},
		"an empty nested object is an absent one": {`{"models":{"m":"pulsar"}}`, `{"models":{"m":{"algorithm":"pulsar","request_algorithms":{}}}}`, true},
		"nested request algorithms count": {
			`{"models":{"m":{"algorithm":"pulsar","request_algorithms":{"random":"random"}}}}`,
			`{"models":{"m":"pulsar"}}`, false,
		},
		"spellings of a number are one": {
			`{"models":{"m":{"algorithm":"random","max_input_work_seconds":0.1}}}`,
			`{"models":{"m":{"algorithm":"random","max_input_work_seconds":1e-1}}}`, true,
		},
		"an integer for a number is the number": {
			`{"models":{"m":{"algorithm":"random","max_input_work_seconds":2}}}`,
			`{"models":{"m":{"algorithm":"random","max_input_work_seconds":2.0}}}`, true,
		},
		"numbers differ": {
			`{"models":{"m":{"algorithm":"random","max_input_work_seconds":0.1}}}`,
			`{"models":{"m":{"algorithm":"random","max_input_work_seconds":0.2}}}`, false,
		},
		"integers beyond the precision of a float differ": {
			`{"models":{"m":{"algorithm":"wait-and-widen","n":9007199254740993}}}`,
			`{"models":{"m":{"algorithm":"wait-and-widen","n":9007199254740992}}}`, false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := read(t, test.a), read(t, test.b)
			if lbconfig.Same(a, b) != test.want || lbconfig.Same(b, a) != test.want {
				t.Errorf("Same is not %t for\n%s\n%s", test.want, test.a, test.b)
			}
		})
	}
}

func TestValuesAreKeptExactly(t *testing.T) {
	file := read(t, `{"models":{"m":{"algorithm":"wait-and-widen","n":18446744073709551615,"next_bucket_unlock_factor":-0.50,"seed":"\ud83d\ude00<&>","ignore_queue_time":false}}}`)
	want := map[string]any{
		"n":                         uint64(18446744073709551615),
		"next_bucket_unlock_factor": lbconfig.Number{Text: "-0.50", Value: -0.5},
		"seed":                      "😀<&>",
		"ignore_queue_time":         false,
	}
	if got := file.Models["m"].Settings; !reflect.DeepEqual(got, want) {
		t.Errorf("settings %#v, want %#v", got, want)
	}
}

func TestFlagsAreListedByModelAndThePlaneLast(t *testing.T) {
	file := read(t, `{
		"request_algorithms": {"wait-and-widen": {"algorithm": "wait-and-widen", "last_cluster_affinity": true}},
		"models": {
			"b": {"algorithm": "wait-and-widen", "last_cluster_affinity": true, "request_algorithms": {
				"pulsar-multiregion": {"algorithm": "pulsar-wait-and-widen", "last_cluster_affinity": true}}},
			"a": {"algorithm": "wait-and-widen", "last_cluster_affinity": false},
			"": {"algorithm": "wait-and-widen", "last_cluster_affinity": true}
		}}`)
	want := []lbconfig.Place{
		{},
		{Model: "b"},
		{Model: "b", RequestAlgorithm: v1alpha1.PulsarWaitAndWiden},
		{Plane: true, RequestAlgorithm: v1alpha1.WaitAndWiden},
	}
	if got := file.Flags(); !slices.Equal(got, want) {
		t.Errorf("flags %v, want %v", got, want)
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range cases(f) {
		for _, g := range generations() {
			f.Add([]byte(c.Text), int(g))
		}
	}
	f.Add([]byte(`{"models":{"m":`+strings.Repeat("[", 200)), 3)
	f.Add([]byte(`{"models":{"\ud800":"random"}}`), 3)
	f.Fuzz(func(t *testing.T, data []byte, generation int) {
		g := release.Generation(generation)
		first, err := lbconfig.Read(data, g)
		second, again := lbconfig.Read(data, g)
		if !reflect.DeepEqual(first, second) || !reflect.DeepEqual(err, again) {
			t.Fatalf("two reads differ: %+v, %v and %+v, %v", first, err, second, again)
		}
		if err != nil {
			if refused := refusal(t, err); refused.Kind == "" || err.Error() == "" || (refused.Stage == lbconfig.Parse) != (refused.Line > 0) {
				t.Fatalf("a refusal that does not say what and where: %+v", refused)
			}
			return
		}
		if !lbconfig.Same(first, second) {
			t.Fatal("a file does not mean the same as itself")
		}
		// Everything that the strict reader takes is JSON to everybody else too.
		if !json.Valid(data) {
			t.Fatalf("accepted what is no JSON: %q", data)
		}
	})
}
