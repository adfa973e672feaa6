package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

// site is a namespace with a router and a gateway.
type site struct {
	ctx       context.Context
	namespace string
}

func newSite(ctx context.Context, router fixtures.Stargate) *site {
	GinkgoHelper()
	namespace, err := env.Namespace(ctx, "cli")
	Expect(err).NotTo(HaveOccurred())
	s := &site{ctx: ctx, namespace: namespace}
	if router.Replicas == nil {
		router.Replicas = ptr.To[int32](2)
	}
	gateway := fixtures.GatewayWorkload{Replicas: ptr.To[int32](2)}
	for _, objects := range [][]client.Object{router.Objects(namespace), gateway.Objects(namespace)} {
		Expect(fixtures.Create(ctx, admin, objects)).To(Succeed())
	}
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			out, _ := env.Kubectl(ctx, "get", "-n", namespace, "rpl,rp,deploy,cm,events", "-o", "yaml").CombinedOutput()
			AddReportEntry("site", string(out))
		}
	})
	return s
}

// routing runs the plugin in the site's namespace.
func (s *site) routing(args ...string) answer {
	return routing(s.ctx, "", append(args, cluster(s.namespace)...)...)
}

// ok is the output of a command that has to succeed.
func (s *site) ok(args ...string) string {
	GinkgoHelper()
	a := s.routing(args...)
	Expect(a.code).To(Equal(0), "%v: %+v", args, a)
	return a.out
}

// complete is what a shell is offered for the last word of a command line.
func (s *site) complete(command string, words ...string) string {
	line := append([]string{"__complete", command}, cluster(s.namespace)...)
	return routing(s.ctx, "", append(line, words...)...).out
}

// plan compares text with the live plane.
func (s *site) plan(text string, args ...string) answer {
	return routing(s.ctx, text, append(append([]string{"plan", "-f", "-"}, args...), append(cluster(s.namespace), fixtures.GenerationsFlag())...)...)
}

// apply text as a person does.
func (s *site) apply(text string) {
	GinkgoHelper()
	command := env.Kubectl(s.ctx, "apply", "-n", s.namespace, "-f", "-")
	command.Stdin = strings.NewReader(text)
	run(command)
}

func (s *site) kubectl(args ...string) string {
	GinkgoHelper()
	return run(env.Kubectl(s.ctx, append(args, "-n", s.namespace)...))
}

// watch follows the plane to its outcome.
func (s *site) watch() answer {
	return s.routing("status", "llm", "--watch", "--interval", "50ms", "--timeout", patience.String())
}

// ready waits for the outcome that everything is in effect, and then until no pod of before drains any more.
func (s *site) ready() {
	GinkgoHelper()
	a := s.watch()
	Expect(a.code).To(Equal(0), "%+v", a)
	Eventually(func() (draining int32) {
		status := s.plane().Status
		for _, w := range append(status.Gateways, *status.Stargate) {
			for _, pods := range w.Pods {
				draining += pods.Terminating
			}
		}
		return draining
	}, patience).Should(BeZero())
}

func (s *site) plane() *v1alpha1.RoutingPlane {
	GinkgoHelper()
	plane := &v1alpha1.RoutingPlane{}
	Expect(admin.Get(s.ctx, client.ObjectKey{Namespace: s.namespace, Name: "llm"}, plane)).To(Succeed())
	return plane
}

func (s *site) deployment(name string) *appsv1.Deployment {
	GinkgoHelper()
	d := &appsv1.Deployment{}
	Expect(admin.Get(s.ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, d)).To(Succeed())
	return d
}

// rollouts counts the templates that router and gateway have had.
func (s *site) rollouts() (counts [2]int) {
	GinkgoHelper()
	for i, name := range []string{fixtures.Router, fixtures.Gateway} {
		_, err := fmt.Sscan(s.deployment(name).Annotations["deployment.kubernetes.io/revision"], &counts[i])
		Expect(err).NotTo(HaveOccurred())
	}
	return counts
}

// planeText is a plane in which everything is quick; more is put into its rollout.
func planeText(more string) string {
	return `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPlane
metadata: {name: llm}
spec:
  stargate: {workloadRef: {kind: Deployment, name: llm-request-router}, container: helm-nvcf-llm-request-router}
  gateways: [{workloadRef: {kind: Deployment, name: llm-api-gateway}, container: helm-nvcf-llm-api-gateway}]
  rollout: {quietPeriod: 100ms, gatewayWarmup: 0s, waveInterval: 0s` + more + `}
`
}

// policyText lists models, each as "name settings".
func policyText(name string, models ...string) string {
	text := "---\napiVersion: routing.nvcf.io/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: " + name + "}\nspec:\n  planeRef: {name: llm}\n  models:\n"
	for _, model := range models {
		id, settings, _ := strings.Cut(model, " ")
		text += "  - {name: " + id + ", algorithm: pulsar-wait-and-widen, maxQueued: 4" + settings + "}\n"
	}
	return text
}

const flag = " , lastClusterAffinity: true"

// soon is how long what has to come at once may take on a busy machine.
const soon = 20 * time.Second
