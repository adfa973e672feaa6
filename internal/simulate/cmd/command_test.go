package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/routing-operator/routing-operator/internal/simulate/report"
)

const policy = `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPolicy
metadata: {name: p, namespace: ns}
spec:
  planeRef: {name: plane}
  models: [{name: m, algorithm: wait-and-widen, cacheAffinityBackendSelectionCount: 1, lastClusterAffinity: true}]
`

// command runs the command in a directory that has the files.
func command(t *testing.T, files map[string]string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, data := range files {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errOut bytes.Buffer
	c := New(genericiooptions.IOStreams{In: strings.NewReader(policy), Out: &out, ErrOut: &errOut})
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&errOut)
	err = c.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

func TestCommandShowsATableOfTheVariants(t *testing.T) {
	out, errOut, err := command(t, map[string]string{"p.yaml": policy, "w.yaml": "duration: 20s"}, "-f", "p.yaml", "--workload", "w.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"\nflag                                       off   on (as written)\n", "\nKV reuse ", "\nWorkload  w.yaml\n", "\nSite      default\n"} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not in the table:\n%s", text, out)
		}
	}
	if strings.Contains(out+errOut, "\x1b") {
		t.Error("there are colours or progress, and this is no terminal")
	}
}

func TestCommandWritesJSONPageAndTraceAndReadsTheTraceBack(t *testing.T) {
	files := map[string]string{"p.yaml": policy, "w.yaml": "duration: 20s", "other.yaml": strings.Replace(policy, "wait-and-widen", "pulsar-wait-and-widen", 1)}
	args := []string{"-f", "-", "--compare", "p.yaml", "--compare", "other.yaml", "--workload", "w.yaml", "-o", "json", "--seed", "5", "--html", "page.html", "--record", "trace.jsonl"}
	out, _, err := command(t, files, args...)
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, result := range r.Results {
		names = append(names, result.Variant)
	}
	if got, want := strings.Join(names, "; "), "stdin, flag off; stdin, flag on; p, flag off; p, flag on; other, flag off; other, flag on"; got != want || r.Seed != 5 {
		t.Errorf("seed %d, variants %s; want %s", r.Seed, got, want)
	}
	if page, err := os.ReadFile("page.html"); err != nil || !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("the page: %d bytes, %v", len(page), err)
	}
	trace, err := os.ReadFile("trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(trace, []byte("\n")); lines != r.Results[0].Models[0].Requests {
		t.Errorf("the trace has %d lines, and %d requests arrived", lines, r.Results[0].Models[0].Requests)
	}

	files["trace.jsonl"] = string(trace)
	again, _, err := command(t, files, "-f", "p.yaml", "--workload", "w.yaml", "-o", "json", "--seed", "5", "--trace", "trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var replayed report.Report
	if err := json.Unmarshal([]byte(again), &replayed); err != nil {
		t.Fatal(err)
	}
	generated, _ := json.Marshal(r.Results[0].Models)
	if got, _ := json.Marshal(replayed.Results[0].Models); !bytes.Equal(got, generated) || replayed.Trace != "trace.jsonl" {
		t.Errorf("replayed %s\ngenerated %s", got, generated)
	}
}

func TestCommandSaysWhatIsWrong(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no policy", nil, "no policy: name a file with --filename (-f)"},
		{"no such file", []string{"-f", "none.yaml"}, "reading: stat none.yaml: no such file or directory"},
		{"no such output", []string{"-f", "p.yaml", "-o", "yaml"}, `--output: "yaml": must be table or json`},
		{"no release", []string{"-f", "p.yaml", "--stargate-version", "new"}, `--stargate-version: "new" is neither a release such as 0.18.0 nor a generation from V0 to V3`},
		{"a site that is none", []string{"-f", "p.yaml", "--site", "p.yaml"}, "reading the site: p.yaml: apiVersion: unknown field; allowed here: replicas, statisticsInterval, gateway, clusters"},
		{"no such trace", []string{"-f", "p.yaml", "--trace", "none.jsonl"}, "open none.jsonl: no such file or directory"},
		{"a release that is too old", []string{"-f", "p.yaml", "--stargate-version", "0.9.9"}, `--stargate-version: "0.9.9": releases before V0, 0.10.0, are not supported; name a later one`},
		{"a trace that cannot be written", []string{"-f", "p.yaml", "--workload", "w.yaml", "--record", "none/trace.jsonl"}, "open none/trace.jsonl: no such file or directory"},
		{"a page that cannot be written", []string{"-f", "p.yaml", "--workload", "w.yaml", "--html", "none/page.html"}, "open none/page.html: no such file or directory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := command(t, map[string]string{"p.yaml": policy, "w.yaml": "duration: 1s"}, test.args...)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v\n want %s", err, test.want)
			}
		})
	}
}

