package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/routing-operator/routing-operator/internal/rollout"
)

// log is what a container has written, or why that cannot be read.
type log struct {
	text  string
	err   error
	reads int
}

func (l *log) Last(context.Context, *corev1.Pod, string) (string, error) { return l.text, l.err }

func (l *log) Contains(_ context.Context, _ *corev1.Pod, _, words string) (bool, error) {
	l.reads++
	return strings.Contains(l.text, words), l.err
}

func TestAPreflightPodHasLoadedOnceItSaysSoOrIsReady(t *testing.T) {
	const line = "2026-11-29T23:00:00Z INFO load balancer config loaded default_lb=power-of-n model_overrides=1\n"
	for name, test := range map[string]struct {
		log           log
		probe, ready  bool
		started       bool
		ended         string
		want, noReads bool
	}{
		"it has logged so":                            {log: log{text: line}, probe: true, started: true, want: true},
		"it has logged so, as JSON":                   {log: log{text: `{"level":"info","message":"load balancer config loaded"}`}, started: true, want: true},
		"it has logged something else":                {log: log{text: "INFO listening\n"}, probe: true, started: true},
		"its log cannot be read":                      {log: log{err: errors.New("no kubelet")}, probe: true, started: true},
		"its log cannot be read, and it is ready":     {log: log{err: errors.New("no kubelet")}, probe: true, ready: true, started: true, want: true, noReads: true},
		"it is ready because nothing asks whether":    {log: log{text: "INFO listening\n"}, ready: true, started: true},
		"it has not started":                          {log: log{text: line}, probe: true, noReads: true},
		"it was ended, with whatever there is to say": {log: log{text: line}, probe: true, started: true, ended: "Evicted", noReads: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "router"}}}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "router", Ready: test.ready}}
			if test.probe {
				pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
			}
			g := &gatherer{PlaneReconciler: &PlaneReconciler{Logs: &test.log}, ctx: t.Context(), memory: newMemories().get(types.NamespacedName{}, "")}
			observed := &rollout.PreflightPod{Pod: rollout.Pod{Started: test.started}, Ended: test.ended}
			if got := g.loaded(observed, pod, "router"); got != test.want {
				t.Errorf("loaded: %v", got)
			}
			if (test.log.reads == 0) != test.noReads {
				t.Errorf("the log was read %d times", test.log.reads)
			}
			test.log.text, pod.Status.ContainerStatuses[0].Ready = "", false
			if got := g.loaded(observed, pod, "router"); got != test.want {
				t.Errorf("loaded, looked at again: %v", got)
			}
		})
	}
}

func TestWhatTheAPIServerSaysAgainstAPreflightPodIsRemembered(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "llm-preflight-1", errors.New("exceeded quota: full"))
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	m := newMemories().get(types.NamespacedName{}, "")
	attempt := func(revision string, after time.Duration, err error) error {
		e := &executor{seen: &observation{memory: m, world: rollout.World{Now: start.Add(after)}}}
		return e.rememberRefusal(&rollout.Step{Revision: revision, Workload: &rollout.Workload{Template: rollout.Template{Foreign: "t"}}}, err)
	}
	for range 2 {
		if err := attempt("a", 0, quota); !errors.Is(err, errStale) || !strings.Contains(err.Error(), "exceeded quota") {
			t.Fatalf("got %v, want to plan again", err)
		}
	}
	if err := attempt("a", time.Minute, quota); !errors.Is(err, errStale) {
		t.Fatal(err)
	}
	if r := m.refusal; r.Revision != "a" || r.Template != "t" || !r.First.Equal(start) || !r.Last.Equal(start.Add(time.Minute)) || !strings.Contains(r.Message, "exceeded quota") {
		t.Errorf("remembers %+v", r)
	}
	if err := attempt("b", 2*time.Minute, quota); !errors.Is(err, errStale) || !m.refusal.First.Equal(start.Add(2*time.Minute)) {
		t.Errorf("of another file: %v, %+v", err, m.refusal)
	}
	unentitled := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "operator" cannot create resource "pods" in API group ""`))
	if err := attempt("b", 2*time.Minute, unentitled); !errors.Is(err, errStale) || !strings.HasSuffix(m.refusal.Message, "kubectl apply -k config/preflight") {
		t.Errorf("without the right to: %v, %+v", err, m.refusal)
	}
	lost := errors.New("connection refused")
	if err := attempt("b", 3*time.Minute, lost); !errors.Is(err, lost) || errors.Is(err, errStale) || !m.refusal.Last.Equal(start.Add(2*time.Minute)) {
		t.Errorf("without an answer: %v, %+v", err, m.refusal)
	}
	if err := attempt("b", 4*time.Minute, nil); err != nil || m.refusal != nil {
		t.Errorf("once it is made: %v, %+v", err, m.refusal)
	}
}
