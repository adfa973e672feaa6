package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

func TestLedger(t *testing.T) {
	for name, test := range map[string]struct {
		note     func(*ledger)
		observed string
		ok       bool
	}{
		"equal observations are well": {
			func(l *ledger) { l.note("step", rollouts{1, 0}, rollouts{1, 0}) }, "Stargate 1, gateway 0", true},
		"other observations are not": {
			func(l *ledger) { l.note("step", rollouts{1, 0}, rollouts{2, 0}) }, "Stargate 2, gateway 0", false},
		"a refusal has to give every reason": {
			func(l *ledger) { l.refused("step", output{text: "a:\n  too  long", failed: true}, "a: too long", "b") }, "refused, 1 of 2 reasons given", false},
		"what is accepted is not refused, whatever it says": {
			func(l *ledger) { l.refused("step", output{text: "a b"}, "a", "b") }, "accepted", false},
		"a warning is given with success": {
			func(l *ledger) { l.warned("step", output{text: "Warning: a"}, "a") }, "accepted, 1 of 1 warnings given", true},
		"a warning of what is refused does not count": {
			func(l *ledger) { l.warned("step", output{text: "Warning: a", failed: true}, "a") }, "refused", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			test.note(l)
			if e := l.entries[0]; e.observed != test.observed || e.ok() != test.ok || (l.failed() == 0) != test.ok {
				t.Errorf("observed %q, expected %q, %d failed; want %q and well: %t", e.observed, e.expected, l.failed(), test.observed, test.ok)
			}
		})
	}
}

func TestNewsAreWholeLinesThatDifferInMoreThanAge(t *testing.T) {
	var shown bytes.Buffer
	n := &news{out: &shown}
	for _, part := range []string{"NAME  AGE\nllm ", "  Base  1s\n", "llm   Base  2m3s\nllm   Settled  2m4s\n", "unfinished"} {
		if _, err := io.WriteString(n, part); err != nil {
			t.Fatal(err)
		}
	}
	if want := "NAME  AGE\nllm   Base  1s\nllm   Settled  2m4s\n"; shown.String() != want {
		t.Errorf("shown:\n%swant:\n%s", &shown, want)
	}
}

func TestAFlagBesideAGatewayWithoutMemoryIsForbidden(t *testing.T) {
	flagged := standin.Snapshot{Kind: standin.Router, Running: true, Flags: []lbconfig.Place{{Model: "a"}}}
	plain := standin.Snapshot{Kind: standin.Router, Running: true}
	remembers := standin.Snapshot{Kind: standin.Gateway, Running: true, Memory: true}
	forgets := standin.Snapshot{Kind: standin.Gateway, Running: true}
	ended := standin.Snapshot{Kind: standin.Gateway}
	states := [][]standin.Snapshot{
		{flagged, remembers}, {plain, forgets}, {flagged, remembers, ended}, {plain, flagged, remembers, forgets},
	}
	if n := forbidden(states); n != 1 {
		t.Errorf("%d states are forbidden, want the last", n)
	}
}

// TestTheInvitationCanBePasted does so, with programs that say what they were asked for.
func TestTheInvitationCanBePasted(t *testing.T) {
	assets, bin := filepath.Join(t.TempDir(), "a b"), t.TempDir()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("manifests")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(assets, 0o700); err != nil {
		t.Fatal(err)
	}
	for program, script := range map[string]string{
		filepath.Join(assets, "kubectl"):      `[ "$1" != routing ] || { shift; exec kubectl-routing "$@"; }; [ -f "$3" ] && echo "$KUBECONFIG: kubectl $*"`,
		filepath.Join(bin, "kubectl-routing"): `echo "$KUBECONFIG: routing $*"`,
	} {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var pasted strings.Builder
	for line := range strings.Lines(invitation("/tmp/k 1", &shell{folder: folder, programs: []string{assets, bin}})) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			pasted.WriteString(command)
		}
	}
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-euc", pasted.String()).CombinedOutput()
	want := strings.ReplaceAll(`: kubectl apply -f plane.yaml
: routing status llm --watch
: routing plan -f llama.yaml `+fixtures.GenerationsFlag()+`
: kubectl apply -f llama.yaml
: routing status llm --watch
`, ": ", "/tmp/k 1: ")
	if err != nil || string(out) != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
}

// child is set in the environment of the process whose parent TestTheEndOfTheParentIsNoticed ends.
const child = "DEMO_TEST_CHILD"

// TestTheEndOfTheParentIsNoticed: a signal may end the go command that runs the demo, and not reach the demo.
func TestTheEndOfTheParentIsNoticed(t *testing.T) {
	if os.Getenv(child) != "" {
		patience, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		alive := whileParentLives(patience) // which has to know its parent before that is ended
		fmt.Println("running")
		<-alive.Done()
		if patience.Err() == nil {
			fmt.Println("noticed")
		}
		return
	}
	parent := exec.CommandContext(t.Context(), "/bin/sh", "-c", `"$0" -test.run=^TestTheEndOfTheParentIsNoticed$ & wait`, os.Args[0])
	parent.Env = append(os.Environ(), child+"=1")
	lines := start(t, parent)
	if !skipTo(lines, "running") {
		t.Fatal("it does not run")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !skipTo(lines, "noticed") {
		t.Error("it ended without noticing")
	}
	_ = parent.Wait() // says only that it was killed
}

// TestNothingIsLeftOfAnInterruptedDemo interrupts it when the manager runs, which is when there is most to end.
func TestNothingIsLeftOfAnInterruptedDemo(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the demo: %v\n%s", err, out)
	}
	dir := t.TempDir()
	demo := exec.CommandContext(t.Context(), binary)
	demo.Env = append(os.Environ(), "TMPDIR="+dir)
	lines := start(t, demo)
	if !skipTo(lines, "kubectl get lease") {
		t.Fatal("it ended before the manager ran")
	}
	running := processes(t, dir)
	if len(running) != 4 {
		t.Errorf("%d processes, want etcd, kube-apiserver, kube-controller-manager and the manager", len(running))
	}

	if err := demo.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	skipTo(lines, "\x00") // to the end of whatever holds the output
	_ = demo.Wait()       // looked at below
	if code := demo.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 || slices.ContainsFunc(running, alive) {
		t.Errorf("left: %v, and of the processes %v: %v", left, slices.DeleteFunc(running, func(pid int) bool { return !alive(pid) }), err)
	}
}

// start a command and return the lines that it prints, which are shown where the test fails.
func start(t *testing.T, cmd *exec.Cmd) *bufio.Scanner {
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it printed:\n%s", &printed)
		}
	})
	return bufio.NewScanner(io.TeeReader(out, &printed))
}

// skipTo reads lines up to one with the text, and tells whether there is one.
func skipTo(lines *bufio.Scanner, text string) bool {
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return true
		}
	}
	return false
}

// processes that the control plane has noted, and that run.
func processes(t *testing.T, dir string) (pids []int) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "run", "*.pid"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || !alive(pid) {
			t.Fatalf("%s does not hold the id of a process that runs: %s", file, text)
		}
		pids = append(pids, pid)
	}
	return pids
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
