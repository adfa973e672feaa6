package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/internal/routing"
)

// sticky is the settings of an algorithm with k = 1 and the flag.
func sticky(algorithm string) string {
	return "algorithm: " + algorithm + `, cacheAffinityBackendSelectionCount: 1, cacheAffinityWaitMs: 300, cacheAffinityInputTokensScale: "0.1", lastClusterAffinity: true`
}

var affine = []string{"wait-and-widen", "pulsar-wait-and-widen"}

// traceOf is a trace of lines "time session input output".
func traceOf(t testing.TB, lines ...string) []TraceRequest {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		var at float64
		var session string
		var input, output int
		if _, err := fmt.Sscan(line, &at, &session, &input, &output); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		fmt.Fprintf(&b, `{"time": %v, "session": %q, "model": "m", "inputTokens": %d, "outputTokens": %d}`+"\n", at, session, input, output)
	}
	trace, err := ReadTrace(strings.NewReader(b.String()), "trace")
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// check asserts what must hold after every event.
func (s *sim) check(t *testing.T) {
	t.Helper()
	inClusters := make([]int, len(s.clusters))
	live := 0
	for _, r := range s.requests.all {
		if r.ticket == 0 {
			continue
		}
		live++
		if r.place >= inQueue {
			inClusters[r.cluster]++
		}
	}
	if live != s.live {
		t.Fatalf("at %v: %d requests are on their way, and %d are counted", s.now, live, s.live)
	}
	for i, c := range s.clusters {
		k := c.cache
		if k.used > k.capacity || k.pinned > k.used || k.pinned < 0 {
			t.Fatalf("at %v: the KV cache of %s holds %d tokens, %d of them pinned, and has room for %d", s.now, c.name, k.used, k.pinned, k.capacity)
		}
		if c.running > c.slots || c.running+c.queued() != inClusters[i] {
			t.Fatalf("at %v: %s runs %d requests in %d slots and queues %d; %d requests are there", s.now, c.name, c.running, c.slots, c.queued(), inClusters[i])
		}
	}
	for n, p := range s.replicas {
		for i := range p.pending {
			if own := p.pending[i]; int64(own.requests) < 0 || int64(own.tokens) < 0 || own.away > own.requests {
				t.Fatalf("at %v: replica %d has pending on %s: %+v", s.now, n, s.clusters[i].name, own)
			}
		}
	}
}

// difficult is a site on which everything happens: failures, slowness, other traffic, little KV cache.
const difficult = `
replicas: 3
statisticsInterval: 500ms
clusters:
- {name: a, slots: 4, kvTokens: 30000, timeline: [{at: 20s, up: false}, {at: 40s, up: true}], timelinePeriod: 1m}
- {name: b, slots: 8, kvTokens: 60000, rtt: 0s, timeline: [{at: 10s, slotsTaken: 7}, {at: 30s, slotsTaken: 0, prefillFactor: 0.1}, {at: 45s, prefillFactor: 1}]}
- {name: c, count: 2, slots: 6, kvTokens: 9000, maxInputTokensPerSecond: 0, timeline: [{at: 50s, up: false}, {at: 55s, up: true}], timelineShift: 7s}
`

func TestEveryRequestEndsExactlyOnceAndNoCacheOverflows(t *testing.T) {
	for name, settings := range map[string]string{
		"wait-and-widen":                        sticky("wait-and-widen"),
		"pulsar-wait-and-widen":                 sticky("pulsar-wait-and-widen"),
		"pulsar with admission and KV checks":   "algorithm: pulsar, considerKvFreeTokens: true, maxInputWorkSeconds: \"0.5\"",
		"power-of-n":                            "algorithm: power-of-n",
		"round-robin that requires a key":       "algorithm: round-robin, requireCacheAffinityKey: true",
		"wait-and-widen that queues and widens": "algorithm: wait-and-widen, maxQueued: 3, maxQueueTimeFloorMs: 10, maxQueueTimeCeilMs: 500",
	} {
		t.Run(name, func(t *testing.T) {
			failures := 0
			for seed := range uint64(3) {
				s, err := newSim(Setup{
					Site: siteOf(t, difficult), Seed: seed, Variant: variantsOf(t, policyOf(settings))[0],
					Workload: workloadOf(t, `{duration: 2m, traffic: [{sessionsPerSecond: 2, keylessShare: 0.2, thinkTime: {mean: 5s}, requestSLO: 1s, maxWait: 3s, hotSet: {share: 0.3, keys: 5, prefixTokens: 1000}}]}`),
				})
				if err != nil {
					t.Fatal(err)
				}
				for s.step() {
					s.check(t)
				}
				f := s.models[0].figures
				ended := 0
				for how, n := range f.ends {
					ended += n
					if outcome(how) != served {
						failures += n
					}
				}
				if ended != f.arrived || f.arrived < 300 || s.live != 0 || len(s.requests.free) != len(s.requests.all) {
					t.Errorf("seed %d: %d requests arrived, %d ended, %d are left", seed, f.arrived, ended, s.live)
				}
				if s.err != nil {
					t.Errorf("seed %d: %v", seed, s.err)
				}
			}
			if failures == 0 {
				t.Error("no request failed: the site is not difficult")
			}
		})
	}
}

