package simulate

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Site is the model of a site: its clusters, the replicas of Stargate and the gateway's memory. In a file every field
// may be left out; ReadSite fills in the defaults.
type Site struct {
	// Replicas of Stargate. A request comes to any of them with the same probability, and each sees only its own
	// pending assignments. Default 1.
	Replicas *int `json:"replicas,omitempty"`
	// StatisticsInterval is the time between two publications of a cluster's statistics, which is how late the replicas see
	// its load. The clusters publish one after the other. Default 1s.
	StatisticsInterval *Duration `json:"statisticsInterval,omitempty"`
	// Gateway is the memory of each session's last cluster.
	Gateway Gateway `json:"gateway,omitzero"`
	// Clusters of the site. Default: one entry named cluster with count 4.
	Clusters []Cluster `json:"clusters,omitempty"`
}

// Gateway is the memory that the gateway's replicas share.
type Gateway struct {
	// LastCluster says whether the gateway remembers. Default true. It starts with an empty memory.
	LastCluster *bool `json:"lastCluster,omitempty"`
	// TTL of an entry. Default: the lastCluster.ttl of the RoutingPlane, where one is given, else 10m.
	TTL *Duration `json:"ttl,omitempty"`
}

// Cluster is one inference cluster, or several that are alike.
type Cluster struct {
	// Name is the cluster ID. Required.
	Name string `json:"name"`
	// Count of such clusters. Above 1 their names are Name-1, Name-2 and so on, with as many digits as the last needs. Default
	// 1.
	Count *int `json:"count,omitempty"`
	// Models that the cluster serves, by name. Default: every model. They share its slots and its KV cache.
	Models []string `json:"models,omitempty"`
	// Slots is the engine's maximum concurrency, the number of requests that it prefills or decodes at a time. Default 16.
	Slots *int `json:"slots,omitempty"`
	// PrefillTokensPerSecond of the cluster, which prefills one request after the other. Default 20000.
	PrefillTokensPerSecond *float64 `json:"prefillTokensPerSecond,omitempty"`
	// MaxInputTokensPerSecond is the maximum input throughput that the cluster reports, the weight of rendezvous rankings.
	// 0: it reports none. Default: PrefillTokensPerSecond.
	MaxInputTokensPerSecond *float64 `json:"maxInputTokensPerSecond,omitempty"`
	// DecodeTokensPerSecond of each request. Default 50.
	DecodeTokensPerSecond *float64 `json:"decodeTokensPerSecond,omitempty"`
	// RTT between the routers and the cluster. Default 10ms.
	RTT *Duration `json:"rtt,omitempty"`
	// KVTokens is the size of the KV cache in tokens. Default 1000000.
	KVTokens *int64 `json:"kvTokens,omitempty"`
	// Timeline is what happens to the cluster, in order of time.
	Timeline []Moment `json:"timeline,omitempty"`
	// TimelinePeriod repeats the timeline; 0s: it happens once. Default 0s.
	TimelinePeriod *Duration `json:"timelinePeriod,omitempty"`
	// TimelineShift is how much later each cluster of a count lives through the timeline than the one before it.
	// Default 0s.
	TimelineShift *Duration `json:"timelineShift,omitempty"`
}

// Moment is a change of a cluster. What it leaves out stays as it is.
type Moment struct {
	// At is the time of the change, from the beginning of the simulation or of the period.
	At Duration `json:"at"`
	// SlotsTaken by traffic that is not simulated, which takes slots as they become free. At the beginning 0.
	SlotsTaken *int `json:"slotsTaken,omitempty"`
	// Up: false cuts the cluster off, and it loses its requests and its KV cache. At the beginning true.
	Up *bool `json:"up,omitempty"`
	// PrefillFactor multiplies the prefill rate, of which the routers learn. At the beginning 1.
	PrefillFactor *float64 `json:"prefillFactor,omitempty"`
}

// Limits of a site, far beyond any that makes sense.
const (
	maxReplicas = 64
	maxClusters = 4096
	maxSlots    = 1 << 20
	maxRate     = 1e12
	maxTokens   = int64(1) << 40
)

// DefaultSite is the site of an empty file.
func DefaultSite() Site {
	s := Site{}
	s.setDefaults()
	return s
}

