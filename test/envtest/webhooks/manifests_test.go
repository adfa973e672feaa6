package webhooks

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

var _ = Describe("The manifests", func() {
	DescribeTable("build, and the API server takes every object", func(ctx context.Context, folder string) {
		objects := built(folder)
		Expect(objects).NotTo(BeEmpty())
		for _, object := range objects {
			if object.GroupVersionKind().Group == "cert-manager.io" {
				continue // not a kind of this API server
			}
			if object.GetKind() == "ValidatingWebhookConfiguration" {
				object.SetName("as-shipped") // the installed one has URLs, see install
			}
			Expect(admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("manifests"), client.ForceOwnership, client.DryRunAll)).
				To(Succeed(), "%s %s", object.GetKind(), object.GetName())
		}
	},
		Entry("by default", "config/default"),
		Entry("with cert-manager", "config/overlays/cert-manager"),
		Entry("with a network policy", "config/overlays/network-policy"),
	)

	It("give the manager no right to certificates where cert-manager makes them", func() {
		var kinds []string
		for _, object := range built("config/overlays/cert-manager") {
			kinds = append(kinds, object.GetKind()+"/"+object.GetName())
			switch object.GetKind() {
			case "ValidatingWebhookConfiguration":
				Expect(object.GetAnnotations()).To(HaveKeyWithValue("cert-manager.io/inject-ca-from", ownNamespace+"/routing-operator-webhook"))
			case "Deployment":
				Expect(deployment(object).Spec.Template.Spec.Containers[0].Args).To(ConsistOf(HavePrefix("--webhook-cert-dir=")))
			}
		}
		Expect(kinds).To(ContainElements("Certificate/routing-operator-webhook", "ClusterRole/routing-operator"))
		Expect(kinds).NotTo(ContainElement(HaveSuffix("-certificates")))
	})

	It("leave the bundle that the manager wrote alone when they are applied again", func(ctx context.Context) {
		key := client.ObjectKey{Name: "routing-operator"}
		bundles := func() (list []string) {
			live := &admissionv1.ValidatingWebhookConfiguration{}
			Expect(admin.Get(ctx, key, live)).To(Succeed())
			for i := range live.Webhooks {
				list = append(list, string(live.Webhooks[i].ClientConfig.CABundle))
			}
			return list
		}
		before := bundles()
		Expect(before).To(HaveEach(ContainSubstring("BEGIN CERTIFICATE")))
		install(ctx, webhookConfiguration())
		Expect(bundles()).To(Equal(before), "server-side")

		shipped := webhookConfiguration()
		callHere(shipped)
		text, err := shipped.MarshalJSON()
		Expect(err).NotTo(HaveOccurred())
		apply := env.Kubectl(ctx, "apply", "--filename=-")
		apply.Stdin = bytes.NewReader(text)
		output, err := apply.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", output)
		Expect(bundles()).To(Equal(before), "client-side")
	})

	It("can be put into another namespace", func() {
		folder := GinkgoT().TempDir()
		base, err := filepath.Rel(folder, filepath.Join(env.Root, "config", "default"))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte("namespace: elsewhere\nresources: ["+base+"]\n"), 0o600)).To(Succeed())
		objects := built(folder)
		Expect(objects).NotTo(BeEmpty())
		for _, object := range objects {
			text, err := object.MarshalJSON()
			Expect(err).NotTo(HaveOccurred())
			Expect(string(text)).NotTo(ContainSubstring(ownNamespace))
		}
	})

	It("run the manager as restricted pods", func(ctx context.Context) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: "manager"}}
		for _, object := range built("config/default") {
			if object.GetKind() == "Deployment" {
				pod.Spec = deployment(object).Spec.Template.Spec
			}
		}
		pod.Spec.Containers[0].SecurityContext.RunAsUser = nil
		Expect(admin.Create(ctx, pod.DeepCopy(), client.DryRunAll)).To(Succeed())
		pod.Spec.Containers[0].SecurityContext.Capabilities = nil
		Expect(admin.Create(ctx, pod, client.DryRunAll)).To(MatchError(ContainSubstring("violates PodSecurity")))
	})

	It("have samples that are taken without a warning that a newer Stargate or another setting would spare", func(ctx context.Context) {
		Expect(client.IgnoreAlreadyExists(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nvcf"}}))).To(Succeed())
		author := as("")
		samples := built("config/samples")
		Expect(samples).To(HaveLen(9))
		for _, sample := range samples {
			Expect(author.Create(ctx, sample)).To(Succeed(), "%s", sample.GetName())
			DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, sample)).To(Succeed()) })
			if sample.GetKind() != "RoutingPlane" {
				Expect(author.warned()).To(haveOnly(ContainSubstring("let function metadata override")), "%s", sample.GetName())
				continue
			}
			Expect(author.warned()).To(haveOnly(ContainSubstring("the plane waits until there is one")))
			Expect(admin.Status().Patch(ctx, sample, client.RawPatch(types.MergePatchType,
				[]byte(`{"status":{"stargate":{"kind":"Deployment","name":"llm-request-router","release":"V3"}}}`)))).To(Succeed())
			Eventually(func() []string {
				probe := newPolicy("nvcf", "probe", "a")
				probe.Spec.Models[0].AlgorithmSettings = v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.WaitAndWiden, LastClusterAffinity: new(true)}
				Expect(author.Create(ctx, probe, client.DryRunAll)).To(Succeed())
				return author.warned()
			}).ShouldNot(ContainElement(Or(ContainSubstring("before V3"), ContainSubstring("there is no RoutingPlane"))), "the webhook sees the plane and its release")
		}
		adoption, err := os.ReadFile(filepath.Join(env.Root, "config", "samples", "adoption", "plane.yaml"))
		Expect(err).NotTo(HaveOccurred())
		for _, object := range decode(bytes.NewReader(adoption)) {
			Expect(author.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("manifests"), client.ForceOwnership, client.DryRunAll)).To(Succeed())
			Expect(author.warned()).To(haveOnly(Or(
				ContainSubstring("the plane waits until there is one"), ContainSubstring("let function metadata override"), ContainSubstring("before V2"))))
		}
	})
})

func deployment(object *unstructured.Unstructured) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	ExpectWithOffset(1, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d)).To(Succeed())
	return d
}

// haveOnly elements that match, or none.
func haveOnly(matcher gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return Or(BeEmpty(), HaveEach(matcher))
}
