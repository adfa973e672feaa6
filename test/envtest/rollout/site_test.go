package rollout

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

const planeName = "llm"

// site is a namespace with a router and gateways, watched from its first pod on.
type site struct {
	ctx       context.Context
	namespace string
	router    client.Object
	gateways  []client.Object

	mutex  sync.Mutex
	broken []string
	// serving: every pod has had a file that it took, so that from now on none may exit.
	serving bool
	// unguarded switches the watch off, where a test breaks the order by its own hand.
	unguarded bool
}

// layout of a site; the zero value is one gateway and a router as a Deployment, two replicas each, whose arguments
// name the operator's file.
type layout struct {
	router   fixtures.Stargate
	claims   []corev1.PersistentVolumeClaim // for each pod of a router that is a StatefulSet
	gateways []fixtures.GatewayWorkload
}

func newSite(ctx context.Context, l layout) *site {
	GinkgoHelper()
	namespace, err := env.Namespace(ctx, "rollout")
	Expect(err).NotTo(HaveOccurred())
	s := &site{ctx: context.WithoutCancel(ctx), namespace: namespace} // of use beyond a BeforeEach
	stop := kubelet.Observe(namespace, s.watch)
	DeferCleanup(func() {
		stop()
		s.mutex.Lock()
		defer s.mutex.Unlock()
		Expect(s.broken).To(BeEmpty(), "the order that must hold")
	})
	if l.router.Replicas == nil {
		l.router.Replicas = ptr.To[int32](2)
	}
	objects := l.router.Objects(namespace)
	if set, ok := objects[0].(*appsv1.StatefulSet); ok {
		set.Spec.VolumeClaimTemplates = l.claims
	}
	s.router = s.create(objects)
	if l.gateways == nil {
		l.gateways = []fixtures.GatewayWorkload{{}}
	}
	for _, gateway := range l.gateways {
		if gateway.Replicas == nil {
			gateway.Replicas = ptr.To[int32](2)
		}
		s.gateways = append(s.gateways, s.create(gateway.Objects(namespace)))
	}
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			s.dump(ctx)
		}
	})
	return s
}

func (s *site) create(objects []client.Object) client.Object {
	GinkgoHelper()
	Expect(fixtures.Create(s.ctx, admin, objects)).To(Succeed())
	return objects[0]
}

// watch judges every state of the namespace's pods as it occurs.
func (s *site) watch(pods []standin.Snapshot) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.unguarded {
		return
	}
	var flagged, forgetful, remembering, old []string
	for _, pod := range pods {
		if strings.HasPrefix(pod.Owner, "RoutingPlane/") {
			continue // serves nobody
		}
		if s.serving && pod.Restarts > 0 && !pod.Terminating {
			s.broken = append(s.broken, pod.Name+" exited")
		}
		if !pod.Running {
			continue
		}
		switch pod.Kind {
		case standin.Router:
			if len(pod.Flags) > 0 {
				flagged = append(flagged, pod.Name)
			}
			if pod.Generation < release.V3 {
				old = append(old, pod.Name)
			}
		case standin.Gateway:
			if pod.Memory {
				remembering = append(remembering, pod.Name)
			} else {
				forgetful = append(forgetful, pod.Name)
			}
		}
	}
	if len(flagged) > 0 && len(forgetful) > 0 {
		s.broken = append(s.broken, fmt.Sprintf("I1: flags are on in %v while %v forget", flagged, forgetful))
	}
	if len(remembering) > 0 && len(old) > 0 {
		s.broken = append(s.broken, fmt.Sprintf("I2: the memory is on in %v while %v do not know the header", remembering, old))
	}
	if rolling := mixed(pods); len(rolling) > 1 {
		s.broken = append(s.broken, fmt.Sprintf("I3: %v roll at once", rolling))
	}
}

// mixed are the workloads whose pods that are to stay differ in what the operator gave them.
func mixed(pods []standin.Snapshot) []string {
	given := map[string]map[string]bool{}
	for _, pod := range pods {
		if !pod.Running || pod.Terminating || pod.Kind == standin.Other {
			continue
		}
		if given[pod.Owner] == nil {
			given[pod.Owner] = map[string]bool{}
		}
		given[pod.Owner][string(pod.File)+fmt.Sprint(pod.Memory)] = true
	}
	var rolling []string
	for owner, variants := range given {
		if len(variants) > 1 {
			rolling = append(rolling, owner)
		}
	}
	slices.Sort(rolling)
	return rolling
}

