package routing

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// Candidate is what a Stargate replica knows of one cluster that serves a model. Its own pending assignments are
// part of the counts.
type Candidate struct {
	// ID of the cluster, unique in a snapshot.
	ID string
	// RTT to the cluster.
	RTT time.Duration
	// QueuedInputTokens is the input of the queued requests, in tokens (queued_input_size).
	QueuedInputTokens uint64
	// Queued is the number of queued requests (queue_size).
	Queued uint64
	// Running is the number of requests in the engine (num_running_queries).
	Running uint64
	// MaxConcurrency is the number of slots of the engine; 0: unknown, taken as always having capacity.
	MaxConcurrency uint64
	// LastMeanInputTPS and MaxInputTPS are input throughputs in tokens per second. One that is not positive and
	// finite counts as absent.
	LastMeanInputTPS, MaxInputTPS float64
	// KV are the statistics of the KV cache; all zero: none are known.
	KV KVTokens
	// QueueEstimates are the queue delays that the cluster publishes by priority, in ascending order of priority,
	// which NewSnapshot and Update see to.
	QueueEstimates []QueueEstimate
}

// KVTokens is the state of a KV cache in tokens.
type KVTokens struct{ Capacity, Used, Free uint64 }

// QueueEstimate is the delay that a request of a priority would spend in a cluster's queue.
type QueueEstimate struct {
	Priority uint32
	Delay    time.Duration
}

// Snapshot is the candidates of one model as one replica sees them at one moment, in order of cluster ID.
// Decisions only read it, so they may share one; Update must not run beside them.
//
// Two snapshots with the same clusters and weights have the same fingerprints, and so share cached orders
// whatever their load.
type Snapshot struct {
	candidates []Candidate
	members    xxh3.Uint128
	weights    [2]xxh3.Uint128
}

// The indexes of Snapshot.weights.
const (
	byMaxTPS = iota
	byLastMeanTPS
)

// NewSnapshot makes a snapshot of the candidates, which it copies. A cluster ID that occurs twice is an error.
func NewSnapshot(candidates []Candidate) (*Snapshot, error) {
	s := &Snapshot{candidates: slices.Clone(candidates)}
	slices.SortFunc(s.candidates, func(a, b Candidate) int { return strings.Compare(a.ID, b.ID) })
	for i := range s.candidates {
		if i > 0 && s.candidates[i].ID == s.candidates[i-1].ID {
			return nil, fmt.Errorf("candidates of a snapshot: cluster ID %q occurs twice; give every cluster its own ID", s.candidates[i].ID)
		}
		s.candidates[i].QueueEstimates = sortedEstimates(s.candidates[i].QueueEstimates)
	}
	s.fingerprint()
	return s, nil
}

// Len is the number of candidates.
func (s *Snapshot) Len() int { return len(s.candidates) }

// At is the i-th candidate by cluster ID; Decision.Index is such an i.
func (s *Snapshot) At(i int) Candidate { return s.candidates[i] }

// Index finds a cluster, and is -1 when it is no candidate.
func (s *Snapshot) Index(clusterID string) int {
	i, found := slices.BinarySearchFunc(s.candidates, clusterID, func(c Candidate, id string) int { return strings.Compare(c.ID, id) })
	if !found {
		return -1
	}
	return i
}

// Update replaces what is known of the i-th candidate. The cluster ID stays what it is. Clusters come and go with a new
// snapshot.
func (s *Snapshot) Update(i int, c Candidate) {
	old := &s.candidates[i]
	c.ID = old.ID
	c.QueueEstimates = sortedEstimates(c.QueueEstimates)
	reweighted := c.MaxInputTPS != old.MaxInputTPS || c.LastMeanInputTPS != old.LastMeanInputTPS
	*old = c
	if reweighted {
		s.fingerprint()
	}
}

func sortedEstimates(estimates []QueueEstimate) []QueueEstimate {
	byPriority := func(a, b QueueEstimate) int { return cmp.Compare(a.Priority, b.Priority) }
	if slices.IsSortedFunc(estimates, byPriority) {
		return estimates
	}
	sorted := slices.Clone(estimates)
	slices.SortFunc(sorted, byPriority)
	return sorted
}

// fingerprint hashes the cluster IDs, and each of the two weights together with them.
func (s *Snapshot) fingerprint() {
	var ids []byte
	var tps [2][]byte
	for i := range s.candidates {
		c := &s.candidates[i]
		ids = appendTagged(ids, "", c.ID)
		tps[byMaxTPS] = binary.LittleEndian.AppendUint64(tps[byMaxTPS], math.Float64bits(c.MaxInputTPS))
		tps[byLastMeanTPS] = binary.LittleEndian.AppendUint64(tps[byLastMeanTPS], math.Float64bits(c.LastMeanInputTPS))
	}
	s.members = xxh3.Hash128(ids)
	for i := range tps {
		s.weights[i] = xxh3.Hash128(append(slices.Clip(ids), tps[i]...))
	}
}

// of is the fingerprint of what a ranking by the weight depends on.
func (w Weight) of(s *Snapshot) xxh3.Uint128 {
	if w == WeightLastMeanInputTPS {
		return s.weights[byLastMeanTPS]
	}
	return s.weights[byMaxTPS]
}
