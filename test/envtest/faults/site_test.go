package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

const (
	planeName  = "llm"
	policyName = "llama"
)

// site is a namespace with a router and a gateway. Sites are gone through side by side, so that its
// methods return errors and assert nothing.
type site struct {
	namespace string
	// repair ends what the site's pods suffer from.
	repair func()
}

func newSite(ctx context.Context, router fixtures.Stargate, replicas int32) (*site, error) {
	namespace, err := env.Namespace(ctx, "faults")
	if err != nil {
		return nil, err
	}
	s := &site{namespace: namespace, repair: func() {}}
	router.Replicas = &replicas
	gateway := fixtures.GatewayWorkload{Replicas: &replicas}
	for _, objects := range [][]client.Object{router.Objects(namespace), gateway.Objects(namespace)} {
		if err := fixtures.Create(ctx, admin, fixtures.WithoutServices(objects)); err != nil {
			return nil, fmt.Errorf("making a site: %w", err)
		}
	}
	return s, nil
}

// plane of the site, as it is applied.
func (s *site) plane(kind string) *v1alpha1.RoutingPlane {
	return &v1alpha1.RoutingPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: planeName},
		Spec: v1alpha1.RoutingPlaneSpec{
			Stargate: v1alpha1.StargateSpec{
				WorkloadRef: v1alpha1.WorkloadReference{Kind: kind, Name: fixtures.Router}, Container: fixtures.RouterContainer,
			},
			Gateways: []v1alpha1.GatewaySpec{{
				WorkloadRef: v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: fixtures.Gateway}, Container: fixtures.GatewayContainer,
			}},
			Rollout: v1alpha1.RolloutSpec{
				QuietPeriod:   &metav1.Duration{},
				GatewayWarmup: &metav1.Duration{Duration: 200 * time.Millisecond},
				WaveInterval:  &metav1.Duration{Duration: 50 * time.Millisecond},
				Waves:         []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("100%")},
			},
		},
	}
}

// policy of the site, as it is applied.
func (s *site) policy(models ...v1alpha1.Model) *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: policyName},
		Spec:       v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: planeName}, Models: models},
	}
}

// models of a policy; the first has the queue length.
func models(flags bool, queued int64) []v1alpha1.Model {
	var all []v1alpha1.Model
	for _, name := range []string{"a", "b"} {
		m := v1alpha1.Model{Name: name, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.PulsarWaitAndWiden, MaxQueued: new(queued)}}
		if flags {
			m.LastClusterAffinity = new(true)
		}
		all = append(all, m)
	}
	return all
}

// repolicy replaces the models of the site's policy.
func (s *site) repolicy(ctx context.Context, models []v1alpha1.Model) error {
	return edit(ctx, s.policy(), func(p *v1alpha1.RoutingPolicy) { p.Spec.Models = models })
}

// edit the object as it is stored.
func edit[T client.Object](ctx context.Context, object T, change func(T)) error {
	return retry.RetryOnConflict(wait.Backoff{Steps: 100, Duration: 5 * time.Millisecond}, func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change(object)
		return admin.Update(ctx, object)
	})
}

// breakNewFiles lets the router's pods exit with every file but the one that runs, until the site is repaired.
func (s *site) breakNewFiles(ctx context.Context) error {
	router := s.deployment(fixtures.Router)
	if err := admin.Get(ctx, client.ObjectKeyFromObject(router), router); err != nil {
		return fmt.Errorf("reading the file that runs: %w", err)
	}
	good := fileOf(&router.Spec.Template.Spec)
	s.repair = kubelet.When(func(pod *corev1.Pod) bool {
		return pod.Namespace == s.namespace && pod.Spec.Containers[0].Name == fixtures.RouterContainer && fileOf(&pod.Spec) != good
	}, func(b *standin.Behaviour) { b.Crash = "wait-and-widen config does not support field(s): sample_count" })
	return nil
}

// hold keeps pods that match from becoming ready, until the site is repaired.
func (s *site) hold(match func(*corev1.Pod) bool) {
	s.repair = kubelet.When(func(pod *corev1.Pod) bool { return pod.Namespace == s.namespace && match(pod) },
		func(b *standin.Behaviour) { b.Unready = true })
}

func (s *site) deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
}

// fileOf is the revision that the router's containers get.
func fileOf(spec *corev1.PodSpec) string {
	return mounted(spec, &spec.Containers[0], "/etc/routing-operator")
}

// conditions of the site's plane or policy that are of its present generation, as TYPE=STATUS and its reason.
func conditions(object client.Object) map[string]string {
	var all []metav1.Condition
	switch o := object.(type) {
	case *v1alpha1.RoutingPlane:
		all = o.Status.Conditions
	case *v1alpha1.RoutingPolicy:
		all = o.Status.Conditions
	}
	present := map[string]string{}
	for i := range all {
		if all[i].ObservedGeneration == object.GetGeneration() {
			present[all[i].Type+"="+string(all[i].Status)] = all[i].Reason
		}
	}
	return present
}

// await polls what the watches have of the site until the check has no objection any more.
func (s *site) await(ctx context.Context, check func(objects []client.Object) (objection string)) error {
	objection, looked := "nothing seen", -1
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		objects, changes := recorded.objects(s.namespace)
		if changes != looked {
			looked, objection = changes, check(objects)
		}
		return objection == "", nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s: %w: %s", s.namespace, err, objection)
	}
	return nil
}

// settle is await for checks that would take the state before what was just asked for the end.
func (s *site) settle(ctx context.Context, check func(objects []client.Object) (objection string)) error {
	if err := recorded.catchUp(ctx, s.namespace); err != nil {
		return err
	}
	return s.await(ctx, check)
}

// has tells whether the plane, and the policy where there is one, have the condition, such as Ready=True.
func has(planeCondition, policyCondition string) func([]client.Object) string {
	return func(objects []client.Object) string {
		var missing []string
		for _, o := range objects {
			wanted := map[bool]string{true: planeCondition, false: policyCondition}
			_, isPlane := o.(*v1alpha1.RoutingPlane)
			_, isPolicy := o.(*v1alpha1.RoutingPolicy)
			if _, ok := conditions(o)[wanted[isPlane]]; !ok && (isPlane || isPolicy) {
				missing = append(missing, fmt.Sprintf("%T %s is not %s: %v", o, o.GetName(), wanted[isPlane], conditions(o)))
			}
		}
		return strings.Join(missing, "; ")
	}
}

// close ends what runs for the site, shows what was broken in it, and forgets it.
func (s *site) close(ctx context.Context) (*judge, error) {
	s.repair()
	if err := recorded.catchUp(ctx, s.namespace); err != nil {
		return nil, err
	}
	j := judged(recorded.changes(s.namespace))
	var errs []error
	for _, v := range j.broken {
		errs = append(errs, fmt.Errorf("namespace %s: %s", s.namespace, v))
	}
	recorded.forget(s.namespace)
	return j, errors.Join(errs...)
}
