package routing

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Comparator names the score by which power-of-n and wait-and-widen choose among the sampled candidates. The
// lowest score wins.
type Comparator string

// The comparators of Stargate.
const (
	// CompareTTFT is the time to first token, always with all three parts.
	CompareTTFT Comparator = "ttft"
	// CompareQueueTime is the queue delay.
	CompareQueueTime Comparator = "queue-time"
	// CompareInputWork is the time to process the input tokens queued and the request's own, unscaled.
	CompareInputWork Comparator = "input-work-seconds"
	// CompareUtilization is the share of the engine's slots in use.
	CompareUtilization Comparator = "utilization"
	// CompareQueued is the number of queued requests.
	CompareQueued Comparator = "num-requests-queued"
)

// Weight names the throughput that weights a rendezvous ranking.
type Weight string

// The weights of Stargate.
const (
	WeightMaxInputTPS      Weight = "max-input-tps"
	WeightLastMeanInputTPS Weight = "last-mean-input-tps"
)

const (
	// FollowAffinityWait as a BandWidenInterval stands for the default, the effective affinity wait.
	FollowAffinityWait time.Duration = -1
	// MaxVirtualNodes is what a larger Config.VirtualNodes counts as. Stargate has no bound; a ring beyond this one
	// would take gigabytes.
	MaxVirtualNodes = 1 << 16
)

// Config is one algorithm and its settings, the defaults applied. Start from DefaultConfig: the zero value of
// several fields is not their default. A field that the algorithm does not take is ignored. See the API's
// AlgorithmSettings for what each setting does.
type Config struct {
	Algorithm v1alpha1.Algorithm

	// RequireAffinityKey refuses a request without a cache affinity key.
	RequireAffinityKey bool
	// MaxInputWork is the admission limit in seconds of input work; +Inf: no limit.
	MaxInputWork float64

	// Comparator of power-of-n and wait-and-widen.
	Comparator Comparator
	// SampleCount of power-of-n.
	SampleCount int

	// Seed of the affinity order.
	Seed string
	// ConsiderKVFree skips clusters with fewer free KV tokens than the request has input tokens.
	ConsiderKVFree bool
	// Weight of the rendezvous ranking.
	Weight Weight
	// VirtualNodes per cluster on the hash ring; 0 counts as 1.
	VirtualNodes int
	// GroupSize is k. 0: no affinity group for wait-and-widen, and 1 for pulsar-wait-and-widen.
	GroupSize int
	// AffinityWait is X.
	AffinityWait time.Duration
	// AffinityScale is s, 0 to 1.
	AffinityScale float64
	// BandWidenInterval is S; FollowAffinityWait: the effective X.
	BandWidenInterval time.Duration
	// FallbackMaxQueued is the capacity limit outside the affinity phase of pulsar-wait-and-widen.
	FallbackMaxQueued uint64

	// QueueSLO says that both bounds of the queue delay are set.
	QueueSLO bool
	// QueueTimeFloor and QueueTimeCeil bound the queue delay of a request that has just arrived and of one
	// that has used up its time.
	QueueTimeFloor, QueueTimeCeil time.Duration
	// BucketSize is the width of a bucket of times to first token.
	BucketSize time.Duration
	// UnlockFactor is the share of the gap to the next bucket that a request waits for it.
	UnlockFactor float64
	// SampleN is n, the number of candidates sampled from the unlocked buckets; 0 counts as 1.
	SampleN int
	// MaxQueued is the capacity limit of wait-and-widen and of pulsar-wait-and-widen's affinity phase.
	MaxQueued uint64
	// IgnoreQueueTime and IgnoreInputTime leave a part out of the time to first token that places a cluster in a
	// bucket.
	IgnoreQueueTime, IgnoreInputTime bool

	// LastClusterAffinity is the session-aware mode.
	LastClusterAffinity bool
}

