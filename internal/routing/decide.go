package routing

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Outcome is the kind of a decision.
type Outcome int

const (
	// Selected says that the request goes to Decision.Cluster.
	Selected Outcome = iota
	// Wait asks to decide again after Decision.Wait, which is what this snapshot promises; a newer one may select earlier.
	Wait
	// Unavailable says that nothing is selectable, and waiting promises nothing.
	Unavailable
)

func (o Outcome) String() string {
	return [...]string{"selected", "wait", "unavailable"}[o]
}

// Decision is where a request goes.
type Decision struct {
	Outcome Outcome
	// Cluster selected, and its index in the snapshot.
	Cluster string
	Index   int
	// RankDepth of the selected cluster: its position, from 1, in the ranking as the request sees it, for pulsar
	// and pulsar-wait-and-widen; 1 for a member of wait-and-widen's affinity group and the size of the group plus 1 for
	// others; 1 for the other algorithms.
	RankDepth int
	// SkippedForKV: a cluster ranked above the selected one was passed over for want of free KV tokens.
	SkippedForKV bool
	// Primary is the label of Stargate's selection metrics, primary against fallback: a returning request went to its last
	// cluster; any other to a rank depth within k.
	Primary bool
	// TTFT is the estimate that placed the cluster in its bucket, for wait-and-widen and pulsar-wait-and-widen.
	TTFT time.Duration
	// Wait of the outcome Wait, more than 0.
	Wait time.Duration
}

// Decide chooses a cluster among the candidates, elapsed after the request's arrival. It draws from rng only
// where Stargate chooses at random.
func (c *Call) Decide(s *Snapshot, elapsed time.Duration, rng *rand.Rand) Decision {
	c.classify(s)
	d := scratches.Get().(*scratch)
	// The copy keeps the caller's Call on its stack.
	d.call, d.config, d.snapshot, d.elapsed, d.rng = *c, c.config, s, max(0, elapsed), rng
	d.excluded, d.members, d.kvDepth = d.excluded[:0], slices.Grow(d.members[:0], s.Len()), 0
	for _, id := range c.excluded {
		if i := s.Index(id); i >= 0 {
			d.excluded = append(d.excluded, int32(i))
		}
	}
	decision := d.decision(d.choose())
	d.call, d.config, d.snapshot, d.rng = Call{}, nil, nil, nil
	scratches.Put(d)
	return decision
}

