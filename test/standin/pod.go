package standin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// run is a pod that is bound to a node. Its fields are written by the one worker that has the pod, with the
// stand-in's lock held, and read by others with the lock.
type run struct {
	pod        *corev1.Pod
	kind       Kind
	ip         string
	bound      time.Time
	ending     time.Time         // the wish to end it was seen; zero: it shall live
	gone       bool              // its containers have ended for good
	volumes    map[string]volume // nil: not mounted yet
	containers []*container
	main       *container // the one that is judged
	published  Snapshot
}

// container in one of three states: it runs (process), it is over (ended), or it waits for its next start.
type container struct {
	spec     corev1.Container
	process  *process
	ended    bool
	since    time.Time // start of the process
	retryAt  time.Time // no start before
	waiting  corev1.ContainerStateWaiting
	exits    int
	restarts int32
	last     *corev1.ContainerStateTerminated

	log, previousLog []byte
}

func (c *container) ready(now time.Time, b Behaviour, isMain bool) bool {
	return c.process != nil && (!isMain || !b.Unready && !now.Before(c.since.Add(b.Warmup)))
}

// backingOff: the process that exited last is the previous one already, for the logs too.
func (c *container) backingOff() bool {
	return c.waiting.Reason == crashLoopBackOff && c.process == nil
}

func (s *Standin) runOf(pod *corev1.Pod, now time.Time) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[pod.UID]
	if r == nil {
		s.addresses++
		r = &run{bound: now, ip: fmt.Sprintf("127.%d.%d.%d", 1+s.addresses>>16&0x7f, s.addresses>>8&0xff, s.addresses&0xff)}
		for _, spec := range pod.Spec.Containers {
			r.containers = append(r.containers, &container{spec: spec, waiting: corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})
		}
		r.kind, r.main = s.judged(r.containers)
		s.runs[pod.UID] = r
	}
	r.pod = pod
	return r
}

func (s *Standin) judged(containers []*container) (Kind, *container) {
	for _, c := range containers {
		switch c.spec.Name {
		case s.options.RouterContainer:
			return Router, c
		case s.options.GatewayContainer:
			return Gateway, c
		}
	}
	return Other, containers[0]
}

// advance brings a pod that shall live forward and writes its status.
func (s *Standin) advance(ctx context.Context, pod *corev1.Pod, b Behaviour, now time.Time) (time.Duration, error) {
	r := s.runOf(pod, now)
	wake, err := s.bring(ctx, r, b, now)
	if err != nil {
		return 0, err
	}
	s.publish(r, b, now)
	return wake, s.writeStatus(ctx, pod, r.status(b, now))
}

func (s *Standin) bring(ctx context.Context, r *run, b Behaviour, now time.Time) (time.Duration, error) {
	if due := r.bound.Add(b.StartUp); now.Before(due) {
		return due.Sub(now), nil
	}
	if r.volumes == nil {
		if err := s.mount(ctx, r); err != nil {
			s.events.Event(r.pod, corev1.EventTypeWarning, "FailedMount", err.Error())
			return b.Retry, nil
		}
	}
	var wake time.Duration
	for _, c := range r.containers {
		next, err := s.bringContainer(ctx, r, c, b, now)
		if err != nil {
			return 0, err
		}
		if next > 0 && (wake == 0 || next < wake) {
			wake = next
		}
	}
	return wake, nil
}

func (s *Standin) mount(ctx context.Context, r *run) error {
	volumes, err := reader{s.client, r.pod.Namespace}.mountAll(ctx, r.pod, r.volumes)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.volumes = volumes
	return nil
}

func (s *Standin) bringContainer(ctx context.Context, r *run, c *container, b Behaviour, now time.Time) (time.Duration, error) {
	isMain := c == r.main
	switch {
	case c.ended:
		return 0, nil
	case c.process != nil && isMain && b.Crash != "":
		return s.exit(r, c, b, now, errors.New(b.Crash)), nil
	case c.process != nil:
		return max(0, c.since.Add(b.Warmup).Sub(now)), nil
	case now.Before(c.retryAt):
		return c.retryAt.Sub(now), nil
	case isMain && b.PullFails && c.exits == 0:
		reason := "ErrImagePull"
		if !c.retryAt.IsZero() {
			reason = "ImagePullBackOff"
		}
		return s.wait(r, c, b, now, reason, fmt.Sprintf("Back-off pulling image %q", c.spec.Image)), nil
	}
	env, err := reader{s.client, r.pod.Namespace}.environment(ctx, r.pod, &c.spec)
	if err != nil {
		return s.wait(r, c, b, now, "CreateContainerConfigError", err.Error()), nil
	}
	if c.exits > 0 {
		if err := s.mount(ctx, r); err != nil {
			return 0, err
		}
	}
	p := &process{env: env}
	line, err := "INFO started", error(nil)
	switch {
	case isMain && b.Crash != "":
		err = errors.New(b.Crash)
	case isMain && r.kind == Router:
		line, err = startRouter(&c.spec, r.volumes, p, s.generation(c.spec.Image))
	case isMain && r.kind == Gateway:
		line, err = startGateway(p)
	}
	s.begin(c, p, now)
	if err != nil {
		return s.exit(r, c, b, now, err), nil
	}
	s.logLine(c, now, line)
	return max(0, b.Warmup), nil
}

