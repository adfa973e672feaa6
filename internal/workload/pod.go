package workload

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Active tells whether a pod has not ended for good: one that failed or succeeded (an evicted one, say) runs
// nothing and never will again.
func Active(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// Pod reads a pod: its template off its own spec, its state off its status.
func (r *Reader) Pod(pod *corev1.Pod, updated bool) rollout.Pod {
	observed := rollout.Pod{
		Name: pod.Name, UID: string(pod.UID), ResourceVersion: pod.ResourceVersion, Node: pod.Spec.NodeName,
		IP:          pod.Status.PodIP,
		Template:    r.Template(&pod.Spec),
		Updated:     updated,
		Created:     pod.CreationTimestamp.Time,
		Terminating: pod.DeletionTimestamp != nil,
		Waiting:     r.waitingFor(pod),
	}
	if ready := condition(pod, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue && !observed.Terminating {
		observed.Ready, observed.ReadySince = true, ready.LastTransitionTime.Time
	}
	if observed.Memory.On {
		observed.Memory.Outdated = r.outdated(pod)
		observed.Memory.On = observed.Memory.Outdated == ""
		observed.Memory.Unverified = observed.Memory.Unverified && observed.Memory.On
	}
	if s := r.status(pod); s != nil {
		observed.Started = s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
		if !observed.Ready && !s.Ready {
			observed.Crash = crashOf(s)
		}
	}
	return observed
}

func (r *Reader) status(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == r.Container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

const crashLoop = "CrashLoopBackOff"

// crashRestarts is the number of restarts from which a container that is not ready is taken to be crashing also
// in the moments in which it runs.
const crashRestarts = 2

func crashOf(s *corev1.ContainerStatus) *rollout.Crash {
	ended := s.State.Terminated
	backOff := s.State.Waiting != nil && s.State.Waiting.Reason == crashLoop
	if s.RestartCount < crashRestarts && !backOff && (ended == nil || ended.ExitCode == 0) {
		return nil
	}
	crash := &rollout.Crash{Container: s.Name, Restarts: s.RestartCount}
	if ended == nil {
		ended = s.LastTerminationState.Terminated
	}
	if ended != nil {
		crash.At, crash.Message = ended.FinishedAt.Time, ended.Message
	}
	return crash
}

// usual are the reasons of every start.
var usual = map[string]bool{"": true, "ContainerCreating": true, "PodInitializing": true}

// waitingFor is Kubernetes' reason, in one word, for a pod that does not run yet. That the container itself exits
// is no waiting; that one beside it does is.
func (r *Reader) waitingFor(pod *corev1.Pod) string {
	if scheduled := condition(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		return scheduled.Reason
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			if w := s.State.Waiting; w != nil && !usual[w.Reason] && (w.Reason != crashLoop || s.Name != r.Container) {
				return w.Reason
			}
		}
	}
	return ""
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
