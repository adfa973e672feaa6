package simulate

import (
	"math"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// outcome is how a request ended.
type outcome int

const (
	served outcome = iota
	// refused: the configuration refuses the request (400).
	refused
	// overloaded: the admission limit max_input_work_seconds.
	overloaded
	unavailable
	waitedTooLong
	// tooLong: the request does not fit the KV cache of the cluster that it came to.
	tooLong
	// cutOff: the cluster failed in the middle of the answer.
	cutOff
	// unfinished: not done when the simulation gave up following the requests.
	unfinished
	outcomes
)

// windows is the number of windows in a series over time.
const windows = 60

// figures are counted for one model while a simulation runs.
type figures struct {
	arrived, retried int
	ends             [outcomes]int
	good             int
	returning, left  int
	clusters         []int

	// Tokens of requests that got an answer: of the input, of that from the cache, of what the sessions had sent before, and of
	// that what was computed again.
	input, reused, before, again int64

	ttft, ttftNew, ttftReturning, routing, queue *hdr.Histogram

	// inputOver and reusedOver are the tokens by window.
	inputOver, reusedOver []int64
	width                 time.Duration
}

// tick is the resolution of the histograms. They have three significant digits.
const (
	tick    = 10 * time.Microsecond
	longest = longestTime + patience
)

func newFigures(clusters int, duration time.Duration) *figures {
	f := &figures{
		clusters: make([]int, clusters), inputOver: make([]int64, windows), reusedOver: make([]int64, windows),
		width: max(1, duration/windows),
	}
	for _, h := range []**hdr.Histogram{&f.ttft, &f.ttftNew, &f.ttftReturning, &f.routing, &f.queue} {
		*h = hdr.New(1, int64(longest/tick), 3)
	}
	return f
}

// record a time. No request is followed for longer than the longest.
func record(h *hdr.Histogram, d time.Duration) {
	// The only error is a value out of range.
	_ = h.RecordValue(int64(d / tick))
}

// answered counts a request whose first token has passed the gateway.
func (f *figures) answered(r *request) {
	ttft := r.first - r.arrived
	record(f.ttft, ttft)
	record(f.routing, r.sent-r.arrived)
	record(f.queue, r.admitted-r.reached)
	if r.cameFrom < 0 {
		record(f.ttftNew, ttft)
	} else {
		record(f.ttftReturning, ttft)
		f.returning++
		if r.cameFrom != r.cluster {
			f.left++
		}
	}
	f.clusters[r.cluster]++
	f.input += r.input
	f.reused += r.reused
	f.before += r.reusable
	f.again += max(0, r.reusable-r.reused)
	if w := int(r.first / f.width); w < windows {
		f.inputOver[w] += r.input
		f.reusedOver[w] += r.reused
	}
}

// ended counts a request that is over.
func (f *figures) ended(r *request, how outcome, limit time.Duration) {
	f.ends[how]++
	if how == served && r.first-r.arrived <= limit {
		f.good++
	}
}

// rounded keeps four digits behind the point, more than the figures are worth.
func rounded(x float64) float64 { return math.Round(x*1e4) / 1e4 }

func share[T int | int64](part, whole T) float64 {
	if whole == 0 {
		return 0
	}
	return rounded(float64(part) / float64(whole))
}
