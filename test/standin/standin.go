// Package standin stands in for scheduler and kubelet: it binds pods and runs them in appearance only. What it
// does not fake is the judgement of Stargate's file and of a gateway's variables: both are read as the real
// programs read them, once, when their container starts.
package standin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
)

// The names of the containers that are judged, after the charts that deploy them.
const (
	RouterContainer  = "helm-nvcf-llm-request-router"
	GatewayContainer = "helm-nvcf-llm-api-gateway"
)

const (
	workers   = 8
	userAgent = "standin"
)

// Behaviour of a pod. What concerns one container concerns the router's or the gateway's where the pod has one,
// else the first. Start from Quick and change what matters: a zero Backoff or Retry is no pause at all.
type Behaviour struct {
	StartUp time.Duration // from binding to the start of the containers
	Warmup  time.Duration // from the start of the container to its readiness
	Drain   time.Duration // from the wish to end it to its end, at most the pod's grace period

	Backoff    time.Duration // before the second restart after a crash; the first comes at once; doubles each time
	MaxBackoff time.Duration
	Retry      time.Duration // of a mount, a pull or an environment that failed

	Unschedulable bool   // no node takes the pod
	PullFails     bool   // the image cannot be had
	Unready       bool   // the container runs and is not ready
	UnreadyDrain  bool   // not ready from the wish to end it on; otherwise ready to the end
	NoMetrics     bool   // the connection to its metrics is refused
	Stuck         bool   // never ends, whatever the grace period
	Crash         string // the words with which the container exits, at once and whenever it starts; empty: it runs
}

// Quick is for tests: everything takes some tens of milliseconds.
func Quick() Behaviour {
	return Behaviour{
		StartUp: 20 * time.Millisecond, Warmup: 30 * time.Millisecond, Drain: 20 * time.Millisecond,
		Backoff: 200 * time.Millisecond, MaxBackoff: 2 * time.Second, Retry: 100 * time.Millisecond,
	}
}

// Options of a stand-in.
type Options struct {
	// Behaviour of pods that no rule is about. Default: Quick.
	Behaviour *Behaviour
	// Nodes that it makes and serves. Default: node-a and node-b.
	Nodes []string
	// Releases of Stargate. Default: the operator's own table.
	Releases *release.Table
	// Stated releases, of images whose tag is none.
	Stated []v1alpha1.ReleaseOverride
	// RouterContainer and GatewayContainer are the names of containers that are judged. Default: the constants.
	RouterContainer, GatewayContainer string
}

// Standin runs the pods of a cluster.
type Standin struct {
	options Options
	client  kubernetes.Interface
	events  record.EventRecorder
	pods    corelisters.PodLister
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	stop    func()

	mu        sync.Mutex
	runs      map[types.UID]*run
	rules     []*rule
	observers []*observer
	addresses int
}

type rule struct {
	match  func(*corev1.Pod) bool
	change func(*Behaviour)
}

// Start makes the nodes and runs pods until Stop.
func Start(ctx context.Context, config *rest.Config, options Options) (*Standin, error) {
	if options.Behaviour == nil {
		quick := Quick()
		options.Behaviour = &quick
	}
	if len(options.Nodes) == 0 {
		options.Nodes = []string{"node-a", "node-b"}
	}
	if options.Releases == nil {
		table := release.DefaultTable()
		options.Releases = &table
	}
	if options.RouterContainer == "" {
		options.RouterContainer = RouterContainer
	}
	if options.GatewayContainer == "" {
		options.GatewayContainer = GatewayContainer
	}
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	config.QPS, config.Burst = 10_000, 10_000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the stand-in: %w", err)
	}
	s := &Standin{
		options: options,
		client:  client,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](5*time.Millisecond, time.Second)),
		runs: map[types.UID]*run{},
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Standin) start(ctx context.Context) error {
	kubelet, err := s.serveLogs()
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: s.client.CoreV1().Events("")})
	s.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: userAgent})

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	factory := informers.NewSharedInformerFactory(s.client, 0)
	s.pods = factory.Core().V1().Pods().Lister()
	var running sync.WaitGroup
	s.stop = sync.OnceFunc(func() {
		cancel()
		s.queue.ShutDown()
		running.Wait()
		factory.Shutdown()
		broadcaster.Shutdown()
		kubelet.close()
	})

	for _, name := range s.options.Nodes {
		if err := s.makeNode(ctx, name, kubelet.port); err != nil {
			s.stop()
			return err
		}
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.enqueue,
		UpdateFunc: func(_, pod any) { s.enqueue(pod) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				s.forget(pod.UID)
			}
		},
	})
	if err == nil {
		_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, _ any) { s.enqueueAll() }, // a node may take pods again
		})
	}
	if err != nil {
		s.stop()
		return fmt.Errorf("watching pods and nodes: %w", err)
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	for range workers {
		running.Go(func() { s.work(ctx) })
	}
	return nil
}