// DefaultConfig is what Stargate runs for an algorithm that is named without any setting.
func DefaultConfig(algorithm v1alpha1.Algorithm) Config {
	c := Config{
		Algorithm:         algorithm,
		MaxInputWork:      math.Inf(1),
		Comparator:        CompareTTFT,
		SampleCount:       2,
		Weight:            WeightMaxInputTPS,
		VirtualNodes:      150,
		AffinityScale:     1,
		BandWidenInterval: FollowAffinityWait,
		BucketSize:        20 * time.Millisecond,
		UnlockFactor:      0.25,
		SampleN:           2,
	}
	if algorithm == v1alpha1.PulsarWaitAndWiden {
		c.GroupSize = 1
	}
	return c
}

// groupSize is k as the algorithm reads it; 0: there is no affinity group.
func (c *Config) groupSize() int {
	switch c.Algorithm {
	case v1alpha1.WaitAndWiden:
		return c.GroupSize
	case v1alpha1.PulsarWaitAndWiden:
		return max(1, c.GroupSize)
	}
	return 0
}

// sessionAware says whether the header with the last cluster has any effect under the configuration.
func (c *Config) sessionAware() bool {
	return c.LastClusterAffinity && c.groupSize() > 0
}

// ModelConfig is the routing of one model.
type ModelConfig struct {
	Config
	// RequestAlgorithms that a request for the model may select.
	RequestAlgorithms map[v1alpha1.Algorithm]Config
}

// Plane is the configuration of one Stargate: what its lb-config.json says.
type Plane struct {
	// Default is the algorithm of models without an entry; empty: power-of-n. It runs with its default settings.
	Default v1alpha1.Algorithm
	// RequestAlgorithms that a request may select for any model.
	RequestAlgorithms map[v1alpha1.Algorithm]Config
	// Models by exact model ID.
	Models map[string]ModelConfig
}

// ErrMethodNotSelectable is the reason why a request that names an algorithm in x-routing-method is refused: neither
// the model nor the plane offers it.
var ErrMethodNotSelectable = errors.New("algorithm is not selectable by a request")

// table is a Plane made ready for look-up. A *Config in it identifies a configuration: state is kept by it.
type table struct {
	fallback *Config
	request  map[v1alpha1.Algorithm]*Config
	models   map[string]*modelEntry
}

type modelEntry struct {
	own     *Config
	request map[v1alpha1.Algorithm]*Config
}

func newTable(p Plane) *table {
	fallback := p.Default
	if fallback == "" {
		fallback = v1alpha1.PowerOfN
	}
	config := DefaultConfig(fallback)
	t := &table{fallback: &config, request: pointers(p.RequestAlgorithms), models: make(map[string]*modelEntry, len(p.Models))}
	for name, m := range p.Models {
		t.models[name] = &modelEntry{own: &m.Config, request: pointers(m.RequestAlgorithms)}
	}
	return t
}

func pointers(configs map[v1alpha1.Algorithm]Config) map[v1alpha1.Algorithm]*Config {
	out := make(map[v1alpha1.Algorithm]*Config, len(configs))
	for name, config := range configs {
		out[name] = &config
	}
	return out
}

// resolve finds the configuration of a request: without a method the model's own or the default. With one the
// model's own configuration answers first, then its request algorithms, then the plane's.
func (t *table) resolve(model, method string) (*Config, error) {
	entry := t.models[model]
	if method == "" {
		if entry == nil {
			return t.fallback, nil
		}
		return entry.own, nil
	}
	algorithm := v1alpha1.Algorithm(method)
	if entry != nil {
		if entry.own.Algorithm == algorithm {
			return entry.own, nil
		}
		if config := entry.request[algorithm]; config != nil {
			return config, nil
		}
	}
	if config := t.request[algorithm]; config != nil {
		return config, nil
	}
	return nil, fmt.Errorf("x-routing-method %q for model %q: %w; add it to requestAlgorithms of the model or of the plane, or leave the header out",
		method, model, ErrMethodNotSelectable)
}
