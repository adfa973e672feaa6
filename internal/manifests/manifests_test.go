package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding/unicode"

	"github.com/routing-operator/routing-operator/internal/manifests"
)

const policy = `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPolicy
metadata:
  name: a
  annotations:
    example.com/a.b: "1"
spec:
  models:
  - name: m
    algorithm: pulsar
  - name: k
    algorithm: random
    n: 2
`

func read(t *testing.T, text string) manifests.Set {
	t.Helper()
	set, err := manifests.Read([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestEveryFieldHasItsPosition(t *testing.T) {
	for name, test := range map[string]struct {
		text      string
		positions map[string]string
	}{
		"YAML behind another document": {
			"# a comment\nkind: ConfigMap\n---\n" + policy,
			map[string]string{
				"": "4:1", "spec": "10:1", "spec.models": "11:3", "spec.models[1]": "14:5", "spec.models[1].algorithm": "15:5", "spec.models[1].seed": "14:5",
				"spec.models[7].name": "11:3", "metadata.annotations[example.com/a.b]": "9:5", "metadata.annotations.example.com/a.b": "9:5", "spec.models[1].false": "16:5",
			},
		},
		"JSON": {
			"{\n\t\"apiVersion\": \"routing.nvcf.io/v1alpha1\",\n \"spec\": {\"models\": [\n {\"name\": 1}]}}",
			map[string]string{"spec.models[0].name": "4:3", "spec": "3:2"},
		},
		"the second of two JSON objects": {
			"{\"kind\":\"A\"}\n{\"apiVersion\":\"routing.nvcf.io/v1\",\n\"spec\":1}", map[string]string{"spec": "3:1", "kind": "2:1"},
		},
		"an item of a list": {
			"apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n  apiVersion: v1\n- apiVersion: routing.nvcf.io/v1alpha1\n  kind: RoutingPolicy\n  spec: {}\n",
			map[string]string{"spec": "8:3", "metadata.name": "6:3"},
		},
		"through an anchor and a merge": {
			"apiVersion: routing.nvcf.io/v1alpha1\nx: &x\n  n: 1\nspec: *x\n", map[string]string{"spec.false": "3:3", "spec.n": "4:1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := read(t, test.text)
			if len(set.Documents) != 1 {
				t.Fatalf("got %d documents, broken %v", len(set.Documents), set.Broken)
			}
			for path, want := range test.positions {
				position := set.Documents[0].Position(path)
				if got := fmt.Sprintf("%d:%d", position.Line, position.Column); got != want {
					t.Errorf("%q is at %s, want %s", path, got, want)
				}
			}
		})
	}
}

func TestValuesAreThoseThatKubectlSends(t *testing.T) {
	set := read(t, "apiVersion: routing.nvcf.io/v1alpha1\nn: yes\nt: 2024-01-01\no: 010\nf: 1.0\nbig: 9223372036854775807\nlarger: 9223372036854775808\nq: \"n\"\n")
	want := map[string]any{
		"apiVersion": "routing.nvcf.io/v1alpha1", "false": true, "t": "2024-01-01", "o": int64(8), "f": int64(1),
		"big": int64(9223372036854775807), "larger": float64(9223372036854775808), "q": "n",
	}
	if got := set.Documents[0].Object; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %#v", got)
	}
}

func TestWhatIsNotTheOperatorsIsSkipped(t *testing.T) {
	for name, test := range map[string]struct {
		text                       string
		documents, skipped, broken int
	}{
		"an empty text":                     {"", 0, 0, 0},
		"comments and separators alone":     {"---\n# a\n---\n", 0, 1, 0},
		"a template of a chart":             {"{{- if .Values.x }}\nkind: {{ .kind }}\n{{- end }}\n", 0, 1, 0},
		"a CRD that speaks of the group":    {"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: routingplanes.routing.nvcf.io}\n", 0, 1, 0},
		"two policies":                      {policy + "---\n" + policy, 2, 0, 0},
		"a separator with a comment":        {policy + "--- # next\n" + policy, 2, 0, 0},
		"a separator with more than that":   {policy + "--- !tag\n" + policy, 1, 0, 1},
		"a template of the operator's kind": {"apiVersion: routing.nvcf.io/v1alpha1\nkind: {{ .kind }}\nx: {{ y }}: z\n", 0, 0, 1},
		"a list at the top":                 {"- apiVersion: routing.nvcf.io/v1alpha1\n", 0, 0, 1},
		"the list of a kind":                {"apiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicyList\nitems:\n- {apiVersion: routing.nvcf.io/v1alpha1, kind: RoutingPolicy}\n- {apiVersion: routing.nvcf.io/v1alpha1, kind: RoutingPolicy}\n", 2, 0, 0},
		"a byte order mark and JSON":        {"\ufeff{\"apiVersion\":\"routing.nvcf.io/v1alpha1\"}", 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := read(t, test.text)
			if len(set.Documents) != test.documents || set.Skipped != test.skipped || len(set.Broken) != test.broken {
				t.Errorf("got %d documents, %d skipped, broken %v", len(set.Documents), set.Skipped, set.Broken)
			}
		})
	}
}

func TestTextThatCannotBeReadHasALineAndAReason(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"bad YAML":   {"a: b\n---\napiVersion: routing.nvcf.io/v1alpha1\nkind: a: b\n", "<stdin>:4: no YAML: mapping values are not allowed in this context"},
		"a template": {"apiVersion: routing.nvcf.io/v1alpha1\nx: {{ y }}: z\n", "; if this is a template, check what it renders to"},
		"tab":        {"apiVersion: routing.nvcf.io/v1alpha1\nmetadata:\n\tname: x\n", "<stdin>:3: no YAML: found character that cannot start any token; the line has a tab, and YAML wants blanks"},
		"separator":  {"a: b\n---  {}\nx: routing.nvcf.io\n", `<stdin>:2: kubectl takes nothing but a comment behind ---, and here is "{}"`},
	} {
		t.Run(name, func(t *testing.T) {
			set := read(t, test.text)
			if len(set.Broken) != 1 {
				t.Fatalf("got %+v", set)
			}
			b := set.Broken[0]
			if got := fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Message); !strings.Contains(got, test.want) {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestAKeyThatStandsTwiceIsFound(t *testing.T) {
	set := read(t, "x: y\n---\n"+policy+"spec:\n  models: []\n")
	if len(set.Documents) != 1 {
		t.Fatalf("got %+v", set)
	}
	duplicates := set.Documents[0].Duplicates()
	if len(duplicates) != 1 || duplicates[0].Line != 16 || duplicates[0].Key != "spec" {
		t.Errorf("got %+v", duplicates)
	}
	if got := set.Documents[0].Position("spec").Line; got != 16 {
		t.Errorf("the last one counts, but line %d is named", got)
	}
	if none := read(t, policy).Documents[0].Duplicates(); none != nil {
		t.Errorf("found %v in a text without", none)
	}
}

func TestFoldersAreReadWithEverythingBelowThem(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a/x.yml", "a/y.json", "a/z.txt", ".git/config.yaml", "c.YAML"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		content := policy
		if strings.HasSuffix(name, "json") {
			content = `{"apiVersion":"routing.nvcf.io/v1alpha1"}`
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := manifests.Read([]string{dir, filepath.Join(dir, "a/z.txt"), filepath.Join(dir, "a/../b.yaml")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, document := range set.Documents {
		name, err := filepath.Rel(dir, document.File)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	if want := []string{"a/x.yml", "a/y.json", "b.yaml", "c.YAML", "a/z.txt"}; !slices.Equal(files, want) || set.Files != len(want) {
		t.Errorf("got %q", files)
	}
	if _, err := manifests.Read([]string{filepath.Join(dir, "nowhere")}, nil); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v", err)
	}
}

func TestAFileInUTF16IsReadAsKubectlReadsIt(t *testing.T) {
	text := policy + "---\n" + policy
	for name, encoding := range map[string]unicode.Endianness{"little": unicode.LittleEndian, "big": unicode.BigEndian} {
		data, err := unicode.UTF16(encoding, unicode.UseBOM).NewEncoder().String(text)
		if err != nil {
			t.Fatal(err)
		}
		set := read(t, data)
		if plain := read(t, text); len(set.Documents) != 2 || len(set.Broken) > 0 || set.Documents[1].Position("spec") != plain.Documents[1].Position("spec") {
			t.Errorf("%s endian: got %+v", name, set)
		}
	}
}

func TestAnObjectThatNamesItsGroupWronglyIsNotPassedOverInSilence(t *testing.T) {
	for name, test := range map[string]struct {
		text                         string
		documents, skipped, doubtful int
	}{
		"without any group it is the operator's":          {"kind: RoutingPolicy\nmetadata: {name: a}\n", 1, 0, 0},
		"with a version alone too":                        {"apiVersion: v1\nkind: RoutingPlane\n", 1, 0, 0},
		"in a list too":                                   {"apiVersion: v1\nkind: List\nitems: [{kind: RoutingPlane}]\n", 1, 0, 0},
		"of another group it may be somebody else's":      {"x: 1\napiVersion: routing.nvfc.io/v1alpha1\nkind: RoutingPolicy\n", 0, 1, 1},
		"another object may speak of the kind":            {"apiVersion: v1\nkind: ConfigMap\ndata: {a: RoutingPlane}\n", 0, 1, 0},
		"a template that is no YAML may speak of it":      {"kind: RoutingPlane\nmetadata: {{ .x }}: {\n", 0, 1, 0},
		"an object of the operator's group is never that": {policy, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := read(t, test.text)
			if len(set.Documents) != test.documents || set.Skipped != test.skipped || len(set.Doubtful) != test.doubtful || len(set.Broken) > 0 {
				t.Errorf("got %+v", set)
			}
			for _, d := range set.Doubtful {
				if d.Line != 2 || !strings.Contains(d.Message, "the RoutingPolicy is of apiVersion routing.nvfc.io/v1alpha1, and the operator's is routing.nvcf.io/v1alpha1") {
					t.Errorf("got %+v", d)
				}
			}
		})
	}
}