func TestTimesOfSingleRequestsAreExact(t *testing.T) {
	// 1000 tokens a second, 10 tokens of answer a second, 20 ms there and 20 ms back.
	site := func(slots int) Site {
		return siteOf(t, fmt.Sprintf(`{clusters: [{name: a, slots: %d, prefillTokensPerSecond: 1000, decodeTokensPerSecond: 10, rtt: 40ms, kvTokens: 10000}]}`, slots))
	}
	tests := []struct {
		name  string
		slots int
		trace []TraceRequest
		// wanted times to first token in milliseconds, shortest, mean and longest
		least, mean, most float64
	}{
		{"a request alone", 1, traceOf(t, "0 s 500 10"), 540, 540, 540},
		{"the second waits for the only slot", 1, traceOf(t, "0 s 500 10", "0 u 500 10"), 540, 1290, 2040},
		{"prefills follow each other with two slots", 2, traceOf(t, "0 s 500 10", "0 u 500 10"), 540, 790, 1040},
		{"a returning request computes what is new", 1, traceOf(t, "0 s 500 10", "5 s 610 10"), 140, 340, 540},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := run(t, Setup{Site: site(test.slots), Workload: DefaultWorkload(), Trace: test.trace, Variant: variantsOf(t, policyOf("algorithm: pulsar"))[0]})
			got := r.Models[0]
			least := got.TTFTDistribution[0].Ms
			if !near(got.TTFT.Mean, test.mean, 0.002) || !near(got.TTFT.Max, test.most, 0.002) || least > test.least || least < test.least/1.1 {
				t.Errorf("times to first token: shortest about %v, mean %v, longest %v; want %v, %v, %v", least, got.TTFT.Mean, got.TTFT.Max, test.least, test.mean, test.most)
			}
		})
	}
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*want }

