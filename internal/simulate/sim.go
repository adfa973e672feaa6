package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/internal/routing"
)

// Run simulates one variant.
func Run(ctx context.Context, setup Setup) (*Result, error) {
	s, err := newSim(setup)
	if err != nil {
		return nil, fmt.Errorf("simulating %q: %w", setup.Variant.Name(), err)
	}
	for n := 0; s.step(); n++ {
		if n%(1<<14) != 0 {
			continue
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("simulating %q: %w", setup.Variant.Name(), context.Cause(ctx))
		}
		if setup.Progress != nil {
			setup.Progress(min(1, float64(s.now)/float64(s.duration)))
		}
	}
	if s.err != nil {
		return nil, fmt.Errorf("simulating %q: %w", setup.Variant.Name(), s.err)
	}
	return s.result(), nil
}

// sim is a simulation in progress.
type sim struct {
	Setup
	duration time.Duration
	ttl      time.Duration

	now    time.Duration
	events eventQueue
	// live counts the requests on their way, coming the arrivals that are due.
	live, coming int

	models   []*model
	clusters []*cluster
	replicas []*replica
	traffics []*traffic
	requests pool[request]
	sessions pool[session]

	sessionIDs, keyIDs uint64
	tickets            uint32
	err                error

	draw *sessionRand
	// assign chooses the replica of a request.
	assign *rand.Rand
	replay replay
}

// model is a model and its figures.
type model struct {
	name string
	// headers of its requests.
	headers *Traffic
	figures *figures
}

// request is a request on its way.
type request struct {
	turn
	call routing.Call
	// ticket is on the events that count for the request; 0: the request is over.
	ticket  uint32
	replica int32
	// cluster that the request was sent to, -1: none yet.
	cluster int32
	// cameFrom is the cluster that served the session last, -1: none did.
	cameFrom int32
	arrived  time.Duration
	sent     time.Duration
	reached  time.Duration
	admitted time.Duration
	// first is when the first token passes the gateway.
	first  time.Duration
	reused int64
	// epoch of the cluster when the request reached it.
	epoch uint32
	place place
}

// place is how far a request has come.
type place uint8

const (
	inRouter place = iota
	onItsWay
	inQueue
	inSlot
	streaming
)

func (r *request) demand(s *sim) demand {
	d := demand{session: sessionContext(s.sessions.all[r.session].id), input: r.input, shared: r.shared, reusable: r.reusable, output: r.output}
	if r.key == nil {
		d.shared = 0
	} else {
		d.prefix = sharedPrefix(r.key.id)
	}
	return d
}

// come schedules an arrival, unless the time is over.
func (s *sim) come(at time.Duration, k kind, ref int32) bool {
	if at >= s.duration {
		return false
	}
	s.coming++
	s.events.push(at, k, ref, 0)
	return true
}

// follow schedules what happens next to a request.
func (s *sim) follow(after time.Duration, k kind, i int32, r *request) {
	s.events.push(s.now+after, k, i, r.ticket)
}

// patience is how long after the last arrivals the requests are followed. One that is not done then, such as one that
// waits for a slot that other traffic never leaves, is unfinished.
const patience = time.Hour

// step lets the next event happen, and is false when every request has ended and none is to come, or on an error.
func (s *sim) step() bool {
	if s.live+s.coming == 0 || s.err != nil {
		return false
	}
	e := s.events.pop()
	if limit := s.duration + patience; e.at > limit {
		s.now = limit
		s.giveUp()
		return false
	}
	s.now = e.at
	switch k := e.kind(); k {
	case timelineMoment:
		s.moment(e.ref, int(e.ticket))
	case publication:
		s.publish(e.ref)
		s.events.push(s.now+s.Site.StatisticsInterval.Duration, publication, e.ref, 0)
	case sessionStart:
		s.coming--
		s.startSession(e.ref)
	case arrival:
		s.coming--
		if s.Trace != nil {
			s.replayNext()
		} else {
			s.nextTurn(e.ref)
		}
	default:
		r := s.requests.all[e.ref]
		if r.ticket != e.ticket {
			break
		}
		switch k {
		case decision:
			s.decide(e.ref, r)
		case reached:
			s.reach(e.ref, r)
		case firstToken:
			s.answer(r)
		case completion:
			s.complete(e.ref, r)
		}
	}
	return true
}

func (s *sim) startSession(i int32) {
	g := s.traffics[i]
	if at, ok := g.next(s.now); ok {
		s.come(at, sessionStart, i)
	}
	n, c := s.sessions.get()
	s.sessionIDs++
	c.id, c.traffic = s.sessionIDs, i
	g.begin(c, s.draw, s.newKey)
	s.nextTurn(n)
}

