// Package testenv runs a real Kubernetes control plane on the loopback interface, for the tests and the demo:
// etcd, kube-apiserver and, where asked, kube-controller-manager.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	startTimeout = 2 * time.Minute // of one process, on a machine that is busy with something else
	stopTimeout  = 2 * time.Minute
)

// Options choose what runs beside etcd and kube-apiserver. The zero value adds the operator's CRDs only.
type Options struct {
	// ControllerManager also starts kube-controller-manager with Controllers. Service accounts are then real:
	// every namespace gets its default account, and pods get the volume with its token.
	ControllerManager bool
	// Controllers adds to the default controllers, by the names of kube-controller-manager.
	Controllers []string
	// WithoutCRDs leaves out the CRDs of config/crd/bases.
	WithoutCRDs bool
	// Webhooks are files or folders of the repository with validating webhook configurations. Their services are replaced
	// by the address in Environment.WebhookServer, their CA by the one that signed the certificate there, their timeouts
	// by the longest that there is: a busy machine is no reason to refuse, or to go without an answer.
	Webhooks []string
	// LogDir receives the logs of the processes and the audit log, and is kept. Unset, they go with the rest on Stop.
	LogDir string
}

// WebhookServer is where the API server calls webhooks, and the folder with tls.crt and tls.key to serve there.
type WebhookServer struct {
	Host    string
	Port    int
	CertDir string
}

// Environment is a control plane that runs.
type Environment struct {
	// Config is the administrator's, without a client-side rate limit that could be felt.
	Config *rest.Config
	// KubeConfig is a file for kubectl and helm, with the administrator's credentials.
	KubeConfig string
	// Assets is the folder with the programs, among them kubectl.
	Assets string
	// Root is the folder of the repository.
	Root string
	// WebhookServer is set where Options.Webhooks is.
	WebhookServer WebhookServer
	// AuditLog is the file that Writes reads.
	AuditLog string

	dir, logDir string
	plane       *envtest.Environment
	manager     *process
	programs    []*Program
	watchdog    *watchdog
}

// Start starts what the options ask for and returns once all of it is healthy. Programs that are missing are
// built first, which takes minutes. When the calling process ends without Stop, however it ends, the processes
// and the folder go with it.
func Start(ctx context.Context, options Options) (_ *Environment, err error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	programs := []string{"etcd", "kube-apiserver", "kubectl"}
	if options.ControllerManager {
		programs = append(programs, "kube-controller-manager")
	}
	assets, err := Build(ctx, root, programs...)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "routing-operator-testenv-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the control plane: %w", err)
	}
	e := &Environment{Root: root, Assets: assets, dir: dir, logDir: options.LogDir}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.logTails(), e.Stop())
		}
	}()
	if e.logDir == "" {
		e.logDir = filepath.Join(dir, "logs")
	}
	for _, d := range []string{e.logDir, e.path("etcd"), e.path("apiserver"), e.path("run")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("making a folder for the control plane: %w", err)
		}
	}
	if e.watchdog, err = startWatchdog(dir); err != nil {
		return nil, err
	}
	if err := e.startAPIServer(options); err != nil {
		return nil, err
	}
	if err := e.extendWebhooks(ctx); err != nil {
		return nil, err
	}
	if err := e.awaitDiscovery(ctx); err != nil {
		return nil, err
	}
	if options.ControllerManager {
		if err := e.startControllerManager(ctx, options.Controllers); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *Environment) startAPIServer(options Options) error {
	var webhooks []string
	for _, path := range options.Webhooks {
		webhooks = append(webhooks, filepath.Join(e.Root, path))
	}
	port, err := FreePort() // envtest would take one that an outgoing connection may have by the time somebody serves
	if err != nil {
		return err
	}
	e.plane = &envtest.Environment{
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: startTimeout},
		WebhookInstallOptions:    envtest.WebhookInstallOptions{Paths: webhooks, MaxTime: startTimeout, LocalServingHost: "127.0.0.1", LocalServingPort: port},
		UseExistingCluster:       new(bool),
	}
	if !options.WithoutCRDs {
		e.plane.CRDDirectoryPaths = []string{filepath.Join(e.Root, "config", "crd", "bases")}
		e.plane.ErrorIfCRDPathMissing = true
	}

	etcd := &envtest.Etcd{DataDir: e.path("etcd")}
	if etcd.Path, err = e.wrapped("etcd"); err != nil {
		return err
	}
	if etcd.Out, etcd.Err, err = e.logFile("etcd"); err != nil {
		return err
	}
	etcd.Configure().Set("log-level", "warn").Set("quota-backend-bytes", "8589934592").
		Set("unsafe-no-fsync", "true") // what is here goes with the test anyway, and a disk may take long
	e.plane.ControlPlane.Etcd = etcd

	api := e.plane.ControlPlane.GetAPIServer()
	api.CertDir = e.path("apiserver")
	if api.Path, err = e.wrapped("kube-apiserver"); err != nil {
		return err
	}
	if api.Out, api.Err, err = e.logFile("kube-apiserver"); err != nil {
		return err
	}
	policy := e.path("audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	e.AuditLog = filepath.Join(e.logDir, "audit.log")
	api.Configure().
		Set("advertise-address", "127.0.0.1"). // or else the machine would need a default route
		Set("endpoint-reconciler-type", "none").
		Set("service-cluster-ip-range", "10.0.0.0/16"). // the default of envtest holds 254 services
		Set("enable-priority-and-fairness", "false").
		Set("max-requests-inflight", "4000").
		Set("max-mutating-requests-inflight", "2000").
		Set("audit-policy-file", policy).
		Set("audit-log-path", e.AuditLog).
		Set("audit-log-maxsize", "100000") // never rotated: positions in it stay valid
	if options.ControllerManager {
		api.Configure().Disable("disable-admission-plugins")
	}

	if e.Config, err = e.plane.Start(); err != nil {
		return fmt.Errorf("starting etcd and kube-apiserver: %w", err)
	}
	e.Config.QPS, e.Config.Burst = 10_000, 10_000
	e.KubeConfig = e.path("kubeconfig")
	if err := os.WriteFile(e.KubeConfig, e.plane.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	hooks := &e.plane.WebhookInstallOptions
	if err := os.Rename(hooks.LocalServingCertDir, e.path("webhook")); err != nil { // one folder to clean up
		return fmt.Errorf("moving the certificate for webhooks: %w", err)
	}
	hooks.LocalServingCertDir = e.path("webhook")
	if len(options.Webhooks) > 0 {
		e.WebhookServer = WebhookServer{Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir}
	}
	return nil
}

// extendWebhooks gives those that were installed the longest timeout that the API server takes.
func (e *Environment) extendWebhooks(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(e.Config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, configuration := range e.plane.WebhookInstallOptions.ValidatingWebhooks {
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].TimeoutSeconds = new(int32(30))
		}
		if _, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(ctx, configuration, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("giving webhooks more time: %w", err)
		}
	}
	return nil
}

