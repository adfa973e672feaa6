// Package crd applies objects to a real API server that has the CRDs and nothing else of the operator: what it
// refuses holds in a cluster without the webhook too.
package crd

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
)

func TestCRDs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "CRDs")
}

const namespace = "nvcf"

var (
	env    *testenv.Environment
	server client.Client // without warnings
)

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	server = newClient(rest.NoWarnings{})
	Expect(server.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
})

func newClient(warnings rest.WarningHandler) client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(env.Config)
	config.WarningHandler = warnings
	c, err := client.New(config, client.Options{Scheme: platform.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func policy(name string, spec v1alpha1.RoutingPolicySpec) *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: spec}
}

func plane(name string, spec v1alpha1.RoutingPlaneSpec) *v1alpha1.RoutingPlane {
	return &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: spec}
}

// raw makes an object that need not fit the Go types.
func raw(kind, name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	var parsed map[string]any
	Expect(json.Unmarshal([]byte(spec), &parsed)).To(Succeed())
	u.Object["spec"] = parsed
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// causes returns what an Invalid answer of the API server says, as "path: problem".
func causes(err error) []string {
	GinkgoHelper()
	if err == nil {
		return nil
	}
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	var status apierrors.APIStatus
	Expect(errors.As(err, &status)).To(BeTrue())
	var list []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "<nil>" {
			continue // "some validation rules were not checked because the object was invalid"
		}
		list = append(list, cause.Field+": "+cause.Message)
	}
	return list
}
