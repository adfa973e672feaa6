package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/routing-operator/routing-operator/internal/rollout"
)

// State of a rollout by Kubernetes' own word.
type State struct {
	Generation, ObservedGeneration int64
	// Replicas that are wanted.
	Replicas int32
	// RolledOut and Hold as in rollout.Workload.
	RolledOut bool
	Hold      string
}

// Fill the state into a workload.
func (s State) Fill(w *rollout.Workload) {
	w.Generation, w.ObservedGeneration, w.Replicas, w.RolledOut, w.Hold = s.Generation, s.ObservedGeneration, s.Replicas, s.RolledOut, s.Hold
}

// DeploymentState counts replicas and never looks at conditions: Available is true without a pod where the strategy
// allows it, and Progressing may still speak of an earlier template.
func DeploymentState(d *appsv1.Deployment) State {
	s := State{Generation: d.Generation, ObservedGeneration: d.Status.ObservedGeneration, Replicas: replicas(d.Spec.Replicas)}
	s.RolledOut = s.observed() && all(s.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas)
	if d.Spec.Paused {
		s.Hold = "is paused (spec.paused)"
	}
	return s
}

// StatefulSetState does for a StatefulSet what DeploymentState does for a Deployment.
func StatefulSetState(set *appsv1.StatefulSet) State {
	s := State{Generation: set.Generation, ObservedGeneration: set.Status.ObservedGeneration, Replicas: replicas(set.Spec.Replicas)}
	s.RolledOut = s.observed() && set.Status.CurrentRevision == set.Status.UpdateRevision &&
		all(s.Replicas, set.Status.Replicas, set.Status.ReadyReplicas, set.Status.AvailableReplicas)
	switch strategy := set.Spec.UpdateStrategy; {
	case strategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		s.Hold = "replaces no pod by itself (updateStrategy OnDelete)"
	case strategy.RollingUpdate != nil && strategy.RollingUpdate.Partition != nil && *strategy.RollingUpdate.Partition > 0:
		s.Hold = fmt.Sprintf("keeps pods on the old template (updateStrategy.rollingUpdate.partition %d)", *strategy.RollingUpdate.Partition)
	}
	return s
}

func (s State) observed() bool { return s.ObservedGeneration >= s.Generation }

func replicas(wanted *int32) int32 {
	if wanted == nil {
		return 1
	}
	return *wanted
}

func all(wanted int32, counts ...int32) bool {
	for _, n := range counts {
		if n != wanted {
			return false
		}
	}
	return true
}
