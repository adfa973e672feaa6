package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

const (
	namespace         = "nvcf"
	operatorNamespace = "routing-operator-system"
	operatorAccount   = "routing-operator"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":" + operatorAccount
)

// site is a cluster with the operator's program beside it.
type site struct {
	env     *testenv.Environment
	kubelet *standin.Standin
	client  client.WithWatch // the administrator's, to check with
	shell   *shell
	binary  string // of the manager
	manager *testenv.Program
	ports   ports

	admin, ana, ben, carl person
}

// ports of the manager.
type ports struct{ webhook, metrics, probes int }

// behaviour of pods: as in a cluster, and about fifty times as fast.
var behaviour = standin.Behaviour{
	StartUp: 300 * time.Millisecond, Warmup: 1200 * time.Millisecond, Drain: 600 * time.Millisecond,
	Backoff: time.Second, MaxBackoff: 4 * time.Second, Retry: 200 * time.Millisecond,
}

// startSite builds what is missing and starts everything but the manager.
func startSite(ctx context.Context, screen *screen) (_ *site, err error) {
	screen.print(screen.paint(bold, "routing-operator, from kubectl apply to a finished rollout") + "\n")
	screen.say(`
A real Kubernetes control plane on this machine's loopback interface, the operator's manager as a process of
its own, and people who use kubectl. What stands in for the kubelets runs pods in appearance only, except that
it reads Stargate's file and the gateway's variables as strictly as the real programs, and crashes the pod with
their words. What is not there yet is built first, which takes minutes the first time.`)
	s := &site{}
	if s.binary, err = build(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	begun := time.Now()
	if s.env, err = testenv.Start(ctx, testenv.Options{ControllerManager: true, WithoutCRDs: true}); err != nil {
		return nil, err
	}
	table, err := release.ParseTable(fixtures.Releases())
	if err != nil {
		return nil, err
	}
	if s.kubelet, err = standin.Start(ctx, s.env.Config, standin.Options{Behaviour: &behaviour, Releases: &table}); err != nil {
		return nil, err
	}
	if s.client, err = client.NewWithWatch(s.env.Config, client.Options{Scheme: platform.Scheme()}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if err := s.openShell(screen); err != nil {
		return nil, err
	}
	if err := s.invitePeople(); err != nil {
		return nil, err
	}
	screen.say(fmt.Sprintf("etcd, kube-apiserver, kube-controller-manager and two nodes run after %s, at %s.",
		time.Since(begun).Round(100*time.Millisecond), s.env.Config.Host))
	return s, nil
}

// build makes the control plane's programs, the manager and the kubectl plugin, where they are missing or old.
func build(ctx context.Context) (manager string, err error) {
	root, err := run(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	root = strings.TrimSpace(root)
	if _, err := run(ctx, root, filepath.Join(root, "test", "assets", "build.sh")); err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	_, err = run(ctx, root, "go", "build", "-o", bin+string(filepath.Separator), "./cmd/manager", "./cmd/kubectl-routing")
	return filepath.Join(bin, "manager"), err
}

// run a program of the build, whose complaints are shown.
func run(ctx context.Context, folder, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	groupOf(cmd)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	return string(out), nil
}

// openShell lays out the files that commands name.
func (s *site) openShell(screen *screen) error {
	folder, err := s.env.Folder("demo")
	if err != nil {
		return err
	}
	home, err := s.env.Folder("home")
	if err != nil {
		return err
	}
	for _, from := range []string{"test/demo/manifests", "test/fixtures/platform"} {
		if err := os.CopyFS(folder, os.DirFS(filepath.Join(s.env.Root, from))); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("copying %s: %w", from, err)
		}
	}
	s.shell = &shell{screen: screen, folder: folder, home: home, programs: []string{s.env.Assets, filepath.Join(s.env.Root, "bin")}}
	return nil
}

// invitePeople gives everybody a certificate; what they may do is up to RBAC.
func (s *site) invitePeople() error {
	s.admin = person{"admin", s.env.KubeConfig}
	if err := useNamespace(s.admin.kubeconfig); err != nil {
		return err
	}
	for name, p := range map[string]*person{"ana": &s.ana, "ben": &s.ben, "carl": &s.carl} {
		config, err := s.env.User(name)
		if err != nil {
			return err
		}
		*p = person{name, filepath.Join(s.shell.home, name+".kubeconfig")}
		if err := testenv.WriteKubeConfig(config, p.kubeconfig); err != nil {
			return err
		}
		if err := useNamespace(p.kubeconfig); err != nil {
			return err
		}
	}
	return nil
}

func useNamespace(kubeconfig string) error {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", kubeconfig, err)
	}
	return nil
}

// writeInstallation writes what kustomize makes of config/default to a file. The manager is no pod here, so its
// Deployment is left out, and the API server calls the webhook at this machine's address.
func (s *site) writeInstallation(ctx context.Context, name string) (arguments []string, err error) {
	text, err := run(ctx, s.env.Root, "go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", "config/default")
	if err != nil {
		return nil, err
	}
	for _, port := range []*int{&s.ports.webhook, &s.ports.metrics, &s.ports.probes} {
		if *port, err = testenv.FreePort(); err != nil {
			return nil, err
		}
	}
	var file bytes.Buffer
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading what kustomize built: %w", err)
		}
		switch object.GetKind() {
		case "Deployment":
			if arguments, err = containerArguments(object); err != nil {
				return nil, err
			}
			continue
		case "ValidatingWebhookConfiguration":
			if err := callHere(object, s.ports.webhook); err != nil {
				return nil, err
			}
		}
		document, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("writing %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		file.WriteString("---\n")
		file.Write(document)
	}
	if err := os.WriteFile(filepath.Join(s.shell.folder, name), file.Bytes(), 0o600); err != nil {
		return nil, fmt.Errorf("writing the installation: %w", err)
	}
	return arguments, nil
}

