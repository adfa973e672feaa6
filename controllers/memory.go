package controllers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// memory is what a process remembers of a plane and may forget at any time. The passes of one plane run one after
// the other, so nothing in it is locked.
type memory struct {
	uid   types.UID
	quiet quiet
	// contents of immutable revisions by the UID of the ConfigMap.
	contents map[types.UID]content
	// logs of pods that exited without a message, by the pod's UID.
	logs map[types.UID]string
	// loaded are preflight pods that have loaded their file, and refusal is of the last one that could not be made.
	loaded  sets.Set[types.UID]
	refusal *rollout.PreflightRefusal
	// started is when the present rollout of a workload was started by this process, by the workload's key.
	started map[string]time.Time
	// given are the revisions that workloads were given last, and taken how often somebody changed them afterwards, by
	// the workload's key.
	given    map[string]string
	taken    map[string]taking
	follower follower
	// stale counts the passes in a row that found the cache behind the API server.
	stale int
	// waiting is since when policies are waited for that nobody has looked at.
	waiting time.Time
	// owners tell whose each model was at the last merge, and admitted which models of each policy there was room
	// for.
	owners   map[string]types.UID
	admitted map[types.UID][]v1alpha1.Model
	// interlock is the reason for which flags had to be off at the last pass.
	interlock string
}

// taking counts how often in a row the operator took its fields back, and keeps when it last did and the plane's retry
// then.
type taking struct {
	times int
	last  time.Time
	retry string
}

// forgiven is the time without another taking after which counting starts anew.
const forgiven = 2 * time.Hour

// remember notes what workloads were given, and whether that was taken back from somebody.
func (m *memory) remember(done []rollout.Step, now time.Time, retry string) {
	for i := range done {
		step := &done[i]
		if step.Workload == nil {
			continue
		}
		switch key := step.Workload.Key(); step.Kind {
		case rollout.StepApply:
			if given := m.given[key]; given != "" && given != step.Workload.Template.Revision {
				before := m.taken[key]
				if now.Sub(before.last) > forgiven {
					before.times = 0
				}
				m.taken[key] = taking{times: before.times + 1, last: now, retry: retry}
			}
			m.given[key] = step.Revision
		case rollout.StepLetGo:
			delete(m.given, key)
			delete(m.taken, key)
		}
	}
}

// doubt forgets what the workload of a step was given last where the step failed without a clear answer: it may have been
// given something else, and to find that would be to take the operator's own hand for a rival's.
func (m *memory) doubt(step *rollout.Step, failed error) {
	var refused *refusedError
	if step.Kind == rollout.StepApply && !errors.Is(failed, errStale) && !errors.As(failed, &refused) {
		delete(m.given, step.Workload.Key())
	}
}

// awaits tells whether to leave the plane as it is until its policies have been looked at: to go on without one would be to
// withdraw what it asks for. The wait has a bound, or else one policy that cannot be looked at would hold up the others.
func (m *memory) awaits(unknown []types.NamespacedName, now time.Time) bool {
	if len(unknown) == 0 {
		m.waiting = time.Time{}
		return false
	}
	if m.waiting.IsZero() {
		m.waiting = now
	}
	return now.Sub(m.waiting) < policiesLongest
}

// memories of all planes, by namespace and name.
type memories struct {
	mutex sync.Mutex
	of    map[types.NamespacedName]*memory
}

func newMemories() *memories { return &memories{of: map[types.NamespacedName]*memory{}} }

// get starts anew for a plane that was deleted and made again.
func (m *memories) get(key types.NamespacedName, uid types.UID) *memory {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if found := m.of[key]; found != nil && found.uid == uid {
		return found
	}
	m.of[key] = &memory{uid: uid, contents: map[types.UID]content{}, logs: map[types.UID]string{}, loaded: sets.New[types.UID](), started: map[string]time.Time{},
		given: map[string]string{}, taken: map[string]taking{}}
	return m.of[key]
}

func (m *memories) forget(key types.NamespacedName) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.of, key)
}

// content of a revision. What is mutable is read every time.
func (m *memory) content(plane string, cm *corev1.ConfigMap) content {
	if known, ok := m.contents[cm.UID]; ok {
		return known
	}
	c := readContent(plane, cm)
	if ptr.Deref(cm.Immutable, false) {
		m.contents[cm.UID] = c
	}
	return c
}

// quiet tells since when the configuration has not changed.
type quiet struct {
	seen              bool
	fingerprint       string
	changed, changing time.Time
	// appeared is when a plane that was new was first seen.
	appeared time.Time
}

// observe notes the configuration. A process that sees a plane for the first time cannot know when its
// configuration changed, except for a plane that is new: that one has just changed. A change within the period
// belongs to the burst before it.
func (q *quiet) observe(fingerprint string, now time.Time, isNew bool, period time.Duration) {
	first := !q.seen
	if !first && fingerprint == q.fingerprint {
		return
	}
	q.seen, q.fingerprint = true, fingerprint
	if first {
		if !isNew {
			return
		}
		q.appeared = now
	}
	if q.changed.IsZero() || now.Sub(q.changed) > period {
		q.changing = now
	}
	q.changed = now
}

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:16]
}