// plane of the site with everything quick.
func (s *site) plane(change ...func(*v1alpha1.RoutingPlane)) *v1alpha1.RoutingPlane {
	GinkgoHelper()
	plane := &v1alpha1.RoutingPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: planeName},
		Spec: v1alpha1.RoutingPlaneSpec{
			Stargate: v1alpha1.StargateSpec{
				WorkloadRef: reference(s.router),
				Container:   fixtures.RouterContainer,
			},
			Rollout: v1alpha1.RolloutSpec{
				QuietPeriod:   &metav1.Duration{Duration: 200 * time.Millisecond},
				GatewayWarmup: &metav1.Duration{},
				WaveInterval:  &metav1.Duration{},
				Waves:         []intstr.IntOrString{intstr.FromString("100%")},
			},
		},
	}
	for _, gateway := range s.gateways {
		plane.Spec.Gateways = append(plane.Spec.Gateways, v1alpha1.GatewaySpec{WorkloadRef: reference(gateway), Container: fixtures.GatewayContainer})
	}
	for _, f := range change {
		f(plane)
	}
	Expect(admin.Create(s.ctx, plane)).To(Succeed())
	return plane
}

func reference(workload client.Object) v1alpha1.WorkloadReference {
	return v1alpha1.WorkloadReference{Kind: kindOf(workload), Name: workload.GetName()}
}

func kindOf(workload client.Object) string {
	if _, ok := workload.(*appsv1.StatefulSet); ok {
		return v1alpha1.KindStatefulSet
	}
	return v1alpha1.KindDeployment
}

// policy for models, each of which may be changed.
func (s *site) policy(name string, models ...v1alpha1.Model) *v1alpha1.RoutingPolicy {
	GinkgoHelper()
	policy := &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: planeName}, Models: models},
	}
	Expect(admin.Create(s.ctx, policy)).To(Succeed())
	return policy
}

func plain(name string) v1alpha1.Model {
	return v1alpha1.Model{Name: name, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.PulsarWaitAndWiden, MaxQueued: ptr.To[int64](4)}}
}

func flagged(name string) v1alpha1.Model {
	m := plain(name)
	m.LastClusterAffinity = new(true)
	return m
}

// change the object as it is stored.
func change[T client.Object](s *site, object T, f func(T)) {
	GinkgoHelper()
	Eventually(func() error {
		if err := admin.Get(s.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		f(object)
		return admin.Update(s.ctx, object)
	}).Should(Succeed())
}

// settled waits until the policies and then the plane say so of their present generation, and until the pods from before
// are gone. In this order: the plane may still be ready from before the policies were made.
func (s *site) settled(policies ...*v1alpha1.RoutingPolicy) {
	GinkgoHelper()
	for _, policy := range policies {
		s.conditioned(policy, v1alpha1.ConditionReady, "True", "")
	}
	s.conditioned(s.stored(), v1alpha1.ConditionReady, "True", "")
	s.drained()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.serving = true
}

// drained waits until no pod is ending, and the stand-in, which may hear of that later than the operator, knows as much.
func (s *site) drained() {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(admin.List(s.ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
		var there, run []types.UID
		for i := range list.Items {
			g.Expect(list.Items[i].DeletionTimestamp).To(BeNil(), list.Items[i].Name)
			there = append(there, list.Items[i].UID)
		}
		for _, pod := range kubelet.Pods(s.namespace) {
			run = append(run, pod.UID)
		}
		g.Expect(run).To(ConsistOf(there))
	}).Should(Succeed())
}

// unwatched: from now on the test itself breaks the order.
func (s *site) unwatched() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.unguarded = true
}

// stored is the plane, to be read.
func (s *site) stored() *v1alpha1.RoutingPlane {
	return &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: planeName}}
}

