package rollout

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

// upgrade changes the router's image as a chart does.
func upgrade(s *site, tag string) {
	GinkgoHelper()
	change(s, s.router.(*appsv1.Deployment), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = fixtures.RouterRepository + ":" + tag
	})
}

func (s *site) deployment(name string) *appsv1.Deployment {
	GinkgoHelper()
	d := &appsv1.Deployment{}
	Expect(admin.Get(s.ctx, s.key(name), d)).To(Succeed())
	return d
}

// ownedAlone tells whether what the operator owns of the workload it owns by apply only, and nobody else beside it.
func (s *site) ownedAlone(ctx context.Context, name string) func(Gomega) {
	return func(g Gomega) {
		d := &appsv1.Deployment{}
		g.Expect(admin.Get(ctx, s.key(name), d)).To(Succeed())
		for _, entry := range d.ManagedFields {
			owns := strings.Contains(entry.FieldsV1.GetRawString(), "STARGATE_LAST_CLUSTER")
			applies := entry.Manager == "routing-operator" && entry.Operation == "Apply"
			g.Expect(owns).To(Equal(applies), "%s by %s", entry.Manager, entry.Operation)
		}
	}
}

var _ = Describe("What is the operator's and was taken is taken back", func() {
	var s *site
	var policy *v1alpha1.RoutingPolicy
	BeforeEach(func(ctx SpecContext) {
		s = newSite(ctx, layout{})
		s.plane()
		policy = s.policy("llama", flagged("a"))
		s.settled(policy)
	})
	// A person broke the order; what is judged is that it is mended.
	mended := func() {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			on, all := s.memories()
			g.Expect(on).To(Equal(all))
			g.Expect(all).To(Equal(2))
			g.Expect(s.flagsOn()).To(Equal([]string{"a"}))
		}).Should(Succeed())
		s.settled(policy)
	}
	// By one change for theirs. Rollouts do not tell: there is none where the operator comes before the Deployment's
	// controller.
	restored := func(name string, before int64) {
		GinkgoHelper()
		// Of the spec, those included that its controller has not seen.
		changes := func() int64 { return s.deployment(name).Generation - before }
		Eventually(changes).Should(BeEquivalentTo(2), "theirs and ours")
		Eventually(s.deployment).WithArguments(name).Should(Satisfy(fixtures.RolledOut))
		mended()
		Expect(changes()).To(BeEquivalentTo(2))
	}

	It("after kubectl set env, by one change of the template, and owned as before", func(ctx SpecContext) {
		s.unwatched()
		before := s.deployment(fixtures.Gateway).Generation
		run(env.Kubectl(ctx, "set", "env", "-n", s.namespace, "deployment/"+fixtures.Gateway, "STARGATE_LAST_CLUSTER_ENABLED=false"))
		restored(fixtures.Gateway, before)
		Eventually(s.ownedAlone(ctx, fixtures.Gateway)).Should(Succeed())

		By("letting go of it afterwards without a remainder")
		change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].LastClusterAffinity = nil })
		Eventually(func() int { on, _ := s.memories(); return on }).Should(BeZero())
		d := &appsv1.Deployment{}
		Expect(admin.Get(ctx, s.key(fixtures.Gateway), d)).To(Succeed())
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			Expect(e.Name).NotTo(HavePrefix("STARGATE_LAST_CLUSTER"))
		}
	})

	It("after kubectl rollout undo", func(ctx SpecContext) {
		s.unwatched()
		before := s.deployment(fixtures.Gateway).Generation
		run(env.Kubectl(ctx, "rollout", "undo", "-n", s.namespace, "deployment/"+fixtures.Gateway))
		restored(fixtures.Gateway, before)
	})

	It("after the volume was given another source", func(ctx SpecContext) {
		before := s.deployment(fixtures.Router).Generation
		s.unwatched()
		run(env.Kubectl(ctx, "patch", "-n", s.namespace, "deployment/"+fixtures.Router, "--type=json", "-p",
			`[{"op":"replace","path":"/spec/template/spec/volumes/0","value":{"name":"routing-lb-config","emptyDir":{}}}]`))
		restored(fixtures.Router, before)
	})

	It("after a path within the volume was put into the mount", func(ctx SpecContext) {
		before := s.deployment(fixtures.Router).Generation
		s.unwatched()
		run(env.Kubectl(ctx, "patch", "-n", s.namespace, "deployment/"+fixtures.Router, "--type=json", "-p",
			`[{"op":"add","path":"/spec/template/spec/containers/0/volumeMounts/0/subPath","value":"nowhere"}]`))
		restored(fixtures.Router, before)
	})

	It("after a revision was deleted or made anew with other content", func(ctx SpecContext) {
		before := s.counts()
		plane := s.stored()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
		name := plane.Status.Stargate.Revision
		cm := &corev1.ConfigMap{}
		Expect(admin.Get(ctx, s.key(name), cm)).To(Succeed())
		wanted := cm.Data[render.LBConfigKey]
		intact := func() string {
			found := &corev1.ConfigMap{}
			if err := admin.Get(ctx, s.key(name), found); err != nil {
				return err.Error()
			}
			return found.Data[render.LBConfigKey]
		}
		Expect(admin.Delete(ctx, cm)).To(Succeed())
		Eventually(intact).Should(Equal(wanted))

		Expect(admin.Get(ctx, s.key(name), cm)).To(Succeed())
		forged := cm.DeepCopy()
		forged.ResourceVersion, forged.UID = "", ""
		forged.Data = map[string]string{render.LBConfigKey: `{"models":{}}`}
		Expect(admin.Delete(ctx, cm)).To(Succeed())
		Expect(client.IgnoreAlreadyExists(admin.Create(ctx, forged))).To(Succeed())
		Eventually(intact).Should(Equal(wanted))
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{0, 0}))
	})

	It("after the annotation was removed", func(ctx SpecContext) {
		before := s.counts()
		run(env.Kubectl(ctx, "annotate", "-n", s.namespace, "deployment/"+fixtures.Router, "routing.nvcf.io/plane-"))
		Eventually(func() string {
			d := &appsv1.Deployment{}
			if err := admin.Get(ctx, s.key(fixtures.Router), d); err != nil {
				return err.Error()
			}
			return d.Annotations["routing.nvcf.io/plane"]
		}).Should(Equal(planeName))
		Expect(s.since(before)).To(Equal([]int{0, 0}))
	})

	It("after the owner of an accepted spec was removed, and a spec's name that something else has is named", func(ctx SpecContext) {
		before := s.counts()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		kept := func(change func(*v1alpha1.RoutingPolicy)) *appsv1.ControllerRevision {
			changed := policy.DeepCopy()
			change(changed)
			accepted, _, err := history.Accept(changed, nil)
			Expect(err).NotTo(HaveOccurred())
			return accepted.Create
		}
		revision := kept(func(*v1alpha1.RoutingPolicy) {})
		wanted := revision.OwnerReferences
		run(env.Kubectl(ctx, "patch", "-n", s.namespace, "controllerrevision", revision.Name, "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`))
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, s.key(revision.Name), revision)).To(Succeed())
			g.Expect(revision.OwnerReferences).To(Equal(wanted))
		}).Should(Succeed())
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{0, 0}))

		longer := func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = new(int64(9)) }
		other := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: kept(longer).Name},
			Data: runtime.RawExtension{Raw: []byte(`{"spec":{}}`)}}
		Expect(admin.Create(ctx, other)).To(Succeed())
		change(s, policy, longer)
		Eventually(func() (string, error) {
			out, err := env.Kubectl(ctx, "events", "-n", s.namespace, "--for", "routingpolicy/"+policy.Name).CombinedOutput()
			return string(out), err
		}).Should(And(ContainSubstring("RevisionOccupied"), ContainSubstring("kubectl delete controllerrevision "+other.Name+" -n "+s.namespace)))
		Expect(s.since(before)).To(Equal([]int{0, 0}))
		Expect(admin.Delete(ctx, other)).To(Succeed())
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{1, 0}))
	})

	It("gives way to whoever keeps changing it, names them, and tries again later", func(ctx SpecContext) {
		s.unwatched()
		restored := func() bool {
			return slices.ContainsFunc(s.deployment(fixtures.Gateway).Spec.Template.Spec.Containers[0].Env, func(e corev1.EnvVar) bool {
				return e.Name == "STARGATE_LAST_CLUSTER_ENABLED" && e.ValueFrom != nil
			})
		}
		plane, changes := s.stored(), 0
		Eventually(func(g Gomega) {
			if restored() {
				run(env.Kubectl(ctx, "set", "env", "-n", s.namespace, "deployment/"+fixtures.Gateway, "STARGATE_LAST_CLUSTER_ENABLED=false"))
				changes++
			}
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
			g.Expect(plane.Status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.ConditionStalled), HaveField("Reason", rollout.ReasonFieldContested),
				HaveField("Message", And(ContainSubstring("keeps changing the operator's fields of Deployment "+fixtures.Gateway), ContainSubstring("kubectl"))))))
		}).Should(Succeed())
		Expect(changes).To(BeNumerically(">=", 4), "three are taken back first")
		Expect(plane.Status.Waiting.Until).NotTo(BeNil())
		Consistently(restored, 2*time.Second).Should(BeFalse())

		By("being asked to try again, now that they do not")
		run(env.Kubectl(ctx, "annotate", "-n", s.namespace, "rpl/"+planeName, "routing.nvcf.io/retry=now"))
		Eventually(restored).Should(BeTrue()) // long before the truce of five minutes ends
		s.settled(policy)
	})

	It("and a chart's upgrade to another image goes through without undoing anything", func(SpecContext) {
		before := s.counts()
		upgrade(s, "0.22.1")
		s.settled(policy)
		Eventually(func() []int { return s.since(before) }).Should(Equal([]int{1, 0}))
		mended()
	})

	It("and a downgrade below the flag re-renders for the old release and switches the memory off", func(SpecContext) {
		s.unwatched()
		upgrade(s, fixtures.TagV1)
		Eventually(func() int { on, _ := s.memories(); return on }).Should(BeZero())
		Eventually(s.flagsOn).Should(BeEmpty())
		s.conditioned(policy, v1alpha1.ConditionReady, "True", "Limited")

		By("upgrading again")
		upgrade(s, fixtures.TagV3)
		mended()
	})
})
