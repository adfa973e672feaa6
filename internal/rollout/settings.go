package rollout

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/render"
)

const defaultConfigPath = "/etc/routing-operator/lb-config.json"

var defaultWaves = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("100%")}

// Settings reads a plane, and fills in the defaults of one that was stored without them.
func Settings(plane *v1alpha1.RoutingPlane) Plane {
	spec := &plane.Spec
	duration := func(d *metav1.Duration, otherwise time.Duration) time.Duration {
		if d == nil {
			return otherwise
		}
		return d.Duration
	}
	settings := Plane{
		Namespace: plane.Namespace, Name: plane.Name, Generation: plane.Generation,
		Paused:           spec.Rollout.Paused,
		Pin:              spec.Rollout.Pin,
		QuietPeriod:      duration(spec.Rollout.QuietPeriod, 5*time.Second),
		MinInterval:      duration(spec.Rollout.MinInterval, 0),
		GatewayWarmup:    duration(spec.Rollout.GatewayWarmup, duration(spec.LastCluster.TTL, render.DefaultTTL)),
		Waves:            spec.Rollout.Waves,
		WaveInterval:     duration(spec.Rollout.WaveInterval, 5*time.Minute),
		ProgressDeadline: duration(spec.Rollout.ProgressDeadline, 15*time.Minute),
		Preflight:        spec.Rollout.Preflight,
		Analysis:         analysis.SettingsOf(spec.Rollout.Analysis),
		DeletionPolicy:   cmp.Or(spec.DeletionPolicy, v1alpha1.DeletionUnwind),
		HistoryLimit:     int(ptr.Deref(spec.RevisionHistoryLimit, 10)),
		ConfigPath:       cmp.Or(spec.Stargate.ConfigPath, defaultConfigPath),
		ConfigPathCheck:  cmp.Or(spec.Stargate.ConfigPathCheck, v1alpha1.ConfigPathCheckArguments),
		LastCluster:      spec.LastCluster,
		Retry:            plane.Annotations[RetryAnnotation],
		Status:           *plane.Status.DeepCopy(),
	}
	if plane.DeletionTimestamp != nil {
		settings.Deleted = plane.DeletionTimestamp.Time
	}
	if len(settings.Waves) == 0 {
		settings.Waves = defaultWaves
	}
	return settings
}