func (s *sim) nextTurn(i int32) {
	c := s.sessions.all[i]
	t, ok := s.traffics[c.traffic].take(c, s.draw)
	if !ok {
		s.sessions.put(i)
		return
	}
	t.session = i
	s.arrive(t)
}

// answered lets a session think after the end of a request, at the client.
func (s *sim) answered(i int32, c *session, after time.Duration) {
	if s.Trace != nil {
		return
	}
	if !s.come(s.now+after+c.think, arrival, i) {
		s.sessions.put(i)
	}
}

// arrive takes a request in at one of the replicas.
func (s *sim) arrive(t turn) {
	m, c := s.models[t.model], s.sessions.all[t.session]
	i, r := s.requests.get()
	r.turn, r.arrived, r.cluster, r.cameFrom, r.place = t, s.now, -1, c.last, inRouter
	r.replica = int32(s.assign.IntN(len(s.replicas)))
	s.renew(r)
	s.live++
	if s.measured(r) {
		m.figures.arrived++
	}
	asked := routingRequest(m.headers)
	asked.InputTokens = uint64(t.input)
	if t.key != nil {
		asked.AffinityKey = t.key.name
		if *s.Site.Gateway.LastCluster && t.key.last >= 0 && s.now-t.key.remembered <= s.ttl {
			asked.LastCluster = s.clusters[t.key.last].name
		}
	}
	if s.Record != nil {
		s.Record(TraceRequest{s.now, c.name, m.name, asked.AffinityKey, t.input, t.output, t.reusable, t.shared})
	}
	call, err := s.replicas[r.replica].router.NewCall(asked)
	if err != nil {
		s.end(i, r, refused, 0)
		return
	}
	r.call = call
	s.decide(i, r)
}

// routingRequest is what all requests of a traffic have in common.
func routingRequest(t *Traffic) routing.Request {
	r := routing.Request{RoutingKey: t.RoutingKey, Model: t.Model, Method: t.RoutingMethod, Priority: t.Priority, SLO: t.RequestSLO.Duration}
	if t.MaxWait != nil {
		r.MaxWait = &t.MaxWait.Duration
	}
	return r
}

// renew gives the request a ticket that no event has yet.
func (s *sim) renew(r *request) {
	s.tickets++
	r.ticket = s.tickets
}

func (s *sim) measured(r *request) bool { return r.arrived >= s.Workload.Warmup.Duration }

func (s *sim) decide(i int32, r *request) {
	p := s.replicas[r.replica]
	v := &p.views[r.model]
	step := r.call.Next(v.snapshot, s.now-r.arrived, p.rng)
	switch step.Action {
	case routing.Retry:
		s.follow(step.After, decision, i, r)
	case routing.Fail:
		s.end(i, r, failureOf(step.Err), 0)
	case routing.Send:
		r.cluster, r.sent, r.place = v.clusters[step.Index], s.now, onItsWay
		p.pending[r.cluster].assign(uint64(r.input))
		s.look(p, r.cluster)
		s.follow(s.clusters[r.cluster].oneWay, reached, i, r)
	}
}

func failureOf(err error) outcome {
	switch {
	case errors.Is(err, routing.ErrOverloaded):
		return overloaded
	case errors.Is(err, routing.ErrWaitedTooLong):
		return waitedTooLong
	}
	return unavailable
}

// reach lets a request reach its cluster.
func (s *sim) reach(i int32, r *request) {
	c, own := s.clusters[r.cluster], &s.replicas[r.replica].pending[r.cluster]
	own.arrive(uint64(r.input))
	switch d := r.demand(s); {
	case !c.up:
		own.drop(uint64(r.input))
		s.tryElsewhere(i, r)
		return
	case d.tokens() > c.cache.capacity:
		own.drop(uint64(r.input))
		s.look(s.replicas[r.replica], r.cluster)
		s.end(i, r, tooLong, c.oneWay)
		return
	}
	r.epoch, r.reached, r.place = c.epoch, s.now, inQueue
	c.push(i, r.input)
	s.admit(c)
}

