package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// commandTimeout is for one command of the story; each takes a fraction of a second.
const commandTimeout = time.Minute

// person is somebody with a kubeconfig.
type person struct{ name, kubeconfig string }

// shell runs commands as they are typed.
type shell struct {
	screen *screen
	// folder in which commands run, and home, where kubectl keeps what it has learnt.
	folder, home string
	// programs are the folders with kubectl and its plugin.
	programs []string
}

// output of a command.
type output struct {
	text   string
	failed bool
}

// run shows the command and what it prints. That it fails is no error: the output says so.
func (s *shell) run(ctx context.Context, p person, command string) (output, error) {
	s.screen.prompt(p.name, command)
	return s.execute(ctx, p, command, s.screen)
}

// must is run for what has to succeed.
func (s *shell) must(ctx context.Context, p person, command string) (output, error) {
	out, err := s.run(ctx, p, command)
	if err == nil && out.failed {
		err = fmt.Errorf("%s failed, see its output", command)
	}
	return out, err
}

func (s *shell) execute(ctx context.Context, p person, command string, show io.Writer) (output, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var text bytes.Buffer
	cmd := s.command(ctx, p, command)
	cmd.Stdout = io.MultiWriter(&text, show)
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return output{}, fmt.Errorf("running %s: %w", command, ctx.Err())
	case errors.As(err, &exit):
		return output{text: text.String(), failed: true}, nil
	case err != nil:
		return output{}, fmt.Errorf("running %s: %w", command, err)
	}
	return output{text: text.String()}, nil
}

// stream shows the command and what it prints until the returned function is called, which ends it.
func (s *shell) stream(ctx context.Context, p person, command string) (end func(), err error) {
	s.screen.prompt(p.name, command)
	ctx, cancel := context.WithCancel(ctx)
	cmd := s.command(ctx, p, command)
	cmd.Stdout = &news{out: s.screen}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("running %s: %w", command, err)
	}
	return func() {
		cancel()
		_ = cmd.Wait() // says only that it was killed
	}, nil
}

// news passes on whole lines, and of a table's lines only those that differ from the one before in more than AGE.
type news struct {
	out         io.Writer
	begun, last []byte
}

func (n *news) Write(text []byte) (int, error) {
	n.begun = append(n.begun, text...)
	for {
		end := bytes.IndexByte(n.begun, '\n') + 1
		if end == 0 {
			return len(text), nil
		}
		line := n.begun[:end]
		n.begun = n.begun[end:]
		if essence := age.ReplaceAll(bytes.Join(bytes.Fields(line), []byte(" ")), nil); !bytes.Equal(essence, n.last) {
			n.last = essence
			if _, err := n.out.Write(line); err != nil {
				return 0, err
			}
		}
	}
}

// age as kubectl writes it.
var age = regexp.MustCompile(`\b(\d+[smh])+\b`)

// command is a process group of its own, so that it ends as a whole.
func (s *shell) command(ctx context.Context, p person, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(),
		"PATH="+s.path()+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+s.home, "KUBECONFIG="+p.kubeconfig, "KUBERC=off")
	groupOf(cmd)
	return cmd
}

// path is what comes first in the PATH of commands.
func (s *shell) path() string { return strings.Join(s.programs, string(os.PathListSeparator)) }

// groupOf makes the command a process group that is killed as a whole when its context ends.
func groupOf(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}
