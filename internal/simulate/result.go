package simulate

import (
	"math"
	"slices"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Result is what a run found. Times are in milliseconds and shares from 0 to 1.
type Result struct {
	// Variant is its name, Policy and Flag what it is made of.
	Variant string `json:"variant"`
	Policy  string `json:"policy"`
	Flag    Flag   `json:"flag,omitempty"`
	// AsWritten says that the policies have the flag like this.
	AsWritten bool `json:"asWritten"`
	// WindowSeconds is the width of a window in everything that is over time.
	WindowSeconds float64         `json:"windowSeconds"`
	Models        []ModelResult   `json:"models"`
	Clusters      []ClusterResult `json:"clusters"`
}

// ModelResult is the figures of one model.
type ModelResult struct {
	Model     string             `json:"model"`
	Algorithm v1alpha1.Algorithm `json:"algorithm"`
	// Requests that arrived after the warm-up. Each is served or fails for one of the reasons.
	Requests int `json:"requests"`
	Served   int `json:"served"`
	// Failed requests and why.
	Failed   int      `json:"failed"`
	Failures Failures `json:"failures"`
	// Retried counts attempts on a cluster that failed before the first token.
	Retried int `json:"retried"`

	// KVReuse is the share of input tokens that a KV cache served.
	KVReuse float64 `json:"kvReuse"`
	// Recomputed is the share of the tokens of a session's earlier turns that were computed again.
	Recomputed float64 `json:"recomputed"`
	// InputTokens of requests with an answer, and PrefillTokens, those of them that were computed.
	InputTokens   int64 `json:"inputTokens"`
	PrefillTokens int64 `json:"prefillTokens"`

	// TTFT is the time from arrival to the first token, of all requests with an answer, of the first requests of sessions,
	// and of the others.
	TTFT          Times `json:"ttftMs"`
	TTFTNew       Times `json:"ttftNewMs"`
	TTFTReturning Times `json:"ttftReturningMs"`
	// RoutingWait is the time from arrival to the cluster's selection, QueueWait that in the cluster until a slot was free.
	RoutingWait Times `json:"routingWaitMs"`
	QueueWait   Times `json:"queueWaitMs"`

	// Goodput is requests per second that were served with a time to first token within the limit, GoodputShare their
	// share of all requests.
	Goodput      float64 `json:"goodput"`
	GoodputShare float64 `json:"goodputShare"`

	// Returning requests are those of a session that got an answer before; Left those of them that went to another
	// cluster than that answer came from.
	Returning int     `json:"returning"`
	Left      int     `json:"left"`
	LeftShare float64 `json:"leftShare"`

	// Clusters has the number of requests with an answer from each cluster, in the order of Result.Clusters.
	Clusters []int `json:"requestsPerCluster"`

	// TTFTDistribution is the share of requests with an answer within a time, at growing times.
	TTFTDistribution []Point `json:"ttftDistribution"`
	// ReuseOverTime is KVReuse by window of the first token; null where there was none.
	ReuseOverTime []*float64 `json:"reuseOverTime"`
}

// Failures are requests that failed, by reason.
type Failures struct {
	// Refused by the configuration (400).
	Refused int `json:"refused"`
	// Overloaded: over the admission limit.
	Overloaded int `json:"overloaded"`
	// Unavailable: no cluster could take the request.
	Unavailable int `json:"unavailable"`
	// WaitedTooLong for a cluster.
	WaitedTooLong int `json:"waitedTooLong"`
	// TooLong for the KV cache of its cluster.
	TooLong int `json:"tooLong"`
	// CutOff by the failure of the cluster in the middle of the answer.
	CutOff int `json:"cutOff"`
	// Unfinished an hour after the last arrivals.
	Unfinished int `json:"unfinished"`
}

// Times summarise a distribution, in milliseconds.
type Times struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Point of a cumulative distribution.
type Point struct {
	Ms    float64 `json:"ms"`
	Share float64 `json:"share"`
}

// ClusterResult is the load of one cluster.
type ClusterResult struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"`
	// LoadOverTime is the mean of the requests that the cluster had accepted, those not simulated included, over its slots,
	// by window. Above 1 requests were queued.
	LoadOverTime []float64 `json:"loadOverTime"`
}