// admit gives slots to queued requests while there are any and the KV cache has room for the first.
func (s *sim) admit(c *cluster) {
	for c.queued() > 0 && c.running+c.slotsTaken < c.slots {
		i := c.queue[c.head]
		r := s.requests.all[i]
		d := r.demand(s)
		cached, ok := c.cache.admit(&d)
		if !ok {
			break
		}
		c.pop(r.input)
		c.running++
		r.reused, r.admitted, r.place = cached, s.now, inSlot
		c.prefillFree = min(max(c.prefillFree, s.now)+seconds(float64(r.input-cached)/(c.prefillRate*c.factor)), never)
		r.first = c.prefillFree + c.oneWay
		s.follow(r.first-s.now, firstToken, i, r)
		s.follow(c.prefillFree-s.now+seconds(float64(r.output)/c.decodeRate), completion, i, r)
	}
	c.load.set(s.now, float64(c.busy())/float64(c.slots))
}

// never is a time that no simulation reaches. A few of them add up to a duration still.
const never = 1e9 * time.Second

// seconds as a duration, never at the most.
func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), float64(never)))
}

// answer lets the first token of a request pass the gateway.
func (s *sim) answer(r *request) {
	c := s.sessions.all[r.session]
	c.last = r.cluster
	if r.key != nil {
		r.key.last, r.key.remembered = r.cluster, s.now
	}
	r.place = streaming
	if s.measured(r) {
		s.models[r.model].figures.answered(r)
	}
}

func (s *sim) complete(i int32, r *request) {
	if r.place == inSlot {
		// The whole answer is shorter than the way back.
		s.answer(r)
	}
	c, p := s.clusters[r.cluster], s.replicas[r.replica]
	d := r.demand(s)
	c.cache.release(&d)
	c.running--
	if r.epoch == c.epoch {
		p.pending[r.cluster].drop(uint64(r.input))
		s.look(p, r.cluster)
	}
	s.sessions.all[r.session].context = r.input + r.output
	s.end(i, r, served, c.oneWay)
	s.admit(c)
}

// end of a request, of which the client learns after a while.
func (s *sim) end(i int32, r *request, how outcome, after time.Duration) {
	if s.measured(r) {
		s.models[r.model].figures.ended(r, how, s.Workload.GoodputTTFT.Duration)
	}
	n := r.session
	s.live--
	s.requests.put(i)
	s.answered(n, s.sessions.all[n], after)
}

// giveUp ends the requests that are still on their way.
func (s *sim) giveUp() {
	for i, r := range s.requests.all {
		if r.ticket != 0 {
			s.end(int32(i), r, unfinished, 0)
		}
	}
}

// tryElsewhere decides again about a request whose cluster is gone.
func (s *sim) tryElsewhere(i int32, r *request) {
	s.renew(r)
	r.call.Exclude(s.clusters[r.cluster].name)
	r.cluster, r.place = -1, inRouter
	if s.measured(r) {
		s.models[r.model].figures.retried++
	}
	s.decide(i, r)
}

func (s *sim) publish(i int32) {
	c := s.clusters[i]
	c.epoch++
	c.published = c.statistics()
	for _, p := range s.replicas {
		p.pending[i].publish()
		s.look(p, i)
	}
}

// moment applies the n-th entry of a cluster's timeline.
func (s *sim) moment(i int32, n int) {
	c := s.clusters[i]
	m := &c.timeline[n]
	if n+1 < len(c.timeline) {
		s.events.push(s.now+c.timeline[n+1].At.Duration-m.At.Duration, timelineMoment, i, uint32(n+1))
	} else if c.period > 0 {
		s.events.push(s.now+c.period+c.timeline[0].At.Duration-m.At.Duration, timelineMoment, i, 0)
	}
	c.slotsTaken = ptr.Deref(m.SlotsTaken, c.slotsTaken)
	c.factor = ptr.Deref(m.PrefillFactor, c.factor)
	if up := ptr.Deref(m.Up, c.up); up != c.up {
		s.connect(i, up)
	}
	s.admit(c)
	if s.now == 0 {
		// What holds from the beginning is known from the beginning.
		s.publish(i)
	}
}

// connect or cut off a cluster, of which the replicas learn at once since its connections break.
func (s *sim) connect(i int32, up bool) {
	c := s.clusters[i]
	c.up = up
	if !up {
		c.cache = newKVCache(c.cache.capacity)
		c.queue, c.head, c.queuedTokens, c.running, c.prefillFree = nil, 0, 0, 0, 0
	}
	s.publish(i)
	s.err = s.setCandidates()
	if up || s.err != nil {
		return
	}
	for n, r := range s.requests.all {
		if r.ticket == 0 || r.cluster != i {
			continue
		}
		switch r.place {
		case inQueue, inSlot:
			s.tryElsewhere(int32(n), r)
		case streaming:
			s.end(int32(n), r, cutOff, 0)
		}
	}
}
