package controllers

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// Options of the controllers.
type Options struct {
	// Releases tells the generation of a release.
	Releases release.Table
	// Validation is what the admission webhook validates with too.
	Validation validate.Options
	// Clock is read once per pass. Default: the real one.
	Clock clock.PassiveClock
	// PlaneWorkers and PolicyWorkers are the numbers of passes that run side by side; what a pass takes is waiting
	// for the API server. Default 8 each.
	PlaneWorkers, PolicyWorkers int
	// StaleReads says that reads may not see the writes before them: Configure cannot have it otherwise in a manager
	// that is limited to several namespaces. Every write of the status is then looked at once more.
	StaleReads bool
	// MetricsTransport reads the metrics of Stargate's pods. Default: NewMetricsTransport.
	MetricsTransport http.RoundTripper
	// SkipNameValidation lets several managers of one process have controllers of the same name.
	SkipNameValidation bool
}

// Configure sets what the controllers ask of a manager's cache and client: little in memory, and reads that see
// the writes before them.
func Configure(o *ctrl.Options) {
	shared := cache.ByObject{Transform: strip, UnsafeDisableDeepCopy: new(true)}
	if o.Cache.ByObject == nil {
		o.Cache.ByObject = map[client.Object]cache.ByObject{}
	}
	for _, object := range []client.Object{
		&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.ReplicaSet{}, &appsv1.ControllerRevision{}, &corev1.Pod{}, &corev1.Namespace{},
	} {
		o.Cache.ByObject[object] = shared
	}
	own := shared
	own.Label = labels.SelectorFromSet(labels.Set{labelManagedBy: workload.FieldManager})
	o.Cache.ByObject[&corev1.ConfigMap{}] = own
	o.Cache.DefaultTransform = cache.TransformStripManagedFields()
	if o.Client.Cache == nil {
		o.Client.Cache = &client.CacheOptions{}
	}
	o.Client.Cache.EnableReadYourWritesConsistency = new(len(o.Cache.DefaultNamespaces) <= 1)
}

// strip is the transform of the caches of everything that is not the operator's own kind.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Namespace:
		o.ManagedFields, o.Annotations = nil, nil
	case *corev1.ConfigMap:
		o.ManagedFields = nil
	case *appsv1.ControllerRevision:
		if _, err := history.Decode(o); err != nil {
			return nil, err
		}
	}
	return workload.Strip(object)
}

// Setup adds the controllers to the manager, which was made with Configure and has the indexes of internal/index.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client for the logs of pods: %w", err)
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	outcomes := newOutcomes()
	planes := &PlaneReconciler{
		Client: mgr.GetClient(), Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Logs: podLogs{clientset}, scraper: newScraper(o.MetricsTransport),
		Recorder: mgr.GetEventRecorder("routing-operator"), Clock: o.Clock, Releases: o.Releases, Validation: o.Validation,
		outcomes: outcomes, memories: newMemories(), metrics: planeMetricsOn(metrics.Registry),
	}
	if err := planes.setup(mgr, o); err != nil {
		return err
	}
	policies := &PolicyReconciler{
		Client: mgr.GetClient(), Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("routing-operator"), Clock: o.Clock,
		Releases: o.Releases, outcomes: outcomes,
	}
	return policies.setup(mgr, o)
}

func controllerOptions(workers int, o Options) controller.Options {
	if workers == 0 {
		workers = 8
	}
	return controller.Options{
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      new(o.SkipNameValidation),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](20*time.Millisecond, 2*time.Minute),
	}
}

// Names of the field indexes.
const (
	indexPlane   = "plane"   // of policies' revisions: the plane that the accepted spec names
	indexOwner   = "owner"   // of ReplicaSets, ControllerRevisions and pods: the controller, see ownerKeys
	indexManaged = "managed" // of workloads: the plane in their annotation
)

// fieldIndexes are everything by which the controllers find objects.
var fieldIndexes = []struct {
	object client.Object
	name   string
	keys   client.IndexerFunc
}{
	{&appsv1.ControllerRevision{}, indexPlane, func(o client.Object) []string {
		if plane, ok := planeOfRevision(o.(*appsv1.ControllerRevision)); ok {
			return []string{plane.String()}
		}
		return nil
	}},
	{&appsv1.ControllerRevision{}, indexOwner, ownerKeys},
	{&appsv1.ReplicaSet{}, indexOwner, ownerKeys},
	{&corev1.Pod{}, indexOwner, ownerKeys},
	{&appsv1.Deployment{}, indexManaged, managedKeys},
	{&appsv1.StatefulSet{}, indexManaged, managedKeys},
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range fieldIndexes {
		if err := indexer.IndexField(ctx, index.object, index.name, index.keys); err != nil {
			return fmt.Errorf("adding the index %q of %T: %w", index.name, index.object, err)
		}
	}
	return nil
}

// ownerKeys finds an object by the UID of its controller and, for a pod, also by the name of the workload that
// made it: a pod outlives a ReplicaSet or StatefulSet that was deleted, and then its owner's UID leads nowhere.
func ownerKeys(o client.Object) []string {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil {
		return nil
	}
	keys := []string{string(owner.UID)}
	if _, isPod := o.(*corev1.Pod); isPod {
		if ref, ok := madeBy(o, owner); ok {
			keys = append(keys, workloadKey(ref))
		}
	}
	return keys
}

// madeBy is the workload that a pod's owner reference speaks of: a Deployment's ReplicaSet is named after it and the
// hash of its template.
func madeBy(pod client.Object, owner *metav1.OwnerReference) (v1alpha1.WorkloadReference, bool) {
	switch owner.Kind {
	case v1alpha1.KindStatefulSet:
		return v1alpha1.WorkloadReference{Kind: owner.Kind, Name: owner.Name}, true
	case "ReplicaSet":
		name, ok := strings.CutSuffix(owner.Name, "-"+pod.GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey])
		return v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: name}, ok
	}
	return v1alpha1.WorkloadReference{}, false
}

// workloadKey is rollout.Workload's Key.
func workloadKey(ref v1alpha1.WorkloadReference) string { return ref.Kind + "/" + ref.Name }

func managedKeys(o client.Object) []string {
	if plane, ok := o.GetAnnotations()[workload.AnnotationPlane]; ok {
		return []string{plane}
	}
	return nil
}

// planeOfRevision is the plane that an accepted spec is for.
func planeOfRevision(r *appsv1.ControllerRevision) (types.NamespacedName, bool) {
	owner := metav1.GetControllerOfNoCopy(r)
	if owner == nil || owner.Kind != history.Kind {
		return types.NamespacedName{}, false
	}
	spec, err := history.Spec(r)
	if err != nil {
		return types.NamespacedName{}, false
	}
	return history.PlaneOf(r.Namespace, spec), true
}
