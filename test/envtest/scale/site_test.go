package scale

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

// makePlane makes a router and a gateway of one replica each, and a plane of that name in front of them.
func makePlane(ctx context.Context, namespace, name string, change ...func(*v1alpha1.RoutingPlane)) *v1alpha1.RoutingPlane {
	GinkgoHelper()
	router := fixtures.Stargate{Name: name + "-router", Replicas: new(int32(1))}.Objects(namespace)
	gateway := fixtures.GatewayWorkload{Name: name + "-gateway", Replicas: new(int32(1))}.Objects(namespace)
	plane := &v1alpha1.RoutingPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.RoutingPlaneSpec{
			Stargate: v1alpha1.StargateSpec{WorkloadRef: deployment(router[0]), Container: fixtures.RouterContainer},
			Gateways: []v1alpha1.GatewaySpec{{WorkloadRef: deployment(gateway[0]), Container: fixtures.GatewayContainer}},
			Rollout: v1alpha1.RolloutSpec{
				GatewayWarmup: &metav1.Duration{}, WaveInterval: &metav1.Duration{}, Waves: []intstr.IntOrString{intstr.FromString("100%")},
			},
		},
	}
	for _, f := range change {
		f(plane)
	}
	for _, objects := range [][]client.Object{router, gateway} {
		Expect(fixtures.Create(ctx, admin, fixtures.WithoutServices(objects))).To(Succeed())
	}
	Expect(admin.Create(ctx, plane)).To(Succeed())
	return plane
}

func deployment(object client.Object) v1alpha1.WorkloadReference {
	return v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: object.GetName()}
}

func policy(namespace, plane, name string, models ...v1alpha1.Model) *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: plane}, Models: models},
	}
}

// model is one with the settings that real ones have.
func model(name string, flag bool) v1alpha1.Model {
	m := v1alpha1.Model{Name: name, AlgorithmSettings: v1alpha1.AlgorithmSettings{
		Algorithm: v1alpha1.PulsarWaitAndWiden, Seed: new("seed-" + name), RequireCacheAffinityKey: new(true),
		CacheAffinityWaitMs: new(int64(300)), CacheAffinityInputTokensScale: new(v1alpha1.Decimal("0.1")), MaxQueued: new(int64(4)),
	}}
	if flag {
		m.LastClusterAffinity = new(true)
	}
	return m
}

// unsettled counts the planes and policies that are not ready in their present generation.
func unsettled(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		var planes v1alpha1.RoutingPlaneList
		if err := admin.List(ctx, &planes); err != nil {
			return "", fmt.Errorf("listing planes: %w", err)
		}
		var policies v1alpha1.RoutingPolicyList
		if err := admin.List(ctx, &policies); err != nil {
			return "", fmt.Errorf("listing policies: %w", err)
		}
		busy := [2]int{}
		for i := range planes.Items {
			if p := &planes.Items[i]; !ready(p.Status.Conditions, p.Generation) {
				busy[0]++
			}
		}
		for i := range policies.Items {
			if p := &policies.Items[i]; !ready(p.Status.Conditions, p.Generation) {
				busy[1]++
			}
		}
		return fmt.Sprintf("%d planes and %d policies are not ready", busy[0], busy[1]), nil
	}
}

const allSettled = "0 planes and 0 policies are not ready"

func ready(conditions []metav1.Condition, generation int64) bool {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
}

// quiet waits until the operator has written nothing for a while.
func quiet() {
	GinkgoHelper()
	const while = 3 * time.Second
	from, since := mark(), time.Now()
	Eventually(func() time.Duration {
		if now := mark(); len(written(from)) > 0 {
			from, since = now, time.Now()
		}
		return time.Since(since)
	}).Should(BeNumerically(">", while))
}

// templates that the plane's router has had.
func templates(ctx context.Context, plane *v1alpha1.RoutingPlane) string {
	GinkgoHelper()
	router := &appsv1.Deployment{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: plane.Namespace, Name: plane.Spec.Stargate.WorkloadRef.Name}, router)).To(Succeed())
	return router.Annotations["deployment.kubernetes.io/revision"]
}
