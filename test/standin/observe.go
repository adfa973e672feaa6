package standin

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
)

// Kind of program that a pod runs.
type Kind string

// The kinds.
const (
	Router  Kind = "router"
	Gateway Kind = "gateway"
	Other   Kind = "other"
)

// Snapshot is the truth about a pod at a moment: what its container runs, not what its status has come to say.
type Snapshot struct {
	At              time.Time
	Namespace, Name string
	UID             types.UID
	Owner           string // "Deployment/llm-api-gateway"; the ReplicaSet where no Deployment made it
	Kind            Kind
	Image           string
	Generation      release.Generation // of Stargate; for a router only

	Running     bool // the container has started, with the file and the environment below, and has not exited
	Ready       bool
	Terminating bool
	Restarts    int

	File   []byte            // that the router has read; nil where it was given none
	Flags  []lbconfig.Place  // last-cluster flags in the file that are on
	Env    map[string]string // of the container
	Memory bool              // the gateway remembers last clusters
}

type observer struct {
	namespace string
	f         func([]Snapshot)
}

// Observe calls f whenever a pod of the namespace starts, becomes ready, exits, is asked to end or ends, before
// the API server hears of it: with all pods that are bound and have not ended, by name. f must be quick and must
// not call the stand-in. The returned function ends it.
func (s *Standin) Observe(namespace string, f func([]Snapshot)) (stop func()) {
	o := &observer{namespace: namespace, f: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, o)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.observers = slices.DeleteFunc(s.observers, func(other *observer) bool { return other == o })
	}
}

// Recorder keeps what Observe reports.
type Recorder struct {
	stop   func()
	mu     sync.Mutex
	states [][]Snapshot
}

// Record starts a recorder of a namespace.
func (s *Standin) Record(namespace string) *Recorder {
	r := &Recorder{}
	r.stop = s.Observe(namespace, func(pods []Snapshot) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states = append(r.states, pods)
	})
	return r
}

// States returns the states of the namespace so far, each with all of its pods, in order.
func (r *Recorder) States() [][]Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.states)
}

// Stop ends the recording.
func (r *Recorder) Stop() { r.stop() }

// Pods returns the present state of the namespace's pods that are bound and have not ended, by name.
func (s *Standin) Pods(namespace string) []Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present(namespace)
}

// Pod returns the present state of one pod.
func (s *Standin) Pod(namespace, name string) (Snapshot, bool) {
	for _, p := range s.Pods(namespace) {
		if p.Name == name {
			return p, true
		}
	}
	return Snapshot{}, false
}

func (s *Standin) present(namespace string) []Snapshot {
	var pods []Snapshot
	for _, r := range s.runs {
		if r.published.Namespace == namespace && !r.gone {
			pods = append(pods, r.published)
		}
	}
	slices.SortFunc(pods, func(a, b Snapshot) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	return pods
}

// publish tells the observers where the pod has changed.
func (s *Standin) publish(r *run, b Behaviour, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := s.snapshot(r, b, now)
	snapshot.At = r.published.At
	if !r.gone && reflect.DeepEqual(snapshot, r.published) {
		return
	}
	snapshot.At = now
	r.published = snapshot
	s.tell(snapshot.Namespace)
}

func (s *Standin) tell(namespace string) {
	for _, o := range s.observers {
		if o.namespace == namespace {
			o.f(s.present(namespace))
		}
	}
}

// forget drops a pod that the API server has no more, for example one that was deleted by force.
func (s *Standin) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[uid]
	if r == nil {
		return
	}
	delete(s.runs, uid)
	if !r.gone {
		s.tell(r.published.Namespace)
	}
}

func (s *Standin) snapshot(r *run, b Behaviour, now time.Time) Snapshot {
	pod := r.pod
	snapshot := Snapshot{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Owner: owner(pod),
		Kind: r.kind, Image: r.main.spec.Image, Terminating: !r.ending.IsZero(), Restarts: int(r.main.restarts),
	}
	if r.kind == Router {
		snapshot.Generation = s.generation(snapshot.Image)
	}
	containersReady, _ := r.readiness(b, now)
	gates, _ := gatesMet(pod)
	snapshot.Ready = containersReady && gates
	if p := r.main.process; p != nil {
		snapshot.Running, snapshot.File, snapshot.Flags, snapshot.Env = true, p.file, p.flags, p.env
		snapshot.Memory = r.kind == Gateway && p.memory()
	}
	return snapshot
}

func (s *Standin) generation(image string) release.Generation {
	return s.options.Releases.OfImage(image, s.options.Stated).Generation
}

// owner names the workload. A Deployment's ReplicaSets are named after it and the hash of the pod template.
func owner(pod metav1.Object) string {
	ref := metav1.GetControllerOf(pod)
	if ref == nil {
		return ""
	}
	if hash := pod.GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey]; ref.Kind == "ReplicaSet" && hash != "" {
		return "Deployment/" + strings.TrimSuffix(ref.Name, "-"+hash)
	}
	return ref.Kind + "/" + ref.Name
}