func (s *Standin) begin(c *container, p *process, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.exits > 0 {
		c.restarts++
		c.previousLog = c.log
	}
	c.process, c.since, c.log = p, now, []byte{}
}

func (s *Standin) logLine(c *container, now time.Time, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.log = fmt.Appendf(c.log, "%s %s\n", now.UTC().Format(time.RFC3339Nano), line)
}

// wait notes why the container cannot start yet.
func (s *Standin) wait(r *run, c *container, b Behaviour, now time.Time, reason, message string) time.Duration {
	s.mu.Lock()
	c.waiting = corev1.ContainerStateWaiting{Reason: reason, Message: message}
	c.retryAt = now.Add(b.Retry)
	s.mu.Unlock()
	s.events.Event(r.pod, corev1.EventTypeWarning, "Failed", message)
	return b.Retry
}

const crashLoopBackOff = "CrashLoopBackOff"

// maxTerminationMessage is the kubelet's limit for a message taken from the log.
const maxTerminationMessage = 2048

// exit ends the container's process with an error and returns after how long to start it again.
func (s *Standin) exit(r *run, c *container, b Behaviour, now time.Time, cause error) time.Duration {
	s.logLine(c, now, "ERROR "+cause.Error())
	s.mu.Lock()
	defer s.mu.Unlock()
	c.exits++
	c.process = nil
	c.last = &corev1.ContainerStateTerminated{
		ExitCode: 1, Reason: "Error", StartedAt: seconds(c.since), FinishedAt: seconds(now), ContainerID: c.id(r.pod.UID),
	}
	if c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		c.last.Message = string(c.log[max(0, len(c.log)-maxTerminationMessage):])
	}
	if r.pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		c.ended = true
		return 0
	}
	if c.exits == 1 { // a kubelet restarts once without delay
		c.waiting = corev1.ContainerStateWaiting{}
		return time.Millisecond
	}
	delay := min(b.MaxBackoff, b.Backoff<<min(c.exits-2, 16))
	c.retryAt = now.Add(delay)
	c.waiting = corev1.ContainerStateWaiting{
		Reason:  crashLoopBackOff,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, c.spec.Name, r.pod.Name, r.pod.Namespace, r.pod.UID),
	}
	return delay
}

func (c *container) id(pod types.UID) string {
	return fmt.Sprintf("standin://%s/%s/%d", pod, c.spec.Name, c.restarts)
}

// terminate ends a pod that shall not live, when its drain or its grace period is over.
func (s *Standin) terminate(ctx context.Context, pod *corev1.Pod, b Behaviour, now time.Time) (time.Duration, error) {
	r := s.runOf(pod, now)
	s.mu.Lock()
	if r.ending.IsZero() {
		r.ending = now
	}
	s.mu.Unlock()
	s.publish(r, b, now)
	end := r.ending.Add(b.Drain)
	if end.After(pod.DeletionTimestamp.Time) {
		end = pod.DeletionTimestamp.Time
	}
	running := slices.ContainsFunc(r.containers, func(c *container) bool { return c.process != nil })
	if b.Stuck || running && now.Before(end) {
		wake := end.Sub(now)
		if b.Stuck {
			wake = 0
		}
		return max(0, wake), s.writeStatus(ctx, pod, r.status(b, now))
	}

	s.mu.Lock()
	r.gone = true
	for _, c := range r.containers {
		c.process, c.ended = nil, true
	}
	s.mu.Unlock()
	s.publish(r, b, now)
	err := s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return 0, nil
}