// Stop ends the stand-in. The pods stay as they are.
func (s *Standin) Stop() { s.stop() }

// When changes the behaviour of the pods that match, from now on and until the returned function is called. Of
// several rules about one pod, later ones have the last word. Both functions must be safe for concurrent use.
func (s *Standin) When(match func(*corev1.Pod) bool, change func(*Behaviour)) (remove func()) {
	r := &rule{match: match, change: change}
	s.mu.Lock()
	s.rules = append(s.rules, r)
	s.mu.Unlock()
	s.enqueueAll()
	return func() {
		s.mu.Lock()
		s.rules = slices.DeleteFunc(s.rules, func(other *rule) bool { return other == r })
		s.mu.Unlock()
		s.enqueueAll()
	}
}

func (s *Standin) behaviour(pod *corev1.Pod) Behaviour {
	s.mu.Lock()
	rules := slices.Clone(s.rules)
	s.mu.Unlock()
	b := *s.options.Behaviour
	for _, r := range rules {
		if r.match(pod) {
			r.change(&b)
		}
	}
	return b
}

func (s *Standin) enqueue(object any) {
	if pod, ok := object.(*corev1.Pod); ok {
		s.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

func (s *Standin) enqueueAll() {
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return // a cache does not fail to list
	}
	for _, pod := range pods {
		s.enqueue(pod)
	}
}

func (s *Standin) work(ctx context.Context) {
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		wake, err := s.sync(ctx, key)
		switch {
		case err != nil:
			s.queue.AddRateLimited(key)
		case wake > 0:
			s.queue.Forget(key)
			s.queue.AddAfter(key, wake)
		default:
			s.queue.Forget(key)
		}
		s.queue.Done(key)
	}
}

// sync brings one pod forward and returns after how long to look at it again, 0 for not before it changes.
func (s *Standin) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pod, err := s.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking for pod %s: %w", key, err)
	}
	b := s.behaviour(pod)
	switch {
	case pod.Spec.NodeName == "":
		return 0, s.schedule(ctx, pod, b)
	case pod.DeletionTimestamp != nil:
		return s.terminate(ctx, pod, b, time.Now())
	default:
		return s.advance(ctx, pod, b, time.Now())
	}
}

func (s *Standin) schedule(ctx context.Context, pod *corev1.Pod, b Behaviour) error {
	if len(pod.Spec.SchedulingGates) > 0 || pod.DeletionTimestamp != nil {
		return nil
	}
	node, err := s.nodeFor(ctx, pod)
	if err != nil {
		return err
	}
	if b.Unschedulable || node == "" {
		return s.unschedulable(ctx, pod)
	}
	err = s.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // bound or gone already: the cache will tell
		return nil
	}
	if err != nil {
		return fmt.Errorf("binding pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// nodeFor spreads pods over the nodes that take any, the same pod to the same node. Nodes are read from the API server: a
// watch might tell of a pod before another one tells that its node was cordoned earlier.
func (s *Standin) nodeFor(ctx context.Context, pod *corev1.Pod) (string, error) {
	var open []string
	for _, name := range s.options.Nodes {
		node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("reading node %s: %w", name, err)
		}
		if err == nil && !node.Spec.Unschedulable {
			open = append(open, name)
		}
	}
	if len(open) == 0 {
		return "", nil
	}
	sum := 0
	for _, b := range []byte(pod.UID) {
		sum += int(b)
	}
	return open[sum%len(open)], nil
}

func (s *Standin) unschedulable(ctx context.Context, pod *corev1.Pod) error {
	message := fmt.Sprintf("0/%d nodes are available", len(s.options.Nodes))
	status := pod.Status.DeepCopy()
	setCondition(status, pod.Generation, corev1.PodScheduled, false, corev1.PodReasonUnschedulable, message)
	s.events.Event(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	return s.writeStatus(ctx, pod, status)
}

func (s *Standin) makeNode(ctx context.Context, name string, port int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	created, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		created, err = s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("making node %s: %w", name, err)
	}
	created.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: loopback}}
	created.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	created.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	if _, err := s.client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the status of node %s: %w", name, err)
	}
	return nil
}
