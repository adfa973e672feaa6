package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/patch"
	"github.com/routing-operator/routing-operator/internal/preflight"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// loadLine is what Stargate logs once it has loaded its file, among other words.
const loadLine = "load balancer config loaded"

const longestPreflight = 30 * 24 * time.Hour

// preflights observes the plane's preflight pods.
func (g *gatherer) preflights(seenPods sets.Set[types.UID]) error {
	w := &g.seen.world
	if r := g.memory.refusal; r != nil && w.Now.After(r.Last.Add(w.Plane.ProgressDeadline+time.Minute)) {
		g.memory.refusal = nil // long ago, and nothing came of it: what comes next is no refusal in a row
	}
	w.Preflight.Problem, w.Preflight.Refusal = g.seen.sites[w.Stargate.Key()].noPreflight, g.memory.refusal
	var list corev1.PodList
	if err := g.List(g.ctx, &list, client.InNamespace(g.plane.Namespace), client.MatchingFields{indexOwner: string(g.plane.UID)}); err != nil {
		return fmt.Errorf("listing the preflight pods: %w", err)
	}
	reader := g.reader(g.stargateRole())
	reader.Container = w.Stargate.Container
	for i := range list.Items {
		pod := &list.Items[i]
		seenPods.Insert(pod.UID)
		observed := rollout.PreflightPod{Pod: reader.Pod(pod, false), Made: pod.Labels[preflight.LabelTemplate]}
		if !workload.Active(pod) {
			observed.Ended = string(pod.Status.Phase)
			if pod.Status.Reason != "" {
				observed.Ended = pod.Status.Reason
			}
		}
		observed.Loaded = g.loaded(&observed, pod, reader.Container)
		g.lastWords(&observed.Pod, pod)
		w.Preflight.Pods = append(w.Preflight.Pods, observed)
	}
	slices.SortFunc(w.Preflight.Pods, func(a, b rollout.PreflightPod) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// loaded tells whether the pod's Stargate has loaded its file: it is ready, where there is a probe that asks it, or has
// logged so. Once it has, it has.
func (g *gatherer) loaded(observed *rollout.PreflightPod, pod *corev1.Pod, container string) bool {
	if g.memory.loaded.Has(pod.UID) {
		return true
	}
	loaded := readyByProbe(pod, container)
	if !loaded && observed.Started && observed.Ended == "" {
		var err error
		if loaded, err = g.Logs.Contains(g.ctx, pod, container, loadLine); err != nil {
			ctrl.LoggerFrom(g.ctx).V(1).Info("Cannot read the log of a preflight pod", "pod", pod.Name, "reason", err.Error())
		}
	}
	if loaded {
		g.memory.loaded.Insert(pod.UID)
	}
	return loaded
}

func readyByProbe(pod *corev1.Pod, container string) bool {
	probed := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container && c.ReadinessProbe != nil })
	return probed && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container && s.Ready })
}

// startPreflight makes the preflight pod from the workload's template as it is stored, with the revision mounted as
// the operator mounts it.
func (e *executor) startPreflight(ctx context.Context, step *rollout.Step) error {
	object, template, err := e.stored(ctx, e.target(step.Workload))
	if err != nil {
		return err
	}
	patch.Mend(template, e.fields(step))
	plane := e.seen.plane
	pod := preflight.Pod(template, volumeClaims(object), preflight.Candidate{
		Namespace: plane.Namespace,
		Plane:     *metav1.NewControllerRef(plane, v1alpha1.GroupVersion.WithKind(planeKind)),
		Revision:  step.Revision, Template: step.Workload.Template.Foreign, Container: step.Workload.Container,
		// Longer than the planner waits for it, and for the one that it is compared with, within what Kubernetes takes.
		Deadline: 2*min(e.seen.world.Plane.ProgressDeadline, longestPreflight) + time.Minute,
	})
	err = e.Create(ctx, pod.DeepCopy(), client.FieldOwner(workload.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		var live corev1.Pod
		if err := e.Live.Get(ctx, client.ObjectKeyFromObject(pod), &live); err != nil || metav1.IsControlledBy(&live, plane) {
			return errors.Join(errStale, err) // the cache will have it
		}
	}
	return e.rememberRefusal(step, err)
}

// rememberRefusal keeps what the API server said against the pod, and has the pass planned again: the plan depends on
// it. Without an answer there is nothing to remember.
func (e *executor) rememberRefusal(step *rollout.Step, err error) error {
	m, now := e.seen.memory, e.seen.world.Now
	if err == nil {
		m.refusal = nil
		return nil
	}
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return err
	}
	message := bounded(err.Error())
	if apierrors.IsForbidden(err) && strings.Contains(message, `cannot create resource "pods"`) { // a quota's refusal is Forbidden too
		message += "; it takes a right of its own: kubectl apply -k config/preflight"
	}
	refusal := &rollout.PreflightRefusal{Revision: step.Revision, Template: step.Workload.Template.Foreign, First: now, Last: now, Message: message}
	if was := m.refusal; was != nil && was.Revision == refusal.Revision && was.Template == refusal.Template {
		refusal.First = was.First
	}
	m.refusal = refusal
	return fmt.Errorf("%w: a preflight pod was refused: %w", errStale, err)
}

func (e *executor) deletePreflight(ctx context.Context, step *rollout.Step) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.seen.plane.Namespace, Name: step.Pod.Name}}
	return client.IgnoreNotFound(e.Delete(ctx, pod, client.Preconditions{UID: new(types.UID(step.Pod.UID))}))
}