// scratch is one decision in progress. Its slices are used again by later ones, so that a decision allocates nothing.
type scratch struct {
	call     Call
	config   *Config
	snapshot *Snapshot
	elapsed  time.Duration
	rng      *rand.Rand

	excluded []int32
	members  []member
	// kvDepth is the depth of the first ranked cluster that was passed over for its KV tokens; 0: none was.
	kvDepth int

	buf    []byte
	scores []scored
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// member is a cluster in the set that a choice is made from.
type member struct {
	cluster int32
	depth   int32
	ttft    time.Duration
}

// pick is the result of a choice: a member, or the time until there may be one, forever if never.
type pick struct {
	found  bool
	member member
	wait   time.Duration
}

func found(m member) pick { return pick{found: true, member: m} }

// decision tells the caller what was picked.
func (d *scratch) decision(p pick) Decision {
	switch {
	case !p.found && p.wait == forever:
		return Decision{Outcome: Unavailable}
	case !p.found:
		return Decision{Outcome: Wait, Wait: p.wait}
	}
	depth := int(p.member.depth)
	cluster := d.snapshot.candidates[p.member.cluster].ID
	primary := depth <= max(1, d.config.groupSize())
	if d.call.session == SessionReturning {
		primary = cluster == d.call.request.LastCluster
	}
	return Decision{
		Outcome:      Selected,
		Cluster:      cluster,
		Index:        int(p.member.cluster),
		RankDepth:    depth,
		SkippedForKV: d.kvDepth > 0 && d.kvDepth < depth,
		Primary:      primary,
		TTFT:         p.member.ttft,
	}
}

func (d *scratch) choose() pick {
	switch d.config.Algorithm {
	case v1alpha1.WaitAndWiden:
		return d.waitAndWiden()
	case v1alpha1.PulsarWaitAndWiden:
		return d.pulsarWaitAndWiden()
	case v1alpha1.Pulsar:
		return d.pulsar()
	}
	d.takeAll(1)
	if len(d.members) == 0 {
		return pick{wait: forever}
	}
	switch d.config.Algorithm {
	case v1alpha1.RoundRobin:
		turn := d.call.target.turn.Add(1) - 1
		return found(d.members[turn%uint64(len(d.members))])
	case v1alpha1.Random:
		return found(d.members[d.rng.IntN(len(d.members))])
	}
	return found(d.best(d.members, d.config.SampleCount, 1))
}

func (d *scratch) pulsar() pick {
	ranking := d.ranking()
	for i := range ranking.len() {
		if d.feasible(ranking.at(i), i+1) {
			return found(member{cluster: ranking.at(i), depth: int32(i + 1)})
		}
	}
	return pick{wait: forever}
}

func (d *scratch) waitAndWiden() pick {
	if d.config.groupSize() <= 0 || d.call.request.AffinityKey == "" || d.snapshot.Len() == 0 {
		d.takeAll(1)
		return d.widen(d.config.MaxQueued, 1, d.elapsed)
	}
	group := d.group()
	d.members = d.members[:0]
	for i := range group.len() {
		if !d.isExcluded(group.at(i)) {
			d.members = append(d.members, member{cluster: group.at(i), depth: 1})
		}
	}
	affinityWait, scale := d.affinity()
	within, done := d.affinityPhase(affinityWait, scale)
	if done {
		return within
	}
	d.takeAll(int32(group.len() + 1))
	open := d.widen(d.config.MaxQueued, 1, d.elapsed-affinityWait)
	open.wait = min(open.wait, within.wait)
	return open
}

func (d *scratch) pulsarWaitAndWiden() pick {
	ranking := d.ranking()
	if ranking.len() == 0 {
		return pick{wait: forever}
	}
	k := min(d.config.groupSize(), ranking.len())
	d.takeRanked(ranking, k)
	affinityWait, scale := d.affinity()
	within, done := d.affinityPhase(affinityWait, scale)
	if done {
		return within
	}
	interval := d.config.BandWidenInterval
	if interval == FollowAffinityWait {
		interval = affinityWait
	}
	waited := d.elapsed - affinityWait
	ranks, nextBand := openRanks(k, ranking.len(), interval, waited)
	d.takeRanked(ranking, ranks)
	open := d.widen(d.config.FallbackMaxQueued, 1, waited)
	open.wait = min(open.wait, within.wait, nextBand)
	return open
}

// affinity is X and s as they are for the request: neither is for one that has no cache to go back to.
func (d *scratch) affinity() (wait time.Duration, scale float64) {
	if d.call.session == SessionNew || d.call.session == SessionStale {
		return 0, 1
	}
	return d.config.AffinityWait, d.config.AffinityScale
}

// affinityPhase chooses among the members of the affinity group, and is done when one is found or the affinity
// wait is not over.
func (d *scratch) affinityPhase(wait time.Duration, scale float64) (p pick, done bool) {
	p = d.widen(d.config.MaxQueued, scale, d.elapsed)
	if !p.found && d.elapsed < wait {
		p.wait = min(p.wait, wait-d.elapsed)
		return p, true
	}
	return p, p.found
}

// openRanks is how many of the ranks are open after having waited past the affinity wait, and the time until more are.
// Bands of 2, 4, 8 and so on open beyond the group of k, one per interval; without an interval all at once.
func openRanks(k, ranked int, interval, waited time.Duration) (open int, next time.Duration) {
	if interval == 0 {
		return ranked, forever
	}
	// Past 32 bands everything is open.
	if band := waited / interval; band < 32 {
		if open = k + 1<<(band+2) - 2; open < ranked {
			return open, interval - waited%interval
		}
	}
	return ranked, forever
}

// ranking is the affinity order of pulsar and pulsar-wait-and-widen. A last cluster that is not ranked changes nothing.
func (d *scratch) ranking() order {
	c := &d.call
	ranking := c.router.ranking(c.target, c.request.AffinityKey, d.snapshot, d)
	last := d.lastCluster()
	if last < 0 {
		return order{original: ranking, from: -1}
	}
	return order{ranking, last, slices.Index(ranking, last)}
}

// group is the affinity order of wait-and-widen. A last cluster from outside takes the place of the last member.
func (d *scratch) group() order {
	c := &d.call
	group := c.router.group(c.target, c.request.AffinityKey, d.snapshot, d)
	last := d.lastCluster()
	if last < 0 {
		return order{original: group, from: -1}
	}
	from := slices.Index(group, last)
	if from < 0 {
		from = len(group)
	}
	return order{group, last, from}
}

// lastCluster is the candidate that a returning request came from, -1 when there is none or it has left since.
func (d *scratch) lastCluster() int32 {
	if d.call.session != SessionReturning {
		return -1
	}
	return int32(d.snapshot.Index(d.call.request.LastCluster))
}

// takeAll makes the candidates that are not excluded the members.
func (d *scratch) takeAll(depth int32) {
	d.members = d.members[:0]
	for i := range int32(d.snapshot.Len()) {
		if !d.isExcluded(i) {
			d.members = append(d.members, member{cluster: i, depth: depth})
		}
	}
}

func (d *scratch) isExcluded(cluster int32) bool {
	return len(d.excluded) > 0 && slices.Contains(d.excluded, cluster)
}

// takeRanked makes the feasible clusters of the first ranks the members. One that is not feasible is not replaced.
func (d *scratch) takeRanked(ranking order, ranks int) {
	d.members = d.members[:0]
	for i := range ranks {
		if d.feasible(ranking.at(i), i+1) {
			d.members = append(d.members, member{cluster: ranking.at(i), depth: int32(i + 1)})
		}
	}
}

// feasible is the filter on ranked clusters. It notes the first that fails for its KV tokens.
func (d *scratch) feasible(cluster int32, depth int) bool {
	if d.isExcluded(cluster) {
		return false
	}
	if d.config.ConsiderKVFree && !d.snapshot.candidates[cluster].fitsKV(d.call.request.InputTokens) {
		if d.kvDepth == 0 {
			d.kvDepth = depth
		}
		return false
	}
	return true
}

// widen chooses among the members by buckets of the time to first token, of which as many are unlocked as the time waited
// allows, or says when the next one unlocks if that can help. It leaves the members changed.
func (d *scratch) widen(limit uint64, scale float64, waited time.Duration) pick {
	d.estimate(scale)
	slowest, wait := d.unlock(waited)
	free, behind := d.members[:0], false
	for _, m := range d.members {
		if !d.snapshot.candidates[m.cluster].hasCapacity(limit) {
			continue
		}
		if m.ttft <= slowest {
			free = append(free, m)
		} else {
			behind = true
		}
	}
	switch {
	case len(free) > 0:
		return found(d.best(free, d.config.SampleN, scale))
	case behind:
		return pick{wait: wait}
	}
	return pick{wait: forever}
}

// estimate keeps the members within the queue SLO whose time to first token is finite, and notes that time.
func (d *scratch) estimate(scale float64) {
	c, r := d.config, &d.call.request
	kept := d.members[:0]
	for _, m := range d.members {
		candidate := &d.snapshot.candidates[m.cluster]
		m.ttft = candidate.RTT
		if !c.IgnoreQueueTime || c.QueueSLO {
			delay := candidate.queueDelay(r.Priority)
			if !c.withinSLO(delay, d.elapsed, r.SLO) {
				continue
			}
			if !c.IgnoreQueueTime {
				m.ttft = add(m.ttft, delay)
			}
		}
		if !c.IgnoreInputTime {
			m.ttft = add(m.ttft, candidate.prefill(r.InputTokens, scale))
		}
		if m.ttft != forever {
			kept = append(kept, m)
		}
	}
	d.members = kept
}

// unlock is the slowest time to first token that an unlocked bucket holds, and the time until the next bucket unlocks. Each
// unlock uses up its share of the time waited. A pass per bucket is cheaper than sorting the members, since few
// buckets are unlocked as a rule.
func (d *scratch) unlock(waited time.Duration) (slowest, wait time.Duration) {
	start := d.fastestAfter(-forever)
	for {
		end := add(start, max(0, d.config.BucketSize))
		next := d.fastestAfter(end)
		if next == forever {
			return end, forever
		}
		// However dear a bucket is, it is one to wait for.
		price := min(nanoseconds(float64(next-start)*d.config.UnlockFactor), forever-1)
		if waited < price {
			return end, add(price, -waited)
		}
		waited, start = add(waited, -price), next
	}
}

// fastestAfter is the shortest time to first token of a member that is longer than the time, forever if there is none.
func (d *scratch) fastestAfter(after time.Duration) time.Duration {
	fastest := forever
	for i := range d.members {
		if ttft := d.members[i].ttft; ttft > after && ttft < fastest {
			fastest = ttft
		}
	}
	return fastest
}

// best samples n of the members without replacement, in random order, and picks the best of them, the first of equals.
func (d *scratch) best(members []member, n int, scale float64) member {
	n = min(max(1, n), len(members))
	fixed := d.config.Algorithm == v1alpha1.PulsarWaitAndWiden
	var (
		winner member
		lowest float64
	)
	for i := range n {
		j := i
		if len(members) > 1 {
			j += d.rng.IntN(len(members) - i)
		}
		members[i], members[j] = members[j], members[i]
		m, candidate := members[i], &d.snapshot.candidates[members[i].cluster]
		if n == 1 {
			return m
		}
		if fixed {
			if i == 0 || lessLoaded(candidate, &d.snapshot.candidates[winner.cluster], d.call.request.Priority) {
				winner = m
			}
			continue
		}
		if score := candidate.score(d.config.Comparator, &d.call.request, scale); i == 0 || score < lowest {
			winner, lowest = m, score
		}
	}
	return winner
}