// awaitDiscovery waits until those who ask for all groups at once, such as kubectl, are told of the CRDs. That is up to
// another controller of the API server than the endpoint of the group, which envtest waits for.
func (e *Environment) awaitDiscovery(ctx context.Context) error {
	c, err := discovery.NewDiscoveryClientForConfig(e.Config)
	if err != nil {
		return fmt.Errorf("making a discovery client: %w", err)
	}
	for _, crd := range e.plane.CRDs {
		for i := range crd.Spec.Versions {
			version := schema.GroupVersion{Group: crd.Spec.Group, Version: crd.Spec.Versions[i].Name}
			err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
				_, resources, _, err := c.GroupsAndMaybeResourcesWithContext(ctx)
				list := resources[version]
				return list != nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == crd.Spec.Names.Kind }), err
			})
			if err != nil {
				return fmt.Errorf("waiting for %s of %s to be discovered: %w", crd.Spec.Names.Kind, version, err)
			}
		}
	}
	return nil
}

// Stop ends all processes and removes what they wrote, LogDir apart. It can be called more than once.
func (e *Environment) Stop() error {
	var errs []error
	for _, p := range slices.Backward(e.programs) {
		errs = append(errs, p.Stop())
	}
	e.programs = nil
	if e.manager != nil {
		errs = append(errs, e.manager.stop())
		e.manager = nil
	}
	if e.plane != nil {
		errs = append(errs, e.plane.Stop())
		e.plane = nil
	}
	if e.watchdog != nil {
		errs = append(errs, e.watchdog.release())
		e.watchdog = nil
	}
	return errors.Join(append(errs, os.RemoveAll(e.dir))...)
}

// User returns the configuration of a user with a certificate of its own. A service account is the user
// system:serviceaccount:NAMESPACE:NAME in the groups system:serviceaccounts and system:serviceaccounts:NAMESPACE.
func (e *Environment) User(name string, groups ...string) (*rest.Config, error) {
	user, err := e.plane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: e.Config.QPS, Burst: e.Config.Burst})
	if err != nil {
		return nil, fmt.Errorf("making user %s: %w", name, err)
	}
	return user.Config(), nil
}

// WriteKubeConfig writes a configuration as a file for kubectl, helm or the manager.
func WriteKubeConfig(config *rest.Config, file string) error {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	kubeconfig.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	kubeconfig.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", file, err)
	}
	return nil
}

// Namespace makes a namespace with a generated name. With a controller manager it returns once pods can be
// made in it: the default service account and the cluster's CA are there.
func (e *Environment) Namespace(ctx context.Context, prefix string) (string, error) {
	c, err := kubernetes.NewForConfig(e.Config)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	ns, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a namespace: %w", err)
	}
	if e.manager == nil {
		return ns.Name, nil
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, accountErr := c.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		_, caErr := c.CoreV1().ConfigMaps(ns.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return accountErr == nil && caErr == nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the service account of namespace %s: %w", ns.Name, err)
	}
	return ns.Name, nil
}

// Kubectl returns the command with the administrator's kubeconfig.
func (e *Environment) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return e.command(ctx, "kubectl", args)
}

// Helm returns the command of "helm3" or "helm4" with the administrator's kubeconfig and without the user's own
// settings. It is built first where it is missing.
func (e *Environment) Helm(ctx context.Context, version string, args ...string) (*exec.Cmd, error) {
	if _, err := Build(ctx, e.Root, version); err != nil {
		return nil, err
	}
	cmd := e.command(ctx, version, args)
	for _, home := range []string{"CACHE", "CONFIG", "DATA"} {
		cmd.Env = append(cmd.Env, "HELM_"+home+"_HOME="+e.path("helm"))
	}
	return cmd, nil
}

func (e *Environment) command(ctx context.Context, program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(e.Assets, program), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.KubeConfig)
	return cmd
}

// Build returns the folder with the programs, built where they are missing, by test/assets/build.sh.
func Build(ctx context.Context, root string, programs ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "test", "assets", "build.sh"), programs...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building %s with test/assets/build.sh: %w", strings.Join(programs, ", "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// findRoot walks up from the working folder, as a test's is that of its package.
func findRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "assets", "build.sh")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the repository: no folder from %s up has test/assets/build.sh; run this inside the checkout", start)
		}
	}
}

func (e *Environment) path(name string) string { return filepath.Join(e.dir, name) }