// The mean wait of a queue with c servers and exponential times is known: Erlang's C formula.
func TestWaitsAgreeWithErlangAndLittle(t *testing.T) {
	const (
		c, load = 4, 0.8
		n       = 200_000
		perSlot = 1000.0 // tokens a second, of which an answer has 1000 on average
	)
	rng := rand.New(rand.NewPCG(1, 2))
	trace := make([]TraceRequest, n)
	var at, work float64
	for i := range trace {
		at += rng.ExpFloat64() / (c * load)
		output := int64(math.Ceil(rng.ExpFloat64() * perSlot))
		work += float64(output) / perSlot
		trace[i] = TraceRequest{Time: time.Duration(at * 1e9), Session: fmt.Sprint(i), AffinityKey: fmt.Sprint(i), Model: "m", InputTokens: 1, OutputTokens: output}
	}
	workload := workloadOf(t, fmt.Sprintf("{duration: %.0fs}", at+1000))
	r := run(t, Setup{
		Site:     siteOf(t, `{clusters: [{name: a, slots: 4, prefillTokensPerSecond: 1e9, decodeTokensPerSecond: 1000, rtt: 0s, kvTokens: 1000000000}]}`),
		Workload: workload, Trace: trace, Variant: variantsOf(t, policyOf("algorithm: random"))[0],
	})
	// Erlang C: the probability of waiting, then the mean wait.
	a := c * load
	sum, term := 0.0, 1.0
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	wait := term / (1 - load) / (sum + term/(1-load)) / (c * (1 - load)) * 1000
	if got := r.Models[0].QueueWait.Mean; !near(got, wait, 0.05) {
		t.Errorf("mean wait %v ms, want %v ms", got, wait)
	}
	// Little: the integral of the number of requests is the sum of the times that they are there.
	there := 0.0
	for _, load := range r.Clusters[0].LoadOverTime {
		there += load * c * r.WindowSeconds
	}
	if want := n*r.Models[0].QueueWait.Mean/1000 + work; !near(there, want, 0.002) {
		t.Errorf("requests were in the cluster for %v seconds by its load and %v by their times", there, want)
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	bytesOf := func(seed uint64) []byte {
		data, err := json.Marshal(run(t, Setup{
			Site: siteOf(t, difficult), Seed: seed, Variant: variantsOf(t, policyOf(sticky("wait-and-widen")))[1],
			Workload: workloadOf(t, `{duration: 2m, traffic: [{sessionsPerSecond: 3}]}`),
		}))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	first := bytesOf(1)
	if !bytes.Equal(first, bytesOf(1)) {
		t.Error("two runs with one seed differ")
	}
	if bytes.Equal(first, bytesOf(2)) {
		t.Error("two seeds give the same")
	}
}

func TestVariantsSeeTheSameSessions(t *testing.T) {
	firsts := func(v Variant) map[string]TraceRequest {
		first := map[string]TraceRequest{}
		run(t, Setup{
			Site: siteOf(t, difficult), Workload: workloadOf(t, `{duration: 2m}`), Variant: v, Seed: 7,
			Record: func(r TraceRequest) {
				if _, ok := first[r.Session]; !ok {
					first[r.Session] = r
				}
			},
		})
		return first
	}
	one, other := firsts(variantsOf(t, policyOf(sticky("wait-and-widen")))[0]), firsts(variantsOf(t, policyOf("algorithm: random"))[0])
	if len(one) < 50 || !reflect.DeepEqual(one, other) {
		t.Errorf("%d sessions under one policy and %d under the other, or their first requests differ", len(one), len(other))
	}
}

func TestReplayOfARecordedTraceIsTheRecordedRun(t *testing.T) {
	for _, algorithm := range affine {
		t.Run(algorithm, func(t *testing.T) {
			setup := Setup{
				Site: siteOf(t, difficult), Seed: 3, Variant: variantsOf(t, policyOf(sticky(algorithm)))[1],
				Workload: workloadOf(t, `{duration: 2m, traffic: [{sessionsPerSecond: 2, keylessShare: 0.2, prefixReuse: 0.9, hotSet: {share: 0.3, keys: 5, prefixTokens: 1000}}]}`),
			}
			var recorded []TraceRequest
			setup.Record = func(r TraceRequest) { recorded = append(recorded, r) }
			generated := run(t, setup)

			var file bytes.Buffer
			if err := WriteTrace(&file, recorded); err != nil {
				t.Fatal(err)
			}
			var err error
			if setup.Trace, err = ReadTrace(&file, "trace"); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(setup.Trace, recorded) {
				t.Fatal("the trace is not read back as it was written")
			}
			if replayed := run(t, setup); !reflect.DeepEqual(replayed, generated) {
				t.Errorf("replayed: %+v\ngenerated: %+v", replayed.Models[0], generated.Models[0])
			}
		})
	}
}

// The request's regression: session S has rank 1 on A, which is full at first, then drains.
func TestCacheThrashEndsWithTheFlag(t *testing.T) {
	const full, drained = `{clusters: [{name: a, slots: 4, timeline: [{at: 0s, slotsTaken: 4}, {at: 5s, slotsTaken: 0}]}, {name: b, slots: 4}]}`, `{clusters: [{name: a, slots: 4}, {name: b, slots: 4}]}`
	for _, algorithm := range affine {
		t.Run(algorithm, func(t *testing.T) {
			variants := variantsOf(t, policyOf(sticky(algorithm)))
			requests := func(site string, v Variant, session string) ModelResult {
				lines := []string{"0.5 " + session + " 1000 20"}
				for i := range 10 {
					lines = append(lines, fmt.Sprintf("%d %s %d 20", 10+2*i, session, 1500+500*i))
				}
				return run(t, Setup{Site: siteOf(t, site), Workload: DefaultWorkload(), Trace: traceOf(t, lines...), Variant: v}).Models[0]
			}
			session := ""
			for i := 0; session == ""; i++ {
				if name := fmt.Sprint("session-", i); requests(drained, variants[0], name).Clusters[0] == 11 {
					session = name
				}
			}
			off, on := requests(full, variants[0], session), requests(full, variants[1], session)
			if !reflect.DeepEqual(off.Clusters, []int{10, 1}) || off.Left != 1 {
				t.Errorf("flag off: requests per cluster %v, left %d; want the session to go back to a", off.Clusters, off.Left)
			}
			if !reflect.DeepEqual(on.Clusters, []int{0, 11}) || on.Left != 0 {
				t.Errorf("flag on: requests per cluster %v, left %d; want the session to stay on b", on.Clusters, on.Left)
			}
			if on.Recomputed != 0 || off.Recomputed == 0 {
				t.Errorf("recomputed history: %v with the flag off, %v on", off.Recomputed, on.Recomputed)
			}
		})
	}
}

const samples = "../../config/samples/simulation"

func sample(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(samples, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOnTheSamplesTheFlagKeepsSessionsOnTheirClusters(t *testing.T) {
	workload := workloadOf(t, string(sample(t, "workloads/multi-turn.yaml")))
	workload.Duration.Duration = 12 * time.Minute
	for _, site := range []string{"overflow", "saturated-rank-1"} {
		for _, algorithm := range affine {
			t.Run(site+" "+algorithm, func(t *testing.T) {
				variants := variantsOf(t, string(sample(t, "policies/"+algorithm+".yaml")))
				var got [2]ModelResult
				for i := range got {
					got[i] = run(t, Setup{Site: siteOf(t, string(sample(t, "sites/"+site+".yaml"))), Workload: workload, Variant: variants[i], Seed: 1}).Models[0]
				}
				off, on := got[0], got[1]
				if on.LeftShare >= 0.7*off.LeftShare || on.KVReuse <= off.KVReuse || on.Recomputed >= off.Recomputed {
					t.Errorf("flag off and on: left %v and %v, reuse %v and %v, recomputed %v and %v", off.LeftShare, on.LeftShare, off.KVReuse, on.KVReuse, off.Recomputed, on.Recomputed)
				}
			})
		}
	}
}

// sessionsOf steps through a run and collects what each request was taken for.
func sessionsOf(t *testing.T, setup Setup) []routing.SessionState {
	t.Helper()
	s, err := newSim(setup)
	if err != nil {
		t.Fatal(err)
	}
	var states []routing.SessionState
	seen := uint32(0)
	for s.step() {
		for _, r := range s.requests.all {
			if r.ticket > seen {
				seen = r.ticket
				states = append(states, r.call.Session())
			}
		}
	}
	return states
}

func TestTheGatewayForgetsAfterItsTTL(t *testing.T) {
	const known, stale = routing.SessionReturning, routing.SessionNew
	trace := traceOf(t, "0 s 20000 50", "62.01 s 21000 50", "122 s 22000 50", "300 s 23000 50")
	for _, test := range []struct {
		name, site, plane string
		want              []routing.SessionState
	}{
		{"by the site's TTL", `{gateway: {ttl: 1m}, clusters: [{name: a, rtt: 0s}]}`, "", []routing.SessionState{stale, stale, known, stale}},
		{"the plane's TTL wins", `{gateway: {ttl: 1m}, clusters: [{name: a, rtt: 0s}]}`, `
---
apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPlane
metadata: {name: plane, namespace: ns}
spec:
  stargate: {workloadRef: {kind: Deployment, name: r}}
  lastCluster: {ttl: 2m}
`, []routing.SessionState{stale, known, known, stale}},
		{"ten minutes by default", `{clusters: [{name: a, rtt: 0s}]}`, "", []routing.SessionState{stale, known, known, known}},
		{"a gateway without memory", `{gateway: {lastCluster: false}, clusters: [{name: a, rtt: 0s}]}`, "", []routing.SessionState{stale, stale, stale, stale}},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := variantsOf(t, policyOf(sticky("wait-and-widen"))+test.plane)[1]
			// The first token comes a second after the first request, and the memory dates from then.
			if got := sessionsOf(t, Setup{Site: siteOf(t, test.site), Workload: DefaultWorkload(), Trace: trace, Variant: v}); !reflect.DeepEqual(got, test.want) {
				t.Errorf("requests were taken for %v, want %v", got, test.want)
			}
		})
	}
}

func TestAReplicaSeesItsOwnAssignmentsAtOnceAndOthersLate(t *testing.T) {
	s, err := newSim(Setup{
		Site:     siteOf(t, `{replicas: 2, statisticsInterval: 10s, clusters: [{name: a, slots: 2, rtt: 20ms}]}`),
		Workload: DefaultWorkload(), Trace: traceOf(t, "1 s 700 5000", "30 u 1 1"), Variant: variantsOf(t, policyOf("algorithm: random"))[0],
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := func(replica int) routing.Candidate { return s.replicas[replica].views[0].snapshot.At(0) }
	for s.live == 0 {
		s.step()
	}
	own := int(s.requests.all[0].replica)
	if c := seen(own); c.Running != 1 || c.Queued != 1 || c.QueuedInputTokens != 700 {
		t.Errorf("its own replica sees %+v, want one more running, queued and 700 tokens", c)
	}
	if c := seen(1 - own); c.Running != 0 {
		t.Errorf("the other replica sees %d running, want 0", c.Running)
	}
	for s.clusters[0].epoch == 0 {
		s.step()
	}
	for replica := range 2 {
		if c := seen(replica); c.Running != 1 || c.Queued != 0 || c.QueuedInputTokens != 0 {
			t.Errorf("after the publication replica %d sees %+v, want one running", replica, c)
		}
	}
}

func TestAFailingClusterLosesItsCacheAndItsRequests(t *testing.T) {
	// At 10 s cluster a fails: s is answered at that moment, u waits for its prefill.
	got := run(t, Setup{
		Site: siteOf(t, `{clusters: [
			{name: a, slots: 4, prefillTokensPerSecond: 1000, decodeTokensPerSecond: 10, timeline: [{at: 10s, up: false}, {at: 20s, up: true}]},
			{name: b, slots: 4, prefillTokensPerSecond: 1000, decodeTokensPerSecond: 10, timeline: [{at: 0s, up: false}, {at: 9900ms, up: true}]}]}`),
		Workload: DefaultWorkload(), Variant: variantsOf(t, policyOf("algorithm: round-robin"))[0],
		Trace: traceOf(t, "1 v 1000 10", "5 s 1000 100", "9 u 5000 10", "30 v 1010 10"),
	}).Models[0]
	if got.Served != 3 || got.Failures.CutOff != 1 || got.Retried != 1 {
		t.Errorf("served %d, cut off %d, retried %d; want 3, 1, 1", got.Served, got.Failures.CutOff, got.Retried)
	}
	if got.KVReuse != 0 {
		t.Errorf("KV reuse %v, want none: the cache is gone", got.KVReuse)
	}
	if want := []int{3, 1}; !reflect.DeepEqual(got.Clusters, want) {
		t.Errorf("requests per cluster %v, want %v", got.Clusters, want)
	}
}

func TestWhatNeverEndsIsUnfinishedAnHourAfterTheLastArrivals(t *testing.T) {
	for name, site := range map[string]string{
		"a slot that is never free":         `{clusters: [{name: a, slots: 1, timeline: [{at: 0s, slotsTaken: 1}]}]}`,
		"a prefill that takes years":        `{clusters: [{name: a, prefillTokensPerSecond: 0.001, slots: 100000}]}`,
		"an answer that takes a day":        `{clusters: [{name: a, decodeTokensPerSecond: 0.001}]}`,
		"a cluster on the edge of a galaxy": `{clusters: [{name: a, rtt: 500h}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSim(Setup{
				Site: siteOf(t, site), Workload: workloadOf(t, "{duration: 1m, traffic: [{sessionsPerSecond: 1}]}"), Seed: 1,
				Variant: variantsOf(t, policyOf("algorithm: random"))[0],
			})
			if err != nil {
				t.Fatal(err)
			}
			for s.step() {
				if s.now < 0 {
					t.Fatalf("it is %v", s.now)
				}
			}
			got := s.result().Models[0]
			if got.Requests < 30 || got.Failures.Unfinished != got.Requests || s.now != time.Minute+patience {
				t.Errorf("%d of %d requests are unfinished after %v, want all of them after an hour more", got.Failures.Unfinished, got.Requests, s.now)
			}
		})
	}
}

func TestWhatHoldsFromTheBeginningIsKnownFromTheBeginning(t *testing.T) {
	got := run(t, Setup{
		Site:     siteOf(t, `{replicas: 2, clusters: [{name: a, rtt: 0s, timeline: [{at: 0s, slotsTaken: 16}]}, {name: b, rtt: 400ms}]}`),
		Workload: DefaultWorkload(), Variant: variantsOf(t, policyOf("algorithm: wait-and-widen, nextBucketUnlockFactor: \"0\""))[0], Trace: traceOf(t, "0 s 10 10", "0 u 10 10", "0 v 10 10"),
	}).Models[0]
	if want := []int{0, 3}; !reflect.DeepEqual(got.Clusters, want) || got.Served != 3 {
		t.Errorf("requests per cluster %v, served %d; want %v, 3: a is full", got.Clusters, got.Served, want)
	}
}

func TestModelsOfATraceHaveNothingInCommon(t *testing.T) {
	// The second request has key and session of the first, and another model: no memory of a cluster, and no cache.
	trace, err := ReadTrace(strings.NewReader(`{"time": 0, "session": "s", "model": "m", "inputTokens": 1000, "outputTokens": 10}
{"time": 5, "session": "s", "model": "n", "inputTokens": 1000, "outputTokens": 10}
`), "f")
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, Setup{Site: siteOf(t, "{clusters: [{name: a}]}"), Workload: DefaultWorkload(), Variant: variantsOf(t, policyOf("algorithm: random"))[0], Trace: trace})
	for _, m := range got.Models {
		if m.Requests != 1 || m.Returning != 0 || m.KVReuse != 0 || m.Recomputed != 0 {
			t.Errorf("%s: %+v", m.Model, m)
		}
	}
}

func TestARequestThatNoCacheHoldsFails(t *testing.T) {
	got := run(t, Setup{
		Site: siteOf(t, `{clusters: [{name: a, kvTokens: 1000}]}`), Workload: DefaultWorkload(),
		Variant: variantsOf(t, policyOf("algorithm: random"))[0], Trace: traceOf(t, "0 s 900 101", "1 u 900 100"),
	}).Models[0]
	if got.Failures.TooLong != 1 || got.Served != 1 {
		t.Errorf("too long %d, served %d; want 1, 1", got.Failures.TooLong, got.Served)
	}
}

func TestTheWarmupIsLeftOut(t *testing.T) {
	got := run(t, Setup{
		Site: DefaultSite(), Workload: workloadOf(t, `{duration: 10s, warmup: 5s}`),
		Variant: variantsOf(t, policyOf("algorithm: random"))[0], Trace: traceOf(t, "1 s 100 10", "6 s 210 10", "7 u 100 10"),
	}).Models[0]
	if got.Requests != 2 || got.Returning != 1 || got.Goodput != 0.4 {
		t.Errorf("requests %d, returning %d, goodput %v; want 2, 1, 0.4", got.Requests, got.Returning, got.Goodput)
	}
}

func TestASimulationWithoutAModelOrACluster(t *testing.T) {
	plane := variantsOf(t, `apiVersion: routing.nvcf.io/v1alpha1
kind: RoutingPlane
metadata: {name: plane}
spec: {stargate: {workloadRef: {kind: Deployment, name: r}}}
`)[0]
	for _, test := range []struct {
		name  string
		setup Setup
		want  string
	}{
		{"no model", Setup{Site: DefaultSite(), Workload: DefaultWorkload(), Variant: plane},
			`simulating "p": no model: the files have no RoutingPolicy; name a model in the traffic of the workload`},
		{"no cluster for the model", Setup{Site: siteOf(t, `{clusters: [{name: a, models: [other]}]}`), Workload: DefaultWorkload(), Variant: variantsOf(t, policyOf("algorithm: random"))[0]},
			`simulating "p": no cluster of the site serves model "m"; add it to the models of one`},
		{"all warm-up", Setup{Site: DefaultSite(), Workload: workloadOf(t, "{warmup: 1h}"), Trace: traceOf(t, "3.5 s 1 1"), Variant: variantsOf(t, policyOf("algorithm: random"))[0]},
			`simulating "p": the warm-up of 1h0m0s takes all of the 4s that are simulated; shorten warmup in the workload`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := Run(t.Context(), test.setup); err == nil || err.Error() != test.want {
				t.Errorf("error %v\nwant %s", err, test.want)
			}
		})
	}
}
