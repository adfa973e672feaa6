package webhooks

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

func newPlane(namespace string) *v1alpha1.RoutingPlane {
	return &v1alpha1.RoutingPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "llm"},
		Spec: v1alpha1.RoutingPlaneSpec{
			Stargate: v1alpha1.StargateSpec{WorkloadRef: v1alpha1.WorkloadReference{Kind: "StatefulSet", Name: "router"}},
			Gateways: []v1alpha1.GatewaySpec{{WorkloadRef: v1alpha1.WorkloadReference{Kind: "Deployment", Name: "gateway"}}},
		},
	}
}

func newPolicy(namespace, name string, models ...string) *v1alpha1.RoutingPolicy {
	policy := &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: "llm"}, Models: []v1alpha1.Model{}},
	}
	for _, model := range models {
		policy.Spec.Models = append(policy.Spec.Models, v1alpha1.Model{Name: model, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}})
	}
	return policy
}

// workload is a StatefulSet or Deployment of one container, with mounts.
func workload(object client.Object, namespace, name, image string, mounts ...corev1.VolumeMount) client.Object {
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image, VolumeMounts: mounts}}},
	}
	for _, mount := range mounts {
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: mount.Name})
	}
	object.SetNamespace(namespace)
	object.SetName(name)
	selector := &metav1.LabelSelector{MatchLabels: labels}
	switch o := object.(type) {
	case *appsv1.Deployment:
		o.Spec = appsv1.DeploymentSpec{Selector: selector, Template: template}
	case *appsv1.StatefulSet:
		o.Spec = appsv1.StatefulSetSpec{Selector: selector, Template: template}
	}
	return object
}

// may lets a user do things in a namespace.
func may(ctx context.Context, namespace, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	subject.APIGroup = rbacv1.GroupName
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	Expect(admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	})).To(Succeed())
}

var (
	writesPlanes = rbacv1.PolicyRule{APIGroups: []string{"routing.nvcf.io"}, Resources: []string{"routingplanes"}, Verbs: []string{"*"}}
	jane         = rbacv1.Subject{Kind: "User", Name: "jane"}
)

func patches(resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"patch"}}
}

