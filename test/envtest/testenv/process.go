package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// defaultControllers are those that the workloads of a plane meet in a cluster.
var defaultControllers = []string{
	"clusterrole-aggregation-controller",
	"deployment-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"replicaset-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"statefulset-controller",
}

func (e *Environment) startControllerManager(ctx context.Context, more []string) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	program, err := e.wrapped("kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig := e.path("controller-manager.kubeconfig")
	if err := WriteKubeConfig(e.Config, kubeconfig); err != nil {
		return err
	}
	ca := e.path("ca.crt")
	if err := os.WriteFile(ca, e.Config.CAData, 0o644); err != nil {
		return fmt.Errorf("writing the CA of the API server: %w", err)
	}
	cmd := exec.Command(program,
		"--kubeconfig="+kubeconfig,
		"--controllers="+strings.Join(slices.Concat(defaultControllers, more), ","),
		"--use-service-account-credentials=false",
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(port),
		"--authentication-skip-lookup",
		"--root-ca-file="+ca,
		"--kube-api-qps=10000",
		"--kube-api-burst=10000",
		"--concurrent-deployment-syncs=20",
		"--concurrent-replicaset-syncs=20",
		"--concurrent-statefulset-syncs=20",
		"--concurrent-namespace-syncs=20",
		"--concurrent-gc-syncs=40",
	)
	if cmd.Stdout, cmd.Stderr, err = e.logFile("kube-controller-manager"); err != nil {
		return err
	}
	if e.manager, err = startProcess(cmd); err != nil {
		return err
	}
	return e.manager.waitHealthy(ctx, fmt.Sprintf("https://127.0.0.1:%d/healthz", port))
}

// process is a child in a process group of its own, so that Ctrl-C at a terminal reaches its owner only.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", filepath.Base(cmd.Path), err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) waitHealthy(ctx context.Context, url string) error {
	client := &http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // self-signed, on loopback
	}
	defer client.CloseIdleConnections()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("it ended: %w", p.err)
		default:
		}
		if response, err := client.Get(url); err == nil {
			return response.StatusCode == http.StatusOK, response.Body.Close()
		}
		return false, nil // it does not listen yet
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be healthy: %w", filepath.Base(p.cmd.Path), err)
	}
	return nil
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", filepath.Base(p.cmd.Path), err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		err := p.cmd.Process.Kill()
		<-p.done
		return err
	}
}

// watchdog is a shell that outlives the process which started it by just long enough to clean up.
type watchdog struct{ process *process }

// startWatchdog: the shell's standard input ends when this process does, however that comes about.
func startWatchdog(dir string) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", `read _; kill -9 $(cat "$1"/run/*.pid) 2>/dev/null; rm -rf "$1"`, "testenv-watchdog", dir)
	if _, err := cmd.StdinPipe(); err != nil { // written to by nobody, closed with cmd or with this process

		return nil, fmt.Errorf("starting the watchdog: %w", err)
	}
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	return &watchdog{process: p}, nil
}

// release ends the watchdog, after everything that it watches.
func (w *watchdog) release() error {
	err := w.process.cmd.Process.Kill()
	<-w.process.done
	return err
}

// wrapped is wrap for a program of Kubernetes. It collects garbage late: memory is there for the few seconds that a
// control plane lives, and a third of the processor time goes without.
func (e *Environment) wrapped(program string) (string, error) {
	return e.wrap(program, filepath.Join(e.Assets, program), "GOGC=400")
}

// wrap returns a script that notes its process id for the watchdog and becomes the program, with variables of its own.
func (e *Environment) wrap(name, path string, environment ...string) (string, error) {
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%q\nexec env %s %q \"$@\"\n", e.path("run/"+name+".pid"), strings.Join(environment, " "), path)
	file := e.path("run/" + name)
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		return "", fmt.Errorf("writing the start script of %s: %w", name, err)
	}
	return file, nil
}

// logFile is closed by nobody: it lives as long as the process that writes to it.
func (e *Environment) logFile(program string) (stdout, stderr io.Writer, err error) {
	file, err := os.Create(filepath.Join(e.logDir, program+".log"))
	if err != nil {
		return nil, nil, fmt.Errorf("making the log file of %s: %w", program, err)
	}
	return file, file, nil
}

// logTails is the end of every log, for the error of a start that failed.
func (e *Environment) logTails() error {
	const tail = 2000
	var errs []error
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		data, err := os.ReadFile(filepath.Join(e.logDir, program+".log"))
		if err != nil || len(data) == 0 {
			continue
		}
		errs = append(errs, fmt.Errorf("the end of the log of %s:\n%s", program, data[max(0, len(data)-tail):]))
	}
	return errors.Join(errs...)
}

// givenPorts are those that FreePort has tried.
var givenPorts sync.Map

// FreePort finds a port of the loopback interface that nobody listens on. It is below those that the kernel gives to
// outgoing connections, one of which might have it before the caller does, and given to no two callers in a process.
func FreePort() (int, error) {
	const first, last, attempts = 10000, 32000, 100
	err := errors.New("all that were tried are given away")
	for range attempts {
		port := first + rand.IntN(last-first)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", err)
}
