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