// status of the pod as it stands. Conditions of others stay.
func (r *run) status(b Behaviour, now time.Time) *corev1.PodStatus {
	pod := r.pod
	status := pod.Status.DeepCopy()
	started := r.volumes != nil
	status.ObservedGeneration = pod.Generation
	status.HostIP, status.HostIPs = loopback, []corev1.HostIP{{IP: loopback}}
	status.StartTime = new(seconds(r.bound))
	if started {
		status.PodIP, status.PodIPs = r.ip, []corev1.PodIP{{IP: r.ip}}
	}
	status.ContainerStatuses = status.ContainerStatuses[:0]
	for _, c := range r.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, c.status(pod.UID, c.ready(now, b, c == r.main)))
	}
	slices.SortFunc(status.ContainerStatuses, func(a, b corev1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
	status.InitContainerStatuses = r.initStatuses(started)
	status.Phase = r.phase()

	ready, unready := r.readiness(b, now)
	gates, missing := gatesMet(pod)
	set := func(t corev1.PodConditionType, is bool, reason, message string) {
		setCondition(status, pod.Generation, t, is, reason, message)
	}
	set(corev1.PodScheduled, true, "", "")
	set(corev1.PodReadyToStartContainers, started, "", "")
	set(corev1.PodInitialized, started, "", "")
	set(corev1.ContainersReady, ready, "ContainersNotReady", unready)
	switch {
	case !ready:
		set(corev1.PodReady, false, "ContainersNotReady", unready)
	default:
		set(corev1.PodReady, gates, "ReadinessGatesNotReady", missing)
	}
	return status
}

// readiness of the containers together, and the message where they are not ready.
func (r *run) readiness(b Behaviour, now time.Time) (bool, string) {
	if b.UnreadyDrain && !r.ending.IsZero() {
		return false, "containers are ending"
	}
	var unready []string
	for _, c := range r.containers {
		if !c.ready(now, b, c == r.main) {
			unready = append(unready, c.spec.Name)
		}
	}
	return len(unready) == 0, fmt.Sprintf("containers with unready status: %v", unready)
}

func gatesMet(pod *corev1.Pod) (bool, string) {
	for _, gate := range pod.Spec.ReadinessGates {
		met := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		})
		if !met {
			return false, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist or is not True", gate.ConditionType)
		}
	}
	return true, ""
}

func (r *run) phase() corev1.PodPhase {
	over := true
	for _, c := range r.containers {
		if c.process == nil && c.last == nil {
			return corev1.PodPending
		}
		over = over && c.ended
	}
	if over && !r.gone {
		return corev1.PodFailed // only a container that failed ends by itself
	}
	return corev1.PodRunning
}

func (c *container) status(pod types.UID, ready bool) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image, Ready: ready, RestartCount: c.restarts, Started: new(c.process != nil),
	}
	if c.process != nil || c.last != nil {
		status.ContainerID = c.id(pod)
	}
	switch {
	case c.process != nil:
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: seconds(c.since)}
	case c.last != nil && (c.ended || c.waiting.Reason == ""):
		status.State.Terminated = c.last
		return status
	default:
		status.State.Waiting = new(c.waiting)
	}
	status.LastTerminationState.Terminated = c.last
	return status
}

// initStatuses: init containers have done their work as soon as the volumes are there.
func (r *run) initStatuses(started bool) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for _, spec := range r.pod.Spec.InitContainers {
		status := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, ImageID: spec.Image, Ready: started, Started: new(started)}
		at := seconds(r.bound)
		switch {
		case !started:
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
		case ptr.Deref(spec.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways:
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: at}
		default:
			status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at}
		}
		all = append(all, status)
	}
	return all
}

func setCondition(status *corev1.PodStatus, generation int64, t corev1.PodConditionType, is bool, reason, message string) {
	wanted := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, ObservedGeneration: generation, LastTransitionTime: seconds(time.Now())}
	if !is {
		wanted.Status, wanted.Reason, wanted.Message = corev1.ConditionFalse, reason, message
	}
	for i, c := range status.Conditions {
		if c.Type != t {
			continue
		}
		if c.Status == wanted.Status {
			wanted.LastTransitionTime = c.LastTransitionTime
		}
		status.Conditions[i] = wanted
		return
	}
	status.Conditions = append(status.Conditions, wanted)
}

func (s *Standin) writeStatus(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(&pod.Status, status) {
		return nil
	}
	updated := pod.DeepCopy()
	updated.Status = *status
	_, err := s.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// seconds is a time as the API keeps it.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