func TestCommandReadsATraceFromStandardInput(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("p.yaml", []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := New(genericiooptions.IOStreams{In: strings.NewReader(`{"time": 0, "session": "s", "model": "m", "inputTokens": 9, "outputTokens": 9}`), Out: &out, ErrOut: io.Discard})
	c.SetArgs([]string{"-f", "p.yaml", "--trace", "-"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^requests +1 +1$`).Match(out.Bytes()) {
		t.Errorf("the request of the trace is not in the table:\n%s", &out)
	}
}

func TestAnInterruptedCommandLeavesTheEarlierPage(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, data := range map[string]string{"p.yaml": policy, "page.html": "earlier"} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(errors.New("interrupted"))
	c := New(genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
	c.SetArgs([]string{"-f", "p.yaml", "--html", "page.html"})
	c.SetErr(io.Discard)
	if err := c.ExecuteContext(ctx); err == nil || err.Error() != `simulating "p, flag off": interrupted` {
		t.Errorf("error %v", err)
	}
	if page, err := os.ReadFile("page.html"); string(page) != "earlier" {
		t.Errorf("the page is %q, %v", page, err)
	}
}

func TestCommandWarnsOnStandardError(t *testing.T) {
	out, errOut, err := command(t, map[string]string{"p.yaml": policy, "w.yaml": "{duration: 1s, traffic: [{model: M}]}"}, "-f", "p.yaml", "--workload", "w.yaml", "--stargate-version", "V1", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"warning: RoutingPolicy ns/p: spec.models[0].lastClusterAffinity: Stargate does not know lastClusterAffinity, which is left out of the file; it takes effect from V3 on, remove it until then\n",
		`warning: model "m" of p is not simulated: the workload has no traffic for it` + "\n",
		`warning: model "M" has no entry in p: the default algorithm decides about it` + "\n",
	} {
		if strings.Count(errOut, want) != 1 || !json.Valid([]byte(out)) {
			t.Errorf("standard error:\n%s\nwant in it once:\n%s", errOut, want)
		}
	}
}

func TestFilesThatTheDocumentationNamesAreThere(t *testing.T) {
	for _, name := range []string{"simulation.md", "simulation-results.md"} {
		doc, err := os.ReadFile(filepath.Join("../../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(doc)) {
			for word := range strings.FieldsSeq(line) {
				if path := strings.Trim(word, "`,.;:()"); strings.HasPrefix(path, "config/samples/") && !strings.ContainsAny(path, "$*") {
					if _, err := os.Stat(filepath.Join("../../..", path)); err != nil {
						t.Errorf("docs/%s names a file that is not there: %v", name, err)
					}
				}
			}
		}
	}
}

func TestTheDocumentedResultsAreWhatTheCommandShows(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/simulation-results.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../../../config/samples/simulation")
	for _, site := range []string{"sites/overflow.yaml", "sites/saturated-rank-1.yaml"} {
		var out bytes.Buffer
		c := New(genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard})
		c.SetArgs([]string{"-f", "policies/wait-and-widen.yaml", "--compare", "policies/pulsar-wait-and-widen.yaml", "--site", site, "--workload", "workloads/multi-turn.yaml"})
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(doc, out.Bytes()) {
			t.Errorf("docs/simulation-results.md does not have this table:\n%s", &out)
		}
	}
}