func containerArguments(deployment *unstructured.Unstructured) ([]string, error) {
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return nil, fmt.Errorf("the manager's Deployment has %d containers, want one: %w", len(containers), err)
	}
	arguments, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	return arguments, err
}

// callHere replaces the service of webhooks by an address.
func callHere(configuration *unstructured.Unstructured, port int) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("reading the webhooks: %w", err)
	}
	for _, w := range webhooks {
		path, _, err := unstructured.NestedString(w.(map[string]any), "clientConfig", "service", "path")
		if err != nil {
			return fmt.Errorf("reading the path of a webhook: %w", err)
		}
		w.(map[string]any)["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d%s", port, path)}
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}

// startManager starts it with the arguments of its Deployment, less what is different outside of a pod, and with a
// token of its service account, so that it can do what config/rbac lets it and nothing else.
func (s *site) startManager(ctx context.Context, arguments []string) error {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = operatorNamespace, operatorAccount
	token := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("asking for a token of service account %s/%s: %w", operatorNamespace, operatorAccount, err)
	}
	kubeconfig := filepath.Join(s.shell.home, "manager.kubeconfig")
	config := &rest.Config{Host: s.env.Config.Host, BearerToken: token.Status.Token}
	config.CAData = s.env.Config.CAData
	if err := testenv.WriteKubeConfig(config, kubeconfig); err != nil {
		return err
	}

	arguments = slices.DeleteFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "--webhook-hosts=") })
	arguments = append(arguments,
		fixtures.GenerationsFlag(),
		"--webhook-hosts=127.0.0.1", "--webhook-bind-host=127.0.0.1",
		fmt.Sprintf("--webhook-port=%d", s.ports.webhook),
		fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", s.ports.metrics),
		fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", s.ports.probes),
		"--log-format=text",
	)
	var err error
	if s.manager, err = s.env.Run(s.binary, []string{"POD_NAMESPACE=" + operatorNamespace, "KUBECONFIG=" + kubeconfig}, arguments...); err != nil {
		return err
	}
	return s.manager.WaitHealthy(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", s.ports.probes))
}

// managerLog is the end of the manager's log, as an error.
func (s *site) managerLog() error {
	if s.manager == nil {
		return nil
	}
	const end = 4000
	log, err := os.ReadFile(s.manager.LogFile)
	if err != nil {
		return fmt.Errorf("reading the manager's log: %w", err)
	}
	return fmt.Errorf("the end of the manager's log:\n%s", log[max(0, len(log)-end):])
}

// stop ends everything, in whatever state it is.
func (s *site) stop() error {
	if s.kubelet != nil {
		s.kubelet.Stop()
	}
	if s.env == nil {
		return nil
	}
	return s.env.Stop()
}
