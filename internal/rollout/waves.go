package rollout

import "k8s.io/apimachinery/pkg/util/intstr"

// CountWaves is the number of waves in which units of flags are switched on by spec.rollout.waves.
func CountWaves(waves []intstr.IntOrString, units int) (count int) {
	for ; units > 0; count++ {
		units -= waveSize(waves, count, units)
	}
	return count
}
