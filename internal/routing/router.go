package routing

import (
	"fmt"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/zeebo/xxh3"
)

// Options bound what a Router keeps. Zero stands for the default.
type Options struct {
	// Targets is the number of routing targets (routing key, model and configuration) with a state. One that was
	// forgotten starts afresh: its round-robin at the first cluster. Default 4096.
	Targets int
	// Orders is the number of affinity orders kept, one per target and affinity key. Default 65536.
	Orders int
	// Rings is the number of hash rings kept, one per wait-and-widen target. Default 256.
	Rings int
}

// Router is the routing of one Stargate replica: its configuration, its round-robin counters and its caches. It is safe
// for concurrent use.
type Router struct {
	table   *table
	targets *lru.Cache[targetKey, *target]
	orders  *lru.Cache[orderKey, keptOrder]
	rings   *lru.Cache[*target, keptRing]
}

// target is the state of a routing key and model under a configuration.
type target struct {
	config *Config
	// prefix of every hash of the target.
	prefix []byte
	turn   atomic.Uint64
}

type targetKey struct {
	config            *Config
	routingKey, model string
}

type orderKey struct {
	target *target
	key    string
}

// keptOrder is an original affinity order and the fingerprint of the clusters and weights that it is of.
type keptOrder struct {
	of       xxh3.Uint128
	clusters []int32
}

type keptRing struct {
	of   xxh3.Uint128
	ring ring
}

// NewRouter makes the router of one replica. A negative bound is an error.
func NewRouter(p Plane, o Options) (*Router, error) {
	r := &Router{table: newTable(p)}
	var err error
	if r.targets, err = newCache[targetKey, *target]("Targets", o.Targets, 4096); err != nil {
		return nil, err
	}
	if r.orders, err = newCache[orderKey, keptOrder]("Orders", o.Orders, 1<<16); err != nil {
		return nil, err
	}
	if r.rings, err = newCache[*target, keptRing]("Rings", o.Rings, 256); err != nil {
		return nil, err
	}
	return r, nil
}

func newCache[K comparable, V any](option string, size, byDefault int) (*lru.Cache[K, V], error) {
	if size == 0 {
		size = byDefault
	}
	cache, err := lru.New[K, V](size)
	if err != nil {
		return nil, fmt.Errorf("routing option %s is %d: %w; leave it 0 for the default", option, size, err)
	}
	return cache, nil
}

// target is the state that a request shares with others like it.
func (r *Router) target(config *Config, routingKey, model string) *target {
	key := targetKey{config, routingKey, model}
	if t, ok := r.targets.Get(key); ok {
		return t
	}
	t := &target{config: config, prefix: hashPrefix(config.Seed, routingKey, model)}
	if earlier, ok, _ := r.targets.PeekOrAdd(key, t); ok {
		return earlier
	}
	return t
}

// ranking is the key's rendezvous ranking of the snapshot.
func (r *Router) ranking(t *target, key string, s *Snapshot, work *scratch) []int32 {
	of := t.config.Weight.of(s)
	k := orderKey{t, key}
	if kept, ok := r.orders.Get(k); ok && kept.of == of {
		return kept.clusters
	}
	clusters := rank(s, t.config.Weight, t.prefix, key, work)
	r.orders.Add(k, keptOrder{of, clusters})
	return clusters
}

// group is the key's affinity group on the hash ring of the snapshot, which has at least one candidate.
func (r *Router) group(t *target, key string, s *Snapshot, work *scratch) []int32 {
	k := orderKey{t, key}
	if kept, ok := r.orders.Get(k); ok && kept.of == s.members {
		return kept.clusters
	}
	clusters := r.ring(t, s).walk(t.config.GroupSize, s.Len(), t.prefix, key, work)
	r.orders.Add(k, keptOrder{s.members, clusters})
	return clusters
}

func (r *Router) ring(t *target, s *Snapshot) ring {
	if kept, ok := r.rings.Get(t); ok && kept.of == s.members {
		return kept.ring
	}
	fresh := newRing(s, t.config.VirtualNodes, t.prefix)
	r.rings.Add(t, keptRing{s.members, fresh})
	return fresh
}
