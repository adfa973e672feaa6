package analysis

import (
	"strconv"
	"time"

	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Settings of the metric gate, with every default filled in.
type Settings struct {
	// Interval over which a wave is judged, and before which server errors are counted.
	Interval time.Duration
	// MinSamples that a share is judged by.
	MinSamples int64
	// Hold the wave for as long as there are fewer; otherwise it passes.
	Hold bool
	// MaxNewShare, MinPrimaryShare and MaxErrorIncrease are the limits of the shares, from 0 to 1.
	MaxNewShare, MinPrimaryShare, MaxErrorIncrease float64
}

// Looks per interval, as long as they are not closer or further apart than these: a pod that ends takes with it what
// it counted since the last look.
const (
	looks      = 20
	mostOften  = time.Second
	leastOften = 15 * time.Second
)

// SettingsOf a plane; nil where the gate is off.
func SettingsOf(spec *v1alpha1.RolloutAnalysis) *Settings {
	if spec == nil {
		return nil
	}
	s := &Settings{
		Interval: 5 * time.Minute, MinSamples: ptr.Deref(spec.MinSamples, 100), Hold: spec.TooFewSamples == v1alpha1.TooFewSamplesHold,
		MaxNewShare:      share(spec.MaxNewShare, 0.95),
		MinPrimaryShare:  share(spec.MinReturningPrimaryShare, 0.5),
		MaxErrorIncrease: share(spec.MaxServerErrorIncrease, 0.01),
	}
	if spec.Interval != nil {
		s.Interval = spec.Interval.Duration
	}
	return s
}

// share reads a number; one that validation would refuse is none.
func share(stated *v1alpha1.Decimal, otherwise float64) float64 {
	if n, err := strconv.ParseFloat(string(ptr.Deref(stated, "")), 64); err == nil {
		return n
	}
	return otherwise
}

// Every is the time between two looks at the metrics.
func (s *Settings) Every() time.Duration {
	return min(max(s.Interval/looks, mostOften), leastOften)
}

// CountsErrors tells whether server errors are judged, so that they have to be counted before a wave.
func (s *Settings) CountsErrors() bool { return s.MaxErrorIncrease < 1 }
