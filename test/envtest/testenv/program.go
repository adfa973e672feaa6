package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program is a process beside the control plane, such as the operator's manager.
type Program struct {
	// LogFile receives its output.
	LogFile string
	process *process
}

// Run starts a program that ends with the environment, however that ends. Its environment variables are those of
// this process and the ones that are given.
func (e *Environment) Run(path string, variables []string, args ...string) (*Program, error) {
	name := fmt.Sprintf("%s-%d", filepath.Base(path), len(e.programs)+1) // several may run the same
	script, err := e.wrap(name, path)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(script, args...)
	cmd.Env = append(os.Environ(), variables...)
	if cmd.Stdout, cmd.Stderr, err = e.logFile(name); err != nil {
		return nil, err
	}
	started, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	p := &Program{LogFile: filepath.Join(e.logDir, name+".log"), process: started}
	e.programs = append(e.programs, p)
	return p, nil
}

// WaitHealthy waits until the URL answers with 200, and fails as soon as the program ends.
func (p *Program) WaitHealthy(ctx context.Context, url string) error {
	return p.process.waitHealthy(ctx, url)
}

// PID is its process id.
func (p *Program) PID() int { return p.process.cmd.Process.Pid }

// Stop asks the program to end and waits for it. It can be called more than once.
func (p *Program) Stop() error { return p.process.stop() }

// Folder makes a folder that goes with the environment, however that ends.
func (e *Environment) Folder(name string) (string, error) {
	folder := e.path(name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("making a folder beside the control plane: %w", err)
	}
	return folder, nil
}
