package routing

import (
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// PlaneFrom is the configuration that a plane's Stargate runs with the models, all flags on. Both must be what package
// validate accepts, and no two models have one name; what validate refuses counts as unset here.
func PlaneFrom(stargate *v1alpha1.StargateSpec, models []v1alpha1.Model) Plane {
	p := Plane{
		Default:           stargate.DefaultAlgorithm,
		RequestAlgorithms: requestAlgorithmsFrom(stargate.RequestAlgorithms),
		Models:            make(map[string]ModelConfig, len(models)),
	}
	for i := range models {
		p.Models[models[i].Name] = ModelConfig{
			Config:            ConfigFrom(&models[i].AlgorithmSettings),
			RequestAlgorithms: requestAlgorithmsFrom(models[i].RequestAlgorithms),
		}
	}
	return p
}

func requestAlgorithmsFrom(list []v1alpha1.RequestAlgorithm) map[v1alpha1.Algorithm]Config {
	configs := make(map[v1alpha1.Algorithm]Config, len(list))
	for i := range list {
		configs[list[i].Algorithm] = ConfigFrom(&list[i].AlgorithmSettings)
	}
	return configs
}

// ConfigFrom applies settings that package validate accepts to the algorithm's defaults.
func ConfigFrom(s *v1alpha1.AlgorithmSettings) Config {
	c := DefaultConfig(s.Algorithm)
	set(&c.RequireAffinityKey, s.RequireCacheAffinityKey)
	decimal(&c.MaxInputWork, s.MaxInputWorkSeconds)
	text(&c.Comparator, s.Comparator)
	number(&c.SampleCount, s.SampleCount)
	set(&c.Seed, s.Seed)
	set(&c.ConsiderKVFree, s.ConsiderKvFreeTokens)
	text(&c.Weight, s.RendezvousWeight)
	number(&c.VirtualNodes, s.CacheAffinityVirtualNodes)
	number(&c.GroupSize, s.CacheAffinityBackendSelectionCount)
	milliseconds(&c.AffinityWait, s.CacheAffinityWaitMs)
	decimal(&c.AffinityScale, s.CacheAffinityInputTokensScale)
	milliseconds(&c.BandWidenInterval, s.BandWidenIntervalMs)
	number(&c.FallbackMaxQueued, s.FallbackMaxQueued)
	c.QueueSLO = s.MaxQueueTimeFloorMs != nil && s.MaxQueueTimeCeilMs != nil
	milliseconds(&c.QueueTimeFloor, s.MaxQueueTimeFloorMs)
	milliseconds(&c.QueueTimeCeil, s.MaxQueueTimeCeilMs)
	milliseconds(&c.BucketSize, s.TtftBucketSizeMs)
	decimal(&c.UnlockFactor, s.NextBucketUnlockFactor)
	number(&c.SampleN, s.N)
	number(&c.MaxQueued, s.MaxQueued)
	set(&c.IgnoreQueueTime, s.IgnoreQueueTime)
	set(&c.IgnoreInputTime, s.IgnoreInputProcessingTime)
	set(&c.LastClusterAffinity, s.LastClusterAffinity)
	return c
}

func set[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

func text[T ~string](to *T, value *string) {
	if value != nil {
		*to = T(*value)
	}
}

func number[T int | uint64](to *T, value *int64) {
	if value != nil {
		*to = T(*value)
	}
}

func decimal(to *float64, value *v1alpha1.Decimal) {
	if value == nil {
		return
	}
	if n, ok := validate.ParseDecimal(*value); ok {
		*to = n
	}
}

// milliseconds sets a time, the longest there is for one that is longer.
func milliseconds(to *time.Duration, value *int64) {
	if value != nil {
		*to = time.Duration(min(*value, int64(forever/time.Millisecond))) * time.Millisecond
	}
}