// ReadSite reads a site from YAML, strictly, and fills in the defaults. Source names the file in errors.
func ReadSite(data []byte, source string) (Site, error) {
	s := Site{}
	if err := decode(data, source, &s); err != nil {
		return Site{}, fmt.Errorf("reading the site: %w", err)
	}
	if err := inFile(source, s.validate()); err != nil {
		return Site{}, fmt.Errorf("reading the site: %w", err)
	}
	s.setDefaults()
	return s, nil
}

func (s *Site) setDefaults() {
	byDefault(&s.Replicas, 1)
	byDefault(&s.StatisticsInterval, Duration{Duration: time.Second})
	byDefault(&s.Gateway.LastCluster, true)
	if len(s.Clusters) == 0 {
		s.Clusters = []Cluster{{Name: "cluster", Count: new(4)}}
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		byDefault(&c.Count, 1)
		byDefault(&c.Slots, 16)
		byDefault(&c.PrefillTokensPerSecond, 20000)
		byDefault(&c.MaxInputTokensPerSecond, *c.PrefillTokensPerSecond)
		byDefault(&c.DecodeTokensPerSecond, 50)
		byDefault(&c.RTT, Duration{Duration: 10 * time.Millisecond})
		byDefault(&c.KVTokens, 1_000_000)
		byDefault(&c.TimelinePeriod, Duration{})
		byDefault(&c.TimelineShift, Duration{})
	}
}

func byDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func (s *Site) validate() field.ErrorList {
	c := &checker{}
	number(c, field.NewPath("replicas"), s.Replicas, 1, maxReplicas)
	c.time(field.NewPath("statisticsInterval"), s.StatisticsInterval, time.Millisecond)
	c.time(field.NewPath("gateway", "ttl"), s.Gateway.TTL, time.Nanosecond)
	names := map[string]bool{}
	for i := range s.Clusters {
		path := field.NewPath("clusters").Index(i)
		s.Clusters[i].validate(c, path)
		for _, name := range s.Clusters[i].names() {
			if names[name] {
				c.errors = append(c.errors, field.Duplicate(path.Child("name"), name))
			}
			names[name] = true
		}
	}
	if len(names) > maxClusters {
		c.errors = append(c.errors, field.TooMany(field.NewPath("clusters"), len(names), maxClusters))
	}
	return c.errors
}

func (k *Cluster) validate(c *checker, path *field.Path) {
	if k.Name == "" {
		c.errors = append(c.errors, field.Required(path.Child("name"), "the cluster ID"))
	}
	number(c, path.Child("count"), k.Count, 1, maxClusters)
	number(c, path.Child("slots"), k.Slots, 1, maxSlots)
	number(c, path.Child("prefillTokensPerSecond"), k.PrefillTokensPerSecond, 0.001, maxRate)
	number(c, path.Child("maxInputTokensPerSecond"), k.MaxInputTokensPerSecond, 0, maxRate)
	number(c, path.Child("decodeTokensPerSecond"), k.DecodeTokensPerSecond, 0.001, maxRate)
	c.time(path.Child("rtt"), k.RTT, 0)
	number(c, path.Child("kvTokens"), k.KVTokens, 1, maxTokens)
	if ptr.Deref(k.TimelinePeriod, Duration{}) != (Duration{}) {
		c.time(path.Child("timelinePeriod"), k.TimelinePeriod, time.Millisecond)
	}
	c.time(path.Child("timelineShift"), k.TimelineShift, 0)
	var last time.Duration
	for i, m := range k.Timeline {
		at := path.Child("timeline").Index(i)
		c.time(at.Child("at"), &m.At, last)
		last = max(last, m.At.Duration)
		number(c, at.Child("slotsTaken"), m.SlotsTaken, 0, maxSlots)
		number(c, at.Child("prefillFactor"), m.PrefillFactor, 0.001, 1000)
	}
	if period := ptr.Deref(k.TimelinePeriod, Duration{}).Duration; period > 0 && period <= last {
		c.invalid(path.Child("timelinePeriod"), period.String(), "must be longer than the time of the last entry of timeline, "+last.String())
	}
}

// names of the clusters that the entry stands for.
func (k *Cluster) names() []string {
	count := min(ptr.Deref(k.Count, 1), maxClusters)
	if count <= 1 {
		return []string{k.Name}
	}
	names, digits := make([]string, count), len(strconv.Itoa(count))
	for i := range names {
		names[i] = fmt.Sprintf("%s-%0*d", k.Name, digits, i+1)
	}
	return names
}
