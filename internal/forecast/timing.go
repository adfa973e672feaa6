package forecast

import (
	"cmp"
	"slices"
	"time"

	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Assumed is how long a pod takes where nothing is known of it: a minute of warm-up, and half of one in which the pod
// before it drains.
const Assumed = 90 * time.Second

// ByHistory estimates a rollout by how long the workload's pods took to get ready, one after the other.
func ByHistory(world *rollout.World) func(*rollout.Workload) time.Duration {
	pod := map[string]time.Duration{world.Stargate.Key(): readiness(&world.Stargate)}
	for i := range world.Gateways {
		pod[world.Gateways[i].Key()] = readiness(&world.Gateways[i])
	}
	return func(w *rollout.Workload) time.Duration {
		return cmp.Or(pod[w.Key()], Assumed) * time.Duration(max(w.Replicas, 1))
	}
}

// readiness is the median time from a pod's creation until it was ready; 0 where no pod tells.
func readiness(w *rollout.Workload) time.Duration {
	var took []time.Duration
	for i := range w.Pods {
		if pod := &w.Pods[i]; pod.Ready && pod.ReadySince.After(pod.Created) {
			took = append(took, pod.ReadySince.Sub(pod.Created))
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// ByAssumption is the estimate for a site that cannot be looked at.
func ByAssumption(w *rollout.Workload) time.Duration {
	return Assumed * time.Duration(max(w.Replicas, 1))
}
