// Package webhooks tests admission against a real API server: the manifests of config/default are applied as they
// are, and the manager runs with the rights that they give it.
package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/certs"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/webhooks"
)

const (
	ownNamespace = "routing-operator-system"
	account      = "system:serviceaccount:" + ownNamespace + ":routing-operator"
	patience     = 2 * time.Minute
)

var (
	env     *testenv.Environment
	admin   client.Client
	scheme  = platform.Scheme()
	manager *inProcess
	port    int
)

func TestWebhooks(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Webhooks")
}

var _ = BeforeSuite(func(ctx context.Context) {
	logf.SetLogger(GinkgoLogr)
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	admin, err = client.New(env.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	port = freePort()
	for _, object := range built("config/default") {
		install(ctx, object)
	}
	manager = startManager()
	DeferCleanup(func() { manager.end() })
	webhookAnswers(ctx)
})

// built is what kustomize makes of a folder.
func built(folder string) (objects []*unstructured.Unstructured) {
	command := exec.Command("go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", folder)
	command.Dir = env.Root
	var complaints bytes.Buffer
	command.Stderr = &complaints
	output, err := command.Output()
	ExpectWithOffset(1, err).NotTo(HaveOccurred(), "%s", &complaints)
	return decode(bytes.NewReader(output))
}

func decode(text io.Reader) (objects []*unstructured.Unstructured) {
	decoder := yaml.NewYAMLOrJSONDecoder(text, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		ExpectWithOffset(1, err).NotTo(HaveOccurred())
		objects = append(objects, object)
	}
}

// install applies an object as a user does.
func install(ctx context.Context, object *unstructured.Unstructured) {
	if object.GetKind() == "ValidatingWebhookConfiguration" {
		callHere(object)
	}
	ExpectWithOffset(1, admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl"))).To(Succeed(),
		"%s %s", object.GetKind(), object.GetName())
}

// callHere replaces the service of each webhook by the address of this test's manager, and its timeout by the longest that
// there is: on a busy machine an answer may take longer than in a cluster.
func callHere(configuration *unstructured.Unstructured) {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	Expect(err).NotTo(HaveOccurred())
	for _, webhook := range webhooks {
		path, _, _ := unstructured.NestedString(webhook.(map[string]any), "clientConfig", "service", "path")
		webhook.(map[string]any)["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d%s", port, path)}
		webhook.(map[string]any)["timeoutSeconds"] = int64(30)
	}
	Expect(unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")).To(Succeed())
}

// webhookConfiguration is that of config/webhook.
func webhookConfiguration() *unstructured.Unstructured {
	for _, object := range built("config/webhook") {
		if object.GetKind() == "ValidatingWebhookConfiguration" {
			return object
		}
	}
	Fail("config/webhook has no ValidatingWebhookConfiguration")
	return nil
}

// withoutWebhook runs do while the webhook is not installed.
func withoutWebhook(ctx context.Context, do func()) {
	Expect(admin.Delete(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "routing-operator"}})).To(Succeed())
	probe := refusedPlane(namespace(ctx))
	Eventually(func() error { return admin.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).Should(Succeed())
	do()
	install(ctx, webhookConfiguration())
	webhookAnswers(ctx)
}

// webhookAnswers waits until the API server calls the webhook and trusts it.
func webhookAnswers(ctx context.Context) {
	probe := refusedPlane(namespace(ctx))
	Eventually(func() error { return admin.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).
		Should(Satisfy(apierrors.IsInvalid))
}

// refusedPlane is one that only the webhook refuses.
func refusedPlane(namespace string) *v1alpha1.RoutingPlane {
	plane := newPlane(namespace)
	plane.Spec.Stargate.ConfigPath = "/etc/elsewhere/lb-config.json"
	return plane
}

// inProcess is a manager with the webhook and its certificate, and no controllers.
type inProcess struct {
	stop context.CancelFunc
	done chan error
}

// startManager runs a manager with the rights of the operator's service account.
func startManager() *inProcess {
	config, err := env.User(account, "system:serviceaccounts", "system:serviceaccounts:"+ownNamespace, "system:authenticated")
	Expect(err).NotTo(HaveOccurred())
	uncached, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	keeper := certs.New(certs.Options{
		Client: uncached, Secret: types.NamespacedName{Namespace: ownNamespace, Name: "routing-operator-webhook"},
		Hosts: []string{"127.0.0.1"}, Configuration: "routing-operator", Clock: clock.RealClock{}, Log: GinkgoLogr,
	})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){
			func(c *tls.Config) { c.GetCertificate = keeper.GetCertificate },
		}}),
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	Expect(mgr.Add(keeper)).To(Succeed())
	Expect(index.Setup(ctx, mgr.GetFieldIndexer())).To(Succeed())
	generations, err := release.ParseTable(map[string]string{"V0": "0.10.0", "V1": "0.18.0", "V2": "0.20.0", "V3": "0.22.0"})
	Expect(err).NotTo(HaveOccurred())
	Expect(webhooks.SetupWithManager(ctx, mgr, webhooks.Options{Generations: generations})).To(Succeed())
	m := &inProcess{stop: cancel, done: make(chan error, 1)}
	go func() { m.done <- mgr.Start(ctx) }()
	return m
}

// end stops the manager and waits for it.
func (m *inProcess) end() {
	m.stop()
	Eventually(m.done).Should(Receive(BeNil()))
}

func freePort() int {
	port, err := testenv.FreePort()
	Expect(err).NotTo(HaveOccurred())
	return port
}

// namespace makes one for a spec.
func namespace(ctx context.Context) string {
	name, err := env.Namespace(ctx, "webhooks")
	Expect(err).NotTo(HaveOccurred())
	return name
}

// user is a client that collects the warnings of the API server.
type user struct {
	client.Client
	warnings *[]string
}

// as makes a user; the administrator without a name.
func as(name string, groups ...string) user {
	config, err := rest.CopyConfig(env.Config), error(nil)
	if name != "" {
		config, err = env.User(name, append(groups, "system:authenticated")...)
		Expect(err).NotTo(HaveOccurred())
	}
	u := user{warnings: &[]string{}}
	config.WarningHandler = collector{u.warnings}
	u.Client, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return u
}

// warned returns the warnings since it was last called.
func (u user) warned() []string {
	warnings := *u.warnings
	*u.warnings = nil
	return warnings
}

type collector struct{ warnings *[]string }

func (c collector) HandleWarningHeader(_ int, _ string, text string) {
	*c.warnings = append(*c.warnings, text)
}

// causes of a refusal, as "path: message".
func causes(err error) (list []string) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			list = append(list, cause.Field+": "+cause.Message)
		}
	}
	return list
}
