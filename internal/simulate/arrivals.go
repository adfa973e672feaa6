package simulate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/zeebo/xxh3"
)

// randomness gives a source of random numbers for one purpose, which depends on nothing but the seed and the purpose.
func randomness(seed uint64, purpose string, number uint64) rand.PCG {
	b := binary.LittleEndian.AppendUint64(nil, seed)
	b = binary.LittleEndian.AppendUint64(b, number)
	h := xxh3.Hash128(append(b, purpose...))
	return *rand.NewPCG(h.Hi, h.Lo)
}

// affinityKey is a cache affinity key, and what the gateway remembers of it.
type affinityKey struct {
	id   uint64
	name string
	// last cluster, remembered at a time; -1: none.
	last       int32
	remembered time.Duration
}

// session is a conversation.
type session struct {
	// id is unique in a run.
	id uint64
	// key is nil without an affinity key.
	key *affinityKey
	// last is the cluster that served the session last, -1: none did.
	last int32

	// What follows is of sessions that a traffic generates.
	name    string
	traffic int32
	source  rand.PCG
	// turns still to come.
	turns int
	// context is the number of tokens so far, of which the first shared are the prefix of the key.
	context, shared int64
	// think is the time between the answer to the current turn and the next turn.
	think time.Duration
}

// turn is one request of a session.
type turn struct {
	session, model                  int32
	key                             *affinityKey
	input, output, reusable, shared int64
}

// traffic generates the sessions of one model.
type traffic struct {
	*Traffic
	model int32
	seed  uint64
	// started counts sessions.
	started  uint64
	arrivals *rand.Rand
	hot      []*affinityKey
	// uses is the cumulated probability of the hot keys.
	uses                                    []float64
	turns, think, firstInput, input, output logNormal
}

func newTraffic(t *Traffic, model int32, seed uint64, newKey func(name string) *affinityKey) *traffic {
	source := randomness(seed, "arrivals of "+t.Model, 0)
	g := &traffic{
		Traffic: t, model: model, seed: seed, arrivals: rand.New(&source),
		turns: t.Turns.distribution(), think: t.ThinkTime.distribution(), firstInput: t.FirstInputTokens.distribution(),
		input: t.InputTokens.distribution(), output: t.OutputTokens.distribution(),
	}
	if *t.HotSet.Share > 0 {
		sum := 0.0
		for i := range *t.HotSet.Keys {
			g.hot = append(g.hot, newKey(fmt.Sprintf("%s hot %d", t.Model, i+1)))
			sum += math.Pow(float64(i+1), -*t.HotSet.Exponent)
			g.uses = append(g.uses, sum)
		}
	}
	return g
}

// next is the time of the next session after one, and false if there is none.
func (g *traffic) next(after time.Duration) (time.Duration, bool) {
	work := 1.0
	if g.Arrivals == Poisson {
		work = g.arrivals.ExpFloat64()
	}
	factor, change := 1.0, 0
	for ; change < len(g.Rate) && g.Rate[change].At.Duration <= after; change++ {
		factor = *g.Rate[change].Factor
	}
	at := after.Seconds()
	for {
		rate := *g.SessionsPerSecond * factor
		end := math.Inf(1)
		if change < len(g.Rate) {
			end = g.Rate[change].At.Seconds()
		}
		if rate > 0 && at+work/rate <= end {
			at += work / rate
			break
		}
		if math.IsInf(end, 1) {
			return 0, false
		}
		work -= rate * (end - at)
		at, factor = end, *g.Rate[change].Factor
		change++
	}
	if at >= math.MaxInt64/float64(time.Second) {
		return 0, false
	}
	return time.Duration(math.Round(at * float64(time.Second))), true
}

// begin fills in a session that begins, before its first turn. Rng draws from the session's own source.
func (g *traffic) begin(c *session, rng *sessionRand, newKey func(name string) *affinityKey) {
	c.name = fmt.Sprintf("%s %d", g.Model, g.started)
	c.source = randomness(g.seed, "session of "+g.Model, g.started)
	g.started++
	c.last = -1
	from := rng.of(c)
	hot, keyless, which := from.Float64(), from.Float64(), from.Float64()
	switch {
	case hot < *g.HotSet.Share:
		i := sort.SearchFloat64s(g.uses, which*g.uses[len(g.uses)-1])
		c.key = g.hot[i]
		c.shared = *g.HotSet.PrefixTokens
	case keyless >= *g.KeylessShare:
		c.key = newKey(c.name)
	}
	c.turns = int(max(1, math.Round(g.turns.of(from.NormFloat64()))))
	c.context = 0
}

// take draws a session's next turn, and is false when the session is over.
func (g *traffic) take(c *session, rng *sessionRand) (t turn, ok bool) {
	if c.turns == 0 {
		return turn{}, false
	}
	c.turns--
	from := rng.of(c)
	added, least := g.input, int64(0)
	if c.context == 0 {
		added, least = g.firstInput, 1
	}
	t = turn{
		model: g.model, key: c.key, shared: c.shared,
		reusable: int64(math.Round(*g.PrefixReuse * float64(c.context))),
		input:    max(least, int64(math.Round(added.of(from.NormFloat64())))),
		output:   int64(max(1, math.Round(g.output.of(from.NormFloat64())))),
	}
	c.think = seconds(g.think.of(from.NormFloat64()) / float64(time.Second))
	t.input += max(c.context, c.shared)
	return t, t.input <= *g.MaxContextTokens
}

// sessionRand draws random numbers from the source of one session after the other.
type sessionRand struct {
	source *rand.PCG
	rng    *rand.Rand
}

func newSessionRand() *sessionRand {
	r := &sessionRand{}
	r.rng = rand.New(r)
	return r
}

func (r *sessionRand) of(c *session) *rand.Rand {
	r.source = &c.source
	return r.rng
}

// Uint64 makes the current session's source a rand.Source.
func (r *sessionRand) Uint64() uint64 { return r.source.Uint64() }

// replay is where a run has come in its trace.
type replay struct {
	next   int
	models map[string]int32
	// Sessions and affinity keys of the trace. Those of different models have nothing in common.
	sessions map[replayName]int32
	keys     map[replayName]*affinityKey
}

type replayName struct {
	model int32
	name  string
}

func (s *sim) startReplay() {
	s.replay = replay{models: map[string]int32{}, sessions: map[replayName]int32{}, keys: map[replayName]*affinityKey{}}
	for i, m := range s.models {
		s.replay.models[m.name] = int32(i)
	}
	s.come(s.Trace[0].Time, arrival, 0)
}

// replayNext lets the next request of the trace arrive.
func (s *sim) replayNext() {
	p := &s.replay
	line := &s.Trace[p.next]
	p.next++
	if p.next < len(s.Trace) {
		s.come(s.Trace[p.next].Time, arrival, 0)
	}
	model := p.models[line.Model]
	n, ok := p.sessions[replayName{model, line.Session}]
	if !ok {
		var c *session
		n, c = s.sessions.get()
		s.sessionIDs++
		c.id, c.name, c.last = s.sessionIDs, line.Session, -1
		p.sessions[replayName{model, line.Session}] = n
	}
	var key *affinityKey
	if line.AffinityKey != "" {
		if key, ok = p.keys[replayName{model, line.AffinityKey}]; !ok {
			key = s.newKey(line.AffinityKey)
			p.keys[replayName{model, line.AffinityKey}] = key
		}
	}
	s.arrive(turn{
		session: n, model: model, key: key,
		input: line.InputTokens, output: line.OutputTokens, reusable: line.ReusableTokens, shared: line.SharedTokens,
	})
}
