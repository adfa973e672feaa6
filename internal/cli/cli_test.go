package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/routing-operator/routing-operator/internal/cli"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// result of a command line.
type result struct {
	code     int
	out, err string
}

func run(t *testing.T, in string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: &errs}
	code := cli.Run(t.Context(), args, streams, clocktesting.NewFakePassiveClock(now))
	return result{code, out.String(), errs.String()}
}

func (r result) check(t *testing.T, code int, out, err string) {
	t.Helper()
	if r.code != code || r.out != out || r.err != err {
		t.Errorf("exit code %d, want %d\n--- output\n%s--- want\n%s--- errors\n%s--- want\n%s", r.code, code, r.out, out, r.err, err)
	}
}

// folder writes files, by their name, into a new folder and changes into it, so that messages name them as they are.
func folder(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACommandLineThatCannotBeUnderstoodEndsWith2(t *testing.T) {
	for name, args := range map[string][]string{
		"an unknown command":  {"frobnicate"},
		"an unknown flag":     {"import", "--frobnicate"},
		"a missing flag":      {"import"},
		"an argument too far": {"import", "--without-file", "more"},
		"a missing file":      {"import", "--lb-config", "nowhere.json"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := run(t, "", args...); r.code != 2 || r.out != "" || !strings.HasPrefix(r.err, "error: ") {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestACommandLineThatCannotBeUnderstoodSaysWhatToWriteInstead(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a flag misspelt":            {[]string{"validate", "--filname", "x"}, "error: unknown flag: --filname; did you mean --filename?; see kubectl routing validate --help\n"},
		"a flag cut short":           {[]string{"validate", "-f", "x", "--stric"}, "error: unknown flag: --stric; did you mean --strict?; see kubectl routing validate --help\n"},
		"a flag of nothing":          {[]string{"validate", "--frobnicate"}, "error: unknown flag: --frobnicate; see kubectl routing validate --help\n"},
		"a flag without its value":   {[]string{"validate", "-f"}, "error: flag needs an argument: 'f' in -f; see kubectl routing validate --help\n"},
		"no files":                   {[]string{"render"}, "error: required flag(s) \"filename\" not set; see kubectl routing render --help\n"},
		"one of two flags":           {[]string{"plan", "--from", "x"}, "error: if any flags in the group [from to] are set they must all be set; missing [to]; see kubectl routing plan --help\n"},
		"a file without its flag":    {[]string{"validate", "routing/"}, "error: kubectl routing validate takes no argument such as \"routing/\"; files are named with -f\n"},
		"no time between two looks":  {[]string{"status", "llm", "--watch", "--interval", "0s"}, "error: --interval takes a time above 0, such as 1s, and --timeout one of 0 or more\n"},
		"a command that is misspelt": {[]string{"validat"}, "error: unknown command \"validat\" for \"kubectl routing\"\n\nDid you mean this?\n\tvalidate\n\n"},
	} {
		t.Run(name, func(t *testing.T) { run(t, "", test.args...).check(t, 2, "", test.want) })
	}
}
