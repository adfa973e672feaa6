package faults

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/patch"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

// file is an lb-config.json of one model, with its flag on or off.
func file(queued int, flag bool) map[string]string {
	model := map[string]any{"algorithm": "pulsar-wait-and-widen", "max_queued": queued}
	if flag {
		model["last_cluster_affinity"] = true
	}
	data, err := json.Marshal(map[string]any{"default": "power-of-n", "models": map[string]any{"a": model}})
	Expect(err).NotTo(HaveOccurred())
	return map[string]string{render.LBConfigKey: string(data)}
}

// give does by hand what the operator does when it gives a revision to a workload, and returns the revision's name.
func (s *site) give(ctx context.Context, workload, artefact string, data map[string]string) string {
	GinkgoHelper()
	name := render.RevisionName(planeName, artefact, data)
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Data: data, Immutable: new(true),
	}))).To(Succeed())
	container := map[string]string{render.ArtefactStargate: fixtures.RouterContainer, render.ArtefactGateway: fixtures.GatewayContainer}[artefact]
	Eventually(func() error {
		d := s.deployment(workload)
		if err := admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		config, err := patch.Apply(
			patch.Target{Kind: v1alpha1.KindDeployment, Namespace: s.namespace, Name: workload, ResourceVersion: d.ResourceVersion},
			patch.Fields{Plane: planeName, Artefact: artefact, Revision: name, Container: container, ConfigPath: fixtures.OperatorConfigPath})
		if err != nil {
			return err
		}
		return admin.Apply(ctx, config, client.FieldOwner("by-hand"))
	}).Should(Succeed())
	return name
}

func (s *site) giveFile(ctx context.Context, data map[string]string) string {
	GinkgoHelper()
	return s.give(ctx, fixtures.Router, render.ArtefactStargate, data)
}

func (s *site) giveMemory(ctx context.Context, on bool) string {
	GinkgoHelper()
	return s.give(ctx, fixtures.Gateway, render.ArtefactGateway, render.GatewayVariables(v1alpha1.LastClusterSpec{}, on))
}

// rolledOut waits until both workloads are.
func (s *site) rolledOut(ctx context.Context) {
	GinkgoHelper()
	Expect(s.settle(ctx, workloadsComplete)).To(Succeed())
}