var _ = Describe("A plane", func() {
	var ns string
	BeforeEach(func(ctx context.Context) { ns = namespace(ctx) })

	It("is refused with every cause at its path in one answer", func(ctx context.Context) {
		may(ctx, ns, "planes", jane, writesPlanes)
		author := as("jane")
		plane := refusedPlane(ns)
		var err error
		Eventually(func() []string { err = author.Create(ctx, plane); return causes(err) }).Should(ConsistOf(
			And(HavePrefix("spec.stargate.configPath: "), ContainSubstring("/etc/routing-operator")),
			And(HavePrefix("spec.stargate.workloadRef: Forbidden"), ContainSubstring(`user "jane" may not patch statefulsets.apps "router" in namespace %q`, ns)),
			And(HavePrefix("spec.gateways[0].workloadRef: Forbidden"), ContainSubstring(`user "jane" may not patch deployments.apps "gateway" in namespace %q`, ns)),
		))
		Expect(err).To(Satisfy(apierrors.IsInvalid))
		Expect(err).To(MatchError(HavePrefix(`admission webhook "planes.routing.nvcf.io" denied the request: RoutingPlane.routing.nvcf.io "llm" is invalid: `)))
	})

	It("is taken from an author who may patch its workloads, by name or through a group", func(ctx context.Context) {
		may(ctx, ns, "planes", jane, writesPlanes, patches("statefulsets", "router"))
		author := as("jane", "gateway-team")
		Eventually(func() []string { return causes(author.Create(ctx, newPlane(ns))) }).Should(ConsistOf(HavePrefix("spec.gateways[0].workloadRef: ")))
		may(ctx, ns, "gateway", rbacv1.Subject{Kind: "Group", Name: "gateway-team"}, patches("deployments", "gateway"))
		Eventually(func() error { return author.Create(ctx, newPlane(ns)) }).Should(Succeed())
	})

	It("can be edited without that right as long as its references stay", func(ctx context.Context) {
		may(ctx, ns, "planes", jane, writesPlanes)
		author := as("jane")
		plane := newPlane(ns)
		Expect(admin.Create(ctx, plane)).To(Succeed())
		key := client.ObjectKeyFromObject(plane)
		edit := func(change func(*v1alpha1.RoutingPlane)) func() []string {
			return func() []string {
				live := &v1alpha1.RoutingPlane{}
				if err := author.Get(ctx, key, live); err != nil {
					return []string{err.Error()}
				}
				change(live)
				return causes(author.Update(ctx, live))
			}
		}
		Eventually(edit(func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Paused = true })).Should(BeEmpty())
		Expect(admin.Get(ctx, key, plane)).To(Succeed())
		Expect(plane.Spec.Rollout.Paused).To(BeTrue())

		forbidden := ConsistOf(HavePrefix("spec.stargate.workloadRef: Forbidden"))
		Expect(edit(func(p *v1alpha1.RoutingPlane) { p.Spec.Stargate.WorkloadRef.Name = "other" })()).To(forbidden)
		Expect(edit(func(p *v1alpha1.RoutingPlane) { p.Spec.Stargate.Container = "sidecar" })()).To(forbidden)
		Expect(edit(func(p *v1alpha1.RoutingPlane) { p.Spec.Gateways[0].Container = "sidecar" })()).
			To(ConsistOf(HavePrefix("spec.gateways[0].workloadRef: Forbidden")))
	})

	It("that is being deleted cannot be turned on another workload", func(ctx context.Context) {
		may(ctx, ns, "planes", jane, writesPlanes)
		author := as("jane")
		plane := newPlane(ns)
		plane.Finalizers = []string{"example.com/unwind"}
		Expect(admin.Create(ctx, plane)).To(Succeed())
		Expect(admin.Delete(ctx, plane)).To(Succeed())
		Eventually(func() []string {
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
			plane.Spec.Stargate.WorkloadRef.Name = "other"
			return causes(author.Update(ctx, plane))
		}).Should(ConsistOf(HavePrefix("spec.stargate.workloadRef: Forbidden")))

		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
		plane.Finalizers = nil
		Expect(author.Update(ctx, plane)).To(Succeed())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Satisfy(apierrors.IsNotFound))
	})

	It("is refused where it would mount over what the container has", func(ctx context.Context) {
		Expect(admin.Create(ctx, workload(&appsv1.StatefulSet{}, ns, "router", "router:0.22.0",
			corev1.VolumeMount{Name: "chart", MountPath: "/etc/routing-operator/"}))).To(Succeed())
		Eventually(func() []string { return causes(admin.Create(ctx, newPlane(ns), client.DryRunAll)) }).Should(ConsistOf(
			And(HavePrefix("spec.stargate.configPath: "), ContainSubstring("container router mounts volume chart at /etc/routing-operator/"))))
	})

	It("is taken with warnings about workloads that are missing or have another plane", func(ctx context.Context) {
		author := as("")
		Expect(author.Create(ctx, newPlane(ns))).To(Succeed())
		Expect(author.warned()).To(ConsistOf(
			ContainSubstring("spec.stargate.workloadRef: there is no StatefulSet %s/router", ns),
			ContainSubstring("spec.gateways[0].workloadRef: there is no Deployment %s/gateway", ns),
		))
		Expect(admin.Create(ctx, workload(&appsv1.StatefulSet{}, ns, "router", "router:0.22.0"))).To(Succeed())
		Expect(admin.Create(ctx, workload(&appsv1.Deployment{}, ns, "gateway", "gateway:1.0.0"))).To(Succeed())
		second := newPlane(ns)
		second.Name = "second"
		second.Spec.Gateways[0].Container = "missing"
		Eventually(func() []string {
			Expect(author.Create(ctx, second.DeepCopy(), client.DryRunAll)).To(Succeed())
			return author.warned()
		}).Should(ConsistOf(
			ContainSubstring("RoutingPlane llm names StatefulSet router too"),
			ContainSubstring("RoutingPlane llm names Deployment gateway too"),
			ContainSubstring(`spec.gateways[0].container: Deployment gateway: its pod template has no container "missing"`),
		))
	})

	It("gets the same verdict in a dry run, and nothing is stored", func(ctx context.Context) {
		plane := newPlane(ns)
		Expect(admin.Create(ctx, plane.DeepCopy(), client.DryRunAll)).To(Succeed())
		Expect(admin.Create(ctx, refusedPlane(ns), client.DryRunAll)).To(Satisfy(apierrors.IsInvalid))
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Satisfy(apierrors.IsNotFound))
	})

	It("that was stored before a rule can be labelled and mended bit by bit, and not made worse", func(ctx context.Context) {
		plane := refusedPlane(ns)
		withoutWebhook(ctx, func() { Expect(admin.Create(ctx, plane)).To(Succeed()) })
		author := as("")
		plane.Labels = map[string]string{"team": "routing"}
		Expect(author.Update(ctx, plane)).To(Succeed())
		plane.Spec.Rollout.Paused = true
		Expect(author.Update(ctx, plane)).To(Succeed())
		Expect(author.warned()).To(ContainElement(And(HavePrefix("spec.stargate.configPath: "), ContainSubstring("tolerated"))))
		plane.Spec.Stargate.ConfigPath = "/etc/elsewhere/again/lb-config.json"
		Expect(causes(author.Update(ctx, plane))).To(ConsistOf(HavePrefix("spec.stargate.configPath: ")))
	})
})