// conditioned waits until the object's condition of its present generation has the status and, where given, the reason.
func (s *site) conditioned(object client.Object, kind, status, reason string) {
	GinkgoHelper()
	Eventually(func() string {
		if err := admin.Get(s.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err.Error()
		}
		var conditions []metav1.Condition
		switch o := object.(type) {
		case *v1alpha1.RoutingPlane:
			conditions = o.Status.Conditions
		case *v1alpha1.RoutingPolicy:
			conditions = o.Status.Conditions
		}
		c := meta.FindStatusCondition(conditions, kind)
		switch {
		case c == nil || c.ObservedGeneration != object.GetGeneration():
			return "not observed yet"
		case string(c.Status) == status && (reason == "" || c.Reason == reason):
			return "ok"
		}
		return fmt.Sprintf("%s is %s for %s: %s", kind, c.Status, c.Reason, c.Message)
	}).Should(Equal("ok"), "%s of %T %s", kind, object, object.GetName())
}

// rollouts counts the templates that the workload has had.
func (s *site) rollouts(workload client.Object) int {
	GinkgoHelper()
	fresh := workload.DeepCopyObject().(client.Object)
	Expect(admin.Get(s.ctx, client.ObjectKeyFromObject(workload), fresh)).To(Succeed())
	if kindOf(workload) == v1alpha1.KindDeployment {
		n, err := strconv.Atoi(fresh.GetAnnotations()["deployment.kubernetes.io/revision"])
		Expect(err).NotTo(HaveOccurred())
		return n
	}
	var list appsv1.ControllerRevisionList
	Expect(admin.List(s.ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
	last := 0
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], fresh) {
			last = max(last, int(list.Items[i].Revision))
		}
	}
	return last
}

// counts are the rollouts of the router and of each gateway.
func (s *site) counts() []int {
	GinkgoHelper()
	counts := []int{s.rollouts(s.router)}
	for _, gateway := range s.gateways {
		counts = append(counts, s.rollouts(gateway))
	}
	return counts
}

// since is how many rollouts there were more than before.
func (s *site) since(before []int) []int {
	GinkgoHelper()
	now := s.counts()
	for i := range now {
		now[i] -= before[i]
	}
	return now
}

// staying are the router pods that do not drain.
func (s *site) staying() []standin.Snapshot {
	return slices.DeleteFunc(kubelet.Pods(s.namespace), func(pod standin.Snapshot) bool { return pod.Kind != standin.Router || pod.Terminating })
}

// files are what those run, in one word each.
func (s *site) files() []string {
	var files []string
	for _, pod := range s.staying() {
		files = append(files, string(bytes.TrimSpace(pod.File)))
	}
	return files
}

// flagsOn are the models whose flag is on in every one of those.
func (s *site) flagsOn() []string {
	on := map[string]int{}
	pods := s.staying()
	for _, pod := range pods {
		for _, flag := range pod.Flags {
			on[flag.Model]++
		}
	}
	models := []string{}
	for model, n := range on {
		if n == len(pods) {
			models = append(models, model)
		}
	}
	slices.Sort(models)
	return models
}

// memories counts the gateway pods that remember, and all.
func (s *site) memories() (on, all int) {
	for _, pod := range kubelet.Pods(s.namespace) {
		if pod.Kind == standin.Gateway {
			all++
			if pod.Memory {
				on++
			}
		}
	}
	return on, all
}

func (s *site) revisions() []corev1.ConfigMap {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(admin.List(s.ctx, &list, client.InNamespace(s.namespace), client.MatchingLabels{"app.kubernetes.io/managed-by": "routing-operator"})).To(Succeed())
	return list.Items
}

// dump shows what there is when a test has failed.
func (s *site) dump(ctx context.Context) {
	for _, what := range []string{"routingplanes", "routingpolicies", "deployments,statefulsets", "events.events.k8s.io"} {
		out, _ := env.Kubectl(ctx, "get", "-n", s.namespace, what, "-o", "yaml", "--show-managed-fields=false").CombinedOutput()
		AddReportEntry(what, string(out))
	}
	out, _ := env.Kubectl(ctx, "get", "-n", s.namespace, "pods,configmaps", "-o", "wide").CombinedOutput()
	AddReportEntry("pods", string(out))
}

// told are the plane's events of the reason, one entry for each time.
func (s *site) told(reason string) (notes []string) {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(admin.List(s.ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
	for i := range list.Items {
		e := &list.Items[i]
		if e.Reason != reason || e.Regarding.Kind != "RoutingPlane" {
			continue
		}
		times := 1
		if e.Series != nil {
			times = int(e.Series.Count)
		}
		notes = append(notes, slices.Repeat([]string{e.Note}, times)...)
	}
	return notes
}

func (s *site) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}
