package simulate

import "time"

// kind of event. Of events at the same time the lower kind comes first.
type kind uint8

const (
	// timelineMoment of a cluster.
	timelineMoment kind = iota
	// publication of a cluster's statistics.
	publication
	// firstToken of a request reaches the gateway.
	firstToken
	// completion of a request in its cluster.
	completion
	// reached: a request reaches its cluster.
	reached
	// decision of a request that waits for a cluster.
	decision
	// arrival of the next request of a session, or of a trace.
	arrival
	// sessionStart of a traffic.
	sessionStart
)

// event is something that is going to happen to what ref names: a cluster, a request, a session or a traffic.
type event struct {
	at time.Duration
	// order is the kind in the top byte and the number of the event.
	order uint64
	ref   int32
	// ticket that the request must still hold for the event to count.
	ticket uint32
}

func (e *event) kind() kind { return kind(e.order >> 56) }

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.order < f.order
}

// eventQueue is a heap of events with four children to a node, which is shallower than one with two and so faster.
type eventQueue struct {
	heap   []event
	pushed uint64
}

func (q *eventQueue) push(at time.Duration, k kind, ref int32, ticket uint32) {
	e := event{at, uint64(k)<<56 | q.pushed, ref, ticket}
	q.pushed++
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = e
}

// pop takes the first event from a queue that has one.
func (q *eventQueue) pop() event {
	top := q.heap[0]
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap = q.heap[:last]
	if last == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= last {
			break
		}
		child := first
		for j := first + 1; j < min(first+4, last); j++ {
			if q.heap[j].before(&q.heap[child]) {
				child = j
			}
		}
		if !q.heap[child].before(&e) {
			break
		}
		q.heap[i] = q.heap[child]
		i = child
	}
	q.heap[i] = e
	return top
}

// pool hands out objects by number and uses those that were given back again.
type pool[T any] struct {
	all  []*T
	free []int32
}

func (p *pool[T]) get() (int32, *T) {
	if last := len(p.free) - 1; last >= 0 {
		i := p.free[last]
		p.free = p.free[:last]
		return i, p.all[i]
	}
	p.all = append(p.all, new(T))
	return int32(len(p.all) - 1), p.all[len(p.all)-1]
}

func (p *pool[T]) put(i int32) {
	var zero T
	*p.all[i] = zero
	p.free = append(p.free, i)
}
