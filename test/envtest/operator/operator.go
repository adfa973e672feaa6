// Package operator runs the operator's manager beside a control plane of testenv: as a process of its own, with the
// access rights of config/rbac and config/preflight and the admission webhook of config/webhook.
package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

// UserAgent is how the manager's begins, for testenv's Writes.
const UserAgent = "manager/"

const (
	// Namespace that the operator is installed in.
	Namespace = "routing-operator-system"
	account   = "system:serviceaccount:" + Namespace + ":routing-operator"
)

// WebhookManifest is the webhook configuration for testenv's Options.Webhooks, in the repository.
const WebhookManifest = "config/webhook/validating_webhook.yaml"

// Operator is one that is installed in a control plane.
type Operator struct {
	// Rights are the credentials of its service account.
	Rights *rest.Config

	env                *testenv.Environment
	binary, kubeconfig string
}

// Manager is a running one.
type Manager struct {
	*testenv.Program
	metricsURL string
}

// Install builds the manager, and gives it its access rights.
func Install(ctx context.Context, env *testenv.Environment) (*Operator, error) {
	folder, err := env.Folder("operator")
	if err != nil {
		return nil, err
	}
	o := &Operator{env: env, binary: filepath.Join(folder, "manager"), kubeconfig: filepath.Join(folder, "kubeconfig")}
	build := exec.CommandContext(ctx, "go", "build", "-o", o.binary, "./cmd/manager")
	build.Dir = env.Root
	for _, command := range []*exec.Cmd{
		build,
		env.Kubectl(ctx, "apply", "-f", filepath.Join(env.Root, "config", "manager", "namespace.yaml")),
		env.Kubectl(ctx, "apply", "-k", filepath.Join(env.Root, "config", "rbac")),
		env.Kubectl(ctx, "apply", "-k", filepath.Join(env.Root, "config", "preflight")),
	} {
		if out, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("installing the operator: %s: %w\n%s", command, err, out)
		}
	}
	if o.Rights, err = env.User(account, "system:serviceaccounts", "system:serviceaccounts:"+Namespace, "system:authenticated"); err != nil {
		return nil, err
	}
	return o, testenv.WriteKubeConfig(o.Rights, o.kubeconfig)
}

// BuildPlugin builds kubectl-routing, and returns the folder that it is in.
func BuildPlugin(ctx context.Context, env *testenv.Environment) (string, error) {
	folder, err := env.Folder("plugin")
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(folder, "kubectl-routing"), "./cmd/kubectl-routing")
	build.Dir = env.Root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the plugin: %s: %w\n%s", build, err, out)
	}
	return folder, nil
}

// Start starts the manager, with the memory limit that config/manager gives it and the releases of the fixtures, and
// returns when it is ready.
func (o *Operator) Start(ctx context.Context, more ...string) (*Manager, error) {
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = testenv.FreePort(); err != nil {
			return nil, err
		}
	}
	webhook := &o.env.WebhookServer
	arguments := append([]string{
		"--own-namespace=" + Namespace,
		fixtures.GenerationsFlag(),
		"--webhook-bind-host=" + webhook.Host,
		"--webhook-port=" + strconv.Itoa(webhook.Port),
		"--webhook-cert-dir=" + webhook.CertDir,
		"--metrics-secure=false",
		fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", ports[0]),
		fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", ports[1]),
		"--log-format=text",
	}, more...)
	program, err := o.env.Run(o.binary, []string{"KUBECONFIG=" + o.kubeconfig, "GOMEMLIMIT=230MiB"}, arguments...)
	if err != nil {
		return nil, err
	}
	m := &Manager{Program: program, metricsURL: fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[0])}
	if err := program.WaitHealthy(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[1])); err != nil {
		return nil, errors.Join(err, m.logTail())
	}
	return m, nil
}

func (m *Manager) logTail() error {
	const tail = 4000
	log, err := os.ReadFile(m.LogFile)
	if err != nil {
		return fmt.Errorf("reading the manager's log: %w", err)
	}
	return fmt.Errorf("the end of the manager's log:\n%s", log[max(0, len(log)-tail):])
}

// PeakMemory is the most physical memory that the process has had so far, in bytes, as Linux counts it (VmHWM).
func (m *Manager) PeakMemory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of the manager: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, nil
		}
	}
	return 0, errors.New("the manager's /proc status has no VmHWM")
}

// Passes are the numbers of passes that each controller has finished so far, and whether none is due or under way.
// Passes that are to be done later count as neither.
func (m *Manager) Passes(ctx context.Context) (finished map[string]int, idle bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.metricsURL, nil)
	if err != nil {
		return nil, false, fmt.Errorf("reading the manager's metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, false, fmt.Errorf("reading the manager's metrics: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, false, fmt.Errorf("parsing the manager's metrics: %w", err)
	}
	finished = map[string]int{}
	for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
		finished[label(metric, "controller")] += int(metric.GetCounter().GetValue())
	}
	busy := 0.0
	for _, family := range []string{"workqueue_depth", "controller_runtime_active_workers"} {
		for _, metric := range families[family].GetMetric() {
			busy += metric.GetGauge().GetValue()
		}
	}
	return finished, busy == 0, nil
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