var _ = Describe("A policy", func() {
	var ns string
	var author user
	BeforeEach(func(ctx context.Context) {
		ns = namespace(ctx)
		author = as("")
	})

	// warnings of a dry run, once they are all there: the webhook reads through a cache.
	expectWarnings := func(ctx context.Context, policy *v1alpha1.RoutingPolicy, matchers ...any) {
		GinkgoHelper()
		Eventually(func() []string {
			Expect(author.Create(ctx, policy.DeepCopy(), client.DryRunAll)).To(Succeed())
			return author.warned()
		}).Should(ConsistOf(matchers...))
	}

	It("is taken before its plane, with a warning", func(ctx context.Context) {
		expectWarnings(ctx, newPolicy(ns, "early", "a"),
			ContainSubstring("spec.planeRef: there is no RoutingPlane %s/llm; the policy waits", ns))
	})

	It("is warned of a plane that takes no policies from its namespace", func(ctx context.Context) {
		plane := newPlane(ns)
		Expect(admin.Create(ctx, plane)).To(Succeed())
		team := namespace(ctx)
		policy := newPolicy(team, "foreign", "a")
		policy.Spec.PlaneRef.Namespace = ns
		expectWarnings(ctx, policy, ContainSubstring("takes no policies from namespace %s (its spec.allowedPolicies.namespaces.from is Same)", team))

		plane.Spec.AllowedPolicies.Namespaces = v1alpha1.AllowedNamespaces{
			From: v1alpha1.NamespacesFromSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"models": "yes"}},
		}
		Expect(admin.Update(ctx, plane)).To(Succeed())
		expectWarnings(ctx, policy, ContainSubstring("from is Selector"))
		Expect(admin.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"models":"yes"}}}`)))).To(Succeed())
		expectWarnings(ctx, policy)
	})

	It("is warned of a model that another policy has", func(ctx context.Context) {
		Expect(admin.Create(ctx, newPlane(ns))).To(Succeed())
		Expect(admin.Create(ctx, newPolicy(ns, "older", "a", "b"))).To(Succeed())
		expectWarnings(ctx, newPolicy(ns, "newer", "b", "c"),
			ContainSubstring(`spec.models[0]: model "b" stays with policy %s/older`, ns))
	})

	It("is warned of fields that the running release does not know", func(ctx context.Context) {
		plane := newPlane(ns)
		Expect(admin.Create(ctx, plane)).To(Succeed())
		plane.Status.Stargate = &v1alpha1.WorkloadStatus{Kind: "StatefulSet", Name: "router", Release: "0.18.0"}
		Expect(admin.Status().Update(ctx, plane)).To(Succeed())
		policy := newPolicy(ns, "modern", "a")
		weight, seed := "last-mean-input-tps", "s"
		policy.Spec.Models[0].AlgorithmSettings = v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Pulsar, RendezvousWeight: &weight, Seed: &seed}
		expectWarnings(ctx, policy, And(HavePrefix("spec.models[0].rendezvousWeight: "), ContainSubstring("takes effect from V2 on")))
	})

	It("is warned when the plane's file would outgrow a ConfigMap", func(ctx context.Context) {
		Expect(admin.Create(ctx, newPlane(ns))).To(Succeed())
		seed := strings.Repeat("s", 1000)
		big := func(name string) *v1alpha1.RoutingPolicy {
			policy := newPolicy(ns, name)
			for i := range 256 {
				policy.Spec.Models = append(policy.Spec.Models, v1alpha1.Model{
					Name:              fmt.Sprintf("%s/%s-%d", name, strings.Repeat("m", 480), i),
					AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Pulsar, Seed: &seed},
				})
			}
			return policy
		}
		for _, name := range []string{"one", "two"} {
			Expect(admin.Create(ctx, big(name))).To(Succeed())
		}
		Eventually(func() []string {
			Expect(author.Create(ctx, big("three"), client.DryRunAll)).To(Succeed())
			return author.warned()
		}).Should(ContainElement(And(HavePrefix("spec.models: "), ContainSubstring("no room for the policy's 256 models"), ContainSubstring("a ConfigMap can hold 1032192"))))
	})
})

var _ = Describe("Without the manager", Serial, func() {
	It("policies are taken, planes with a new spec refused, and both can be deleted", func(ctx context.Context) {
		ns := namespace(ctx)
		plane, policy := newPlane(ns), newPolicy(ns, "models", "a")
		plane.Finalizers = []string{"example.com/unwind"}
		Expect(admin.Create(ctx, plane)).To(Succeed())
		manager.end()
		DeferCleanup(func(ctx context.Context) {
			manager = startManager()
			webhookAnswers(ctx)
		})

		Expect(admin.Create(ctx, policy)).To(Succeed())
		policy.Spec.Models = nil
		Expect(admin.Update(ctx, policy)).To(Satisfy(apierrors.IsInvalid), "by the schema")
		Expect(admin.Delete(ctx, policy)).To(Succeed())

		refused := newPlane(ns)
		refused.Name = "new"
		Expect(admin.Create(ctx, refused)).To(MatchError(ContainSubstring(`failed calling webhook "planes.routing.nvcf.io"`)))
		merge := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }
		Expect(admin.Patch(ctx, plane, merge(`{"spec":{"rollout":{"paused":true}}}`))).To(MatchError(ContainSubstring("failed calling webhook")))
		Expect(admin.Patch(ctx, plane, merge(`{"metadata":{"labels":{"team":"routing"}}}`))).To(Succeed())
		Expect(admin.Delete(ctx, plane)).To(Succeed())
		Expect(admin.Patch(ctx, plane, merge(`{"metadata":{"finalizers":null}}`))).To(Succeed())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Satisfy(apierrors.IsNotFound))
	})
})

var _ = Describe("Without the webhook", Serial, func() {
	It("the schema still refuses, and nothing else is asked", func(ctx context.Context) {
		ns := namespace(ctx)
		withoutWebhook(ctx, func() {
			Expect(admin.Create(ctx, refusedPlane(ns))).To(Succeed())
			policy := newPolicy(ns, "wrong", "a")
			flag := false
			policy.Spec.Models[0].LastClusterAffinity = &flag
			Expect(causes(admin.Create(ctx, policy))).To(ConsistOf(
				And(HavePrefix("spec.models[0].lastClusterAffinity: "), ContainSubstring("not supported by algorithm random"))))
		})
	})
})