func (s *sim) result() *Result {
	v := &s.Variant
	r := &Result{Variant: v.Name(), Policy: v.Policy, Flag: v.Flag, AsWritten: v.Written, WindowSeconds: rounded((s.duration / windows).Seconds())}
	for _, c := range s.clusters {
		c.load.set(max(s.now, s.duration), 0)
		over := make([]float64, windows)
		for i, load := range c.load.windows {
			over[i] = rounded(load)
		}
		r.Clusters = append(r.Clusters, ClusterResult{c.name, c.slots, over})
	}
	for _, m := range s.models {
		r.Models = append(r.Models, s.modelResult(m))
	}
	return r
}

func (s *sim) modelResult(m *model) ModelResult {
	f := m.figures
	measured := (s.duration - s.Workload.Warmup.Duration).Seconds()
	r := ModelResult{
		Model: m.name, Algorithm: s.algorithm(m),
		Requests: f.arrived, Served: f.ends[served], Failed: f.arrived - f.ends[served], Retried: f.retried,
		Failures: Failures{f.ends[refused], f.ends[overloaded], f.ends[unavailable], f.ends[waitedTooLong], f.ends[tooLong], f.ends[cutOff], f.ends[unfinished]},
		KVReuse:  share(f.reused, f.input), Recomputed: share(f.again, f.before),
		InputTokens: f.input, PrefillTokens: f.input - f.reused,
		TTFT: timesOf(f.ttft), TTFTNew: timesOf(f.ttftNew), TTFTReturning: timesOf(f.ttftReturning),
		RoutingWait: timesOf(f.routing), QueueWait: timesOf(f.queue),
		Goodput: rounded(float64(f.good) / measured), GoodputShare: share(f.good, f.arrived),
		Returning: f.returning, Left: f.left, LeftShare: share(f.left, f.returning),
		Clusters: slices.Clone(f.clusters), TTFTDistribution: distribution(f.ttft),
	}
	for w, tokens := range f.inputOver {
		var reuse *float64
		if tokens > 0 {
			x := share(f.reusedOver[w], tokens)
			reuse = &x
		}
		r.ReuseOverTime = append(r.ReuseOverTime, reuse)
	}
	return r
}

// algorithm that the model's requests run, empty where the configuration refuses what they ask for.
func (s *sim) algorithm(m *model) v1alpha1.Algorithm {
	request := routingRequest(m.headers)
	request.AffinityKey = "any"
	call, err := s.replicas[0].router.NewCall(request)
	if err != nil {
		return ""
	}
	return call.Config().Algorithm
}

func milliseconds(ticks float64) float64 {
	return rounded(ticks * float64(tick) / float64(time.Millisecond))
}

func timesOf(h *hdr.Histogram) Times {
	if h.TotalCount() == 0 {
		return Times{}
	}
	at := func(percent float64) float64 { return milliseconds(float64(h.ValueAtQuantile(percent))) }
	return Times{h.TotalCount(), milliseconds(h.Mean()), at(50), at(90), at(99), milliseconds(float64(h.Max()))}
}

// distribution has times that grow by a fifteenth each, and one more at either end: from the last that no request was
// within to the first that all were.
func distribution(h *hdr.Histogram) []Point {
	var points []Point
	total, within, ms := h.TotalCount(), int64(0), 1.0
	add := func() {
		points = append(points, Point{math.Round(ms*100) / 100, share(within, total)})
	}
	for _, bar := range h.Distribution() {
		if bar.Count == 0 {
			continue
		}
		if at := milliseconds(float64(bar.To)); at > ms {
			for ; ms*growth < at; ms *= growth {
				if within > 0 {
					add()
				}
			}
			add()
			ms *= growth
		}
		within += bar.Count
	}
	if total > 0 {
		add()
	}
	return points
}

// growth of the times of a distribution.
const growth = 16.0 / 15
