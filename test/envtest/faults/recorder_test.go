package faults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// change is what a watch reported: an object as it was from a resourceVersion on, or that it was gone.
type change struct {
	version uint64
	gone    bool
	object  client.Object
}

func (c change) String() string {
	verb := "changed"
	if c.gone {
		verb = "gone"
	}
	return fmt.Sprintf("%T %s %s at resourceVersion %d", c.object, c.object.GetName(), verb, c.version)
}

// recorder keeps every change of the objects that a plane is about, by namespace. The API server numbers the changes
// of all kinds in one sequence, so that sorting them gives the history as it was.
type recorder struct {
	stop    func()
	mutex   sync.Mutex
	history map[string][]change
	present map[string]map[types.UID]client.Object
}

func recordedKinds() []client.ObjectList {
	return []client.ObjectList{
		&corev1.PodList{}, &corev1.ConfigMapList{}, &appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.ReplicaSetList{},
		&appsv1.ControllerRevisionList{},
		&v1alpha1.RoutingPlaneList{}, &v1alpha1.RoutingPolicyList{},
	}
}

func startRecorder(ctx context.Context) (*recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &recorder{history: map[string][]change{}, present: map[string]map[types.UID]client.Object{}}
	var running sync.WaitGroup
	r.stop = func() {
		cancel()
		running.Wait()
	}
	for _, list := range recordedKinds() {
		if err := admin.List(ctx, list); err != nil {
			r.stop()
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
		watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), watches{list})
		if err != nil {
			r.stop()
			return nil, fmt.Errorf("watching %T: %w", list, err)
		}
		running.Go(func() {
			for event := range watcher.ResultChan() {
				r.note(event)
			}
		})
	}
	return r, nil
}

// watches of a kind, for a watcher that begins anew where the connection ended.
type watches struct{ list client.ObjectList }

func (w watches) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return admin.Watch(ctx, w.list, &client.ListOptions{Raw: &options})
}

func (r *recorder) note(event watch.Event) {
	object, ok := event.Object.(client.Object)
	if !ok || event.Type == watch.Bookmark {
		return
	}
	version, namespace := versionOf(object), object.GetNamespace()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.present[namespace] == nil {
		r.present[namespace] = map[types.UID]client.Object{}
	}
	if event.Type == watch.Deleted {
		delete(r.present[namespace], object.GetUID())
	} else {
		r.present[namespace][object.GetUID()] = object
	}
	r.history[namespace] = append(r.history[namespace], change{version, event.Type == watch.Deleted, object})
}

// versionOf is 0 where there is none; the API server's are numbers, and comparable since Kubernetes 1.35.
func versionOf(object client.Object) uint64 {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// changes of a namespace so far, in the order in which they were made.
func (r *recorder) changes(namespace string) []change {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.SortedFunc(slices.Values(r.history[namespace]), func(a, b change) int { return cmp.Compare(a.version, b.version) })
}

// objects of a namespace as the watches have them, by kind and name, and the number of changes that led there.
func (r *recorder) objects(namespace string) ([]client.Object, int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	sorted := slices.SortedFunc(maps.Values(r.present[namespace]), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(fmt.Sprintf("%T", a), fmt.Sprintf("%T", b)), cmp.Compare(a.GetName(), b.GetName()))
	})
	return sorted, len(r.history[namespace])
}

func (r *recorder) forget(namespace string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.history, namespace)
	delete(r.present, namespace)
}

// catchUp waits until every watch has come to what the API server has of the namespace.
func (r *recorder) catchUp(ctx context.Context, namespace string) error {
	for _, list := range recordedKinds() {
		var behind []string
		err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			if err := admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return false, err
			}
			items, err := meta.ExtractList(list)
			behind = r.behind(namespace, items)
			return len(behind) == 0, err
		})
		if err != nil {
			return fmt.Errorf("waiting for the watch of %T: %w: %v", list, err, behind)
		}
	}
	return nil
}

// behind are the objects of which the watches have not reported the present state. What was deleted since is reported
// before what other kinds' watches report as its consequence, or is no part of the history that is judged.
func (r *recorder) behind(namespace string, items []runtime.Object) []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var behind []string
	for _, item := range items {
		object := item.(client.Object)
		known := r.present[namespace][object.GetUID()]
		if known == nil || versionOf(known) < versionOf(object) {
			behind = append(behind, object.GetName())
		}
	}
	return behind
}
