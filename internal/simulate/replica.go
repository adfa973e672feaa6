package simulate

import (
	"math/rand/v2"

	"github.com/routing-operator/routing-operator/internal/routing"
)

// replica is one process of Stargate.
type replica struct {
	router *routing.Router
	rng    *rand.Rand
	// views by model, pending by cluster.
	views   []view
	pending []pending
}

// view is what a replica sees of the clusters that serve a model. Clusters are in the order of the snapshot, and places has
// each cluster's index in it, -1: it is no candidate.
type view struct {
	snapshot *routing.Snapshot
	clusters []int32
	places   []int
}

// pending is what a replica has assigned to a cluster and does not see in its statistics yet. A part of it is still on
// its way.
type pending struct{ requests, tokens, away, tokensAway uint64 }

func (p *pending) assign(tokens uint64) {
	p.requests++
	p.tokens += tokens
	p.away++
	p.tokensAway += tokens
}

func (p *pending) arrive(tokens uint64) {
	p.away--
	p.tokensAway -= tokens
}

func (p *pending) drop(tokens uint64) {
	p.requests--
	p.tokens -= tokens
}

// publish drops what the statistics include from now on.
func (p *pending) publish() { p.requests, p.tokens = p.away, p.tokensAway }

// setCandidates makes the views anew, for other clusters are up.
func (s *sim) setCandidates() error {
	for _, r := range s.replicas {
		for m := range s.models {
			v := view{places: make([]int, len(s.clusters))}
			var candidates []routing.Candidate
			for i, c := range s.clusters {
				v.places[i] = -1
				if c.up && c.serves[m] {
					v.places[i] = len(candidates)
					v.clusters = append(v.clusters, int32(i))
					candidates = append(candidates, r.sees(c, int32(i)))
				}
			}
			var err error
			if v.snapshot, err = routing.NewSnapshot(candidates); err != nil {
				return err
			}
			r.views[m] = v
		}
	}
	return nil
}

// sees is what the replica knows of a cluster: what it published last, and the replica's own assignments since.
func (r *replica) sees(c *cluster, i int32) routing.Candidate {
	seen, own := c.published, &r.pending[i]
	seen.Running += own.requests
	seen.Queued += own.requests
	seen.QueuedInputTokens += own.tokens
	return seen
}

// look brings a replica's views of a cluster up to date.
func (s *sim) look(r *replica, i int32) {
	seen := r.sees(s.clusters[i], i)
	for m := range r.views {
		if at := r.views[m].places[i]; at >= 0 {
			r.views[m].snapshot.Update(at, seen)
		}
	}
}