// The judge of every other spec is shown, by hand and without an operator, what it has to find.
var _ = Describe("Who judges the pods", func() {
	var s *site
	begin := func(ctx context.Context, router fixtures.Stargate) {
		GinkgoHelper()
		var err error
		s, err = newSite(ctx, router, 2)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { s.repair() })
	}
	broken := func(ctx context.Context) []string {
		GinkgoHelper()
		Expect(recorded.catchUp(ctx, s.namespace)).To(Succeed())
		var all []string
		for _, v := range judged(recorded.changes(s.namespace)).broken {
			all = append(all, v.String())
		}
		return all
	}

	It("has no objection to the right order, forwards and backwards", func(ctx SpecContext) {
		begin(ctx, fixtures.Stargate{})
		for _, step := range []func(){
			func() { s.giveFile(ctx, file(4, false)) },
			func() { s.giveMemory(ctx, true) },
			func() { s.giveFile(ctx, file(4, true)) },
			func() { s.giveFile(ctx, file(4, false)) },
			func() { s.giveMemory(ctx, false) },
		} {
			step()
			s.rolledOut(ctx)
			Expect(s.settle(ctx, func(objects []client.Object) string { // the judge goes by the API server
				pods := 0
				for _, o := range objects {
					if _, ok := o.(*corev1.Pod); ok {
						pods++
					}
				}
				if pods != 4 {
					return fmt.Sprintf("%d pods: some are ending", pods)
				}
				return ""
			})).To(Succeed())
		}
		Expect(recorded.catchUp(ctx, s.namespace)).To(Succeed())
		j := judged(recorded.changes(s.namespace))
		Expect(j.broken).To(BeEmpty())
		Expect(j.given).To(HaveLen(5))
	})

	It("finds flags without memory (I1)", func(ctx SpecContext) {
		begin(ctx, fixtures.Stargate{})
		s.giveFile(ctx, file(4, true))
		s.rolledOut(ctx)
		Expect(broken(ctx)).To(ContainElements(
			And(HavePrefix("I1: 1 flags are switched on while"), ContainSubstring(fixtures.Gateway), ContainSubstring("Deployment "+fixtures.Router+" changed at resourceVersion")),
			And(HavePrefix("I1: flags are on in"), ContainSubstring("v1.Pod"))))
	})

	It("finds flags beside one gateway pod that is still ending without memory (I1)", func(ctx SpecContext) {
		begin(ctx, fixtures.Stargate{})
		s.giveFile(ctx, file(4, false))
		s.rolledOut(ctx)
		stuck := kubelet.When(func(pod *corev1.Pod) bool {
			return pod.Namespace == s.namespace && pod.Spec.Containers[0].Name == fixtures.GatewayContainer
		}, func(b *standin.Behaviour) { b.Stuck = true })
		s.giveMemory(ctx, true)
		s.rolledOut(ctx)
		Expect(broken(ctx)).To(BeEmpty())
		s.giveFile(ctx, file(4, true))
		Expect(broken(ctx)).To(ContainElement(And(HavePrefix("I1: 1 flags are switched on while pod "), ContainSubstring("has no memory"))))
		stuck()
	})

	It("finds memory beside a Stargate that does not know the header (I2)", func(ctx SpecContext) {
		begin(ctx, fixtures.Stargate{Tag: fixtures.TagV1})
		s.giveFile(ctx, file(4, false))
		s.rolledOut(ctx)
		s.giveMemory(ctx, true)
		s.rolledOut(ctx)
		Expect(broken(ctx)).To(ContainElements(HavePrefix("I2: the memory of "+fixtures.Gateway), HavePrefix("I2: the memory is on in")))
	})

	It("finds two workloads that roll at once (I3)", func(ctx SpecContext) {
		begin(ctx, fixtures.Stargate{})
		s.giveFile(ctx, file(4, false))
		s.rolledOut(ctx)
		release := kubelet.When(func(pod *corev1.Pod) bool { return pod.Namespace == s.namespace }, func(b *standin.Behaviour) { b.Unready = true })
		s.giveFile(ctx, file(5, false))
		s.giveMemory(ctx, false)
		Expect(broken(ctx)).To(ConsistOf(HavePrefix(fmt.Sprintf("I3: %s is rolled while %s is", fixtures.Gateway, fixtures.Router))))
		release()
	})

	It("finds a file that its Stargate refuses (I4)", func(ctx SpecContext) {
		begin(ctx, fixtures.Stargate{Tag: fixtures.TagV0})
		s.giveFile(ctx, file(4, true))
		Expect(broken(ctx)).To(ContainElement(And(HavePrefix("I4: "), ContainSubstring("which it refuses"))))
	})

	It("finds a revision that failed and is given again, unless somebody asked for it (I5)", func(ctx SpecContext) {
		begin(ctx, fixtures.Stargate{})
		s.giveFile(ctx, file(4, false))
		s.rolledOut(ctx)
		Expect(s.breakNewFiles(ctx)).To(Succeed())
		attempt := func() {
			GinkgoHelper()
			bad := s.giveFile(ctx, file(5, false))
			Eventually(func(g Gomega) {
				g.Expect(kubelet.Pods(s.namespace)).To(ContainElement(And(HaveField("Restarts", BeNumerically(">=", 2)), HaveField("Terminating", false))), bad)
			}).Should(Succeed())
			Expect(recorded.catchUp(ctx, s.namespace)).To(Succeed())
			Eventually(func() sets.Set[string] {
				for _, w := range judged(recorded.changes(s.namespace)).workloads {
					if w.router() {
						return w.exited
					}
				}
				return nil
			}).Should(HaveKey(bad))
			s.giveFile(ctx, file(4, false))
			s.rolledOut(ctx)
		}
		attempt()
		plane := s.plane(v1alpha1.KindDeployment)
		plane.Spec.Rollout.Paused = true
		Expect(admin.Create(ctx, plane)).To(Succeed()) // which is to ask
		attempt()
		Expect(broken(ctx)).To(BeEmpty())
		s.giveFile(ctx, file(5, false))
		Expect(broken(ctx)).To(ConsistOf(HavePrefix("I5: " + fixtures.Router)))
	})

	It("finds a file that goes while a pod names it", func(ctx SpecContext) {
		begin(ctx, fixtures.Stargate{})
		name := s.giveFile(ctx, file(4, false))
		s.rolledOut(ctx)
		Expect(admin.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}})).To(Succeed())
		Eventually(broken).WithArguments(ctx).Should(ContainElement(HavePrefix("files: " + name)))
	})
})
