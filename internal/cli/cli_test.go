package cli_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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

// holds checks the exit code, and that the output holds texts.
func (r result) holds(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out, text) {
			t.Errorf("no %q in\n%s", text, r.out)
		}
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
		"a command that is misspelt": {[]string{"validat"}, "error: unknown command \"validat\" for \"kubectl routing\"; did you mean validate?; kubectl routing --help lists the commands\n"},
		"a command of nothing":       {[]string{"frobnicate"}, "error: unknown command \"frobnicate\" for \"kubectl routing\"; kubectl routing --help lists the commands\n"},
		"two planes at once":         {[]string{"status", "a", "b"}, "error: one plane at a time: kubectl routing status [PLANE]\n"},
	} {
		t.Run(name, func(t *testing.T) { run(t, "", test.args...).check(t, 2, "", test.want) })
	}
}

// TestWhatAClusterAnswersIsSaidWithARemedy asks an API server that gives one answer to everything.
func TestWhatAClusterAnswersIsSaidWithARemedy(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"no such kind": {http.StatusNotFound, "404 page not found\n",
			"error: reading plane default/llm: the server could not find the requested resource (get routingplanes.routing.nvcf.io llm); the operator is not installed in this cluster, or another cluster is meant: --context names it\n"},
		"no such plane": {http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"routingplanes \"llm\" not found"}`,
			"error: there is no plane default/llm; kubectl get rpl -A lists those there are\n"},
		"no right": {http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"routingplanes \"llm\" is forbidden"}`,
			"error: reading plane default/llm: routingplanes \"llm\" is forbidden; ask whoever administers the namespace: the roles view, edit and admin have the rights to read, to write policies and to write planes\n"},
		"no user": {http.StatusUnauthorized, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401,"message":"Unauthorized"}`,
			"error: reading plane default/llm: Unauthorized; log in to the cluster again, or name another user of the kubeconfig with --user\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/plain"}[test.body[0] == '{'])
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body) // the client notices when it is cut short
			}))
			defer server.Close()
			run(t, "", "status", "llm", "-s", server.URL, "--kubeconfig", os.DevNull).check(t, 2, "", test.want)
		})
	}
	t.Run("no answer", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		server.Close() // nobody listens at its address any more
		r := run(t, "", "status", "llm", "-s", server.URL, "--kubeconfig", os.DevNull)
		if r.code != 2 || !strings.HasSuffix(r.err, "connection refused; the API server does not answer: --context and --kubeconfig name the cluster, kubectl cluster-info tells whether it can be reached\n") {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("no such context", func(t *testing.T) {
		r := run(t, "", "status", "llm", "--context", "nowhere", "--kubeconfig", os.DevNull)
		if r.code != 2 || !strings.HasSuffix(r.err, "; kubectl config get-contexts lists those there are\n") {
			t.Errorf("got %+v", r)
		}
	})
}

func TestAnInterruptedCommandEndsAsShellsExpect(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel() // the plane is asked for, and somebody presses Ctrl-C
		<-r.Context().Done()
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs}
	code := cli.Run(ctx, []string{"status", "llm", "--watch", "-s", server.URL, "--kubeconfig", os.DevNull}, streams, clocktesting.NewFakePassiveClock(now))
	result{code, out.String(), errs.String()}.check(t, 130, "", "interrupted\n")
}
