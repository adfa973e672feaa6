package routing

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

func TestConfigurationOfARequest(t *testing.T) {
	marked := func(algorithm v1alpha1.Algorithm, seed string) Config {
		return edited(algorithm, func(c *Config) { c.Seed = seed })
	}
	plane := Plane{
		Default: v1alpha1.Random,
		RequestAlgorithms: map[v1alpha1.Algorithm]Config{
			v1alpha1.Pulsar: marked(v1alpha1.Pulsar, "plane"), v1alpha1.RoundRobin: marked(v1alpha1.RoundRobin, "plane"),
			v1alpha1.PulsarWaitAndWiden: marked(v1alpha1.PulsarWaitAndWiden, "plane"),
		},
		Models: map[string]ModelConfig{"listed": {
			Config: marked(v1alpha1.Pulsar, "own"),
			RequestAlgorithms: map[v1alpha1.Algorithm]Config{
				v1alpha1.Pulsar: marked(v1alpha1.Pulsar, "never used"), v1alpha1.RoundRobin: marked(v1alpha1.RoundRobin, "model"),
			},
		}},
	}
	for name, test := range map[string]struct {
		plane         Plane
		model, method string
		algorithm     v1alpha1.Algorithm
		seed          string
		refused       bool
	}{
		"a listed model has its own":                             {plane, "listed", "", v1alpha1.Pulsar, "own", false},
		"another model has the default":                          {plane, "Listed", "", v1alpha1.Random, "", false},
		"its own answers first when asked for":                   {plane, "listed", "pulsar", v1alpha1.Pulsar, "own", false},
		"then the model's request algorithms":                    {plane, "listed", "round-robin", v1alpha1.RoundRobin, "model", false},
		"then the plane's":                                       {plane, "listed", "pulsar-wait-and-widen", v1alpha1.PulsarWaitAndWiden, "plane", false},
		"the plane's for an unlisted model":                      {plane, "unlisted", "pulsar", v1alpha1.Pulsar, "plane", false},
		"what nobody offers is refused":                          {plane, "listed", "power-of-n", "", "", true},
		"the default is not offered by being the default":        {plane, "unlisted", "random", "", "", true},
		"names are case-sensitive":                               {plane, "listed", "Pulsar", "", "", true},
		"an empty file is power-of-n":                            {Plane{}, "any", "", v1alpha1.PowerOfN, "", false},
		"an empty file offers nothing":                           {Plane{}, "any", "round-robin", "", "", true},
		"a model's own algorithm is selectable without any list": {Plane{Models: map[string]ModelConfig{"m": {Config: DefaultConfig(v1alpha1.Random)}}}, "m", "random", v1alpha1.Random, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewRouter(test.plane, Options{})
			if err != nil {
				t.Fatal(err)
			}
			call, err := r.NewCall(Request{Model: test.model, Method: test.method})
			if test.refused {
				if !errors.Is(err, ErrMethodNotSelectable) || !strings.Contains(err.Error(), test.method) || !strings.Contains(err.Error(), test.model) {
					t.Errorf("error is %v, want one of the method and the model", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := call.Config(); got.Algorithm != test.algorithm || got.Seed != test.seed {
				t.Errorf("the configuration is %s of seed %q, want %s of %q", got.Algorithm, got.Seed, test.algorithm, test.seed)
			}
		})
	}
}

func TestARequiredAffinityKey(t *testing.T) {
	r := routerOf(t, edited(v1alpha1.Random, func(c *Config) { c.RequireAffinityKey = true }))
	for _, key := range []string{"", " ", "\t"} {
		if _, err := r.NewCall(Request{Model: model, AffinityKey: key}); !errors.Is(err, ErrAffinityKeyRequired) || !strings.Contains(err.Error(), model) {
			t.Errorf("with the key %q the error is %v", key, err)
		}
	}
	if _, err := r.NewCall(Request{Model: model, AffinityKey: "key"}); err != nil {
		t.Error(err)
	}
}

func TestAnAffinityKeyIsTakenAsItIs(t *testing.T) {
	r := routerOf(t, DefaultConfig(v1alpha1.Pulsar))
	s := weighted(t)
	blank, absent := decide(t, r, Request{Model: model, AffinityKey: " "}, s, 0), decide(t, r, Request{Model: model}, s, 0)
	if blank != absent {
		t.Errorf("a blank key decides %s and an absent one %s", spell(blank), spell(absent))
	}
	if kept := callOf(t, r, Request{Model: model, AffinityKey: " key\xff "}).request.AffinityKey; kept != " key\xff " {
		t.Errorf("the key became %q", kept)
	}
}

func TestAdmission(t *testing.T) {
	busy := func(id string, tokens uint64, tps float64) Candidate {
		return Candidate{ID: id, QueuedInputTokens: tokens, LastMeanInputTPS: tps}
	}
	for name, test := range map[string]struct {
		limit      float64
		tokens     uint64
		candidates []Candidate
		admitted   bool
	}{
		"no limit":                               {inf, 1e9, []Candidate{busy("a", 1e9, 0)}, true},
		"at the limit":                           {2, 500, []Candidate{busy("a", 1500, 600), busy("b", 0, 400)}, true},
		"above the limit":                        {2, 501, []Candidate{busy("a", 1500, 600), busy("b", 0, 400)}, false},
		"an invalid throughput adds nothing":     {2, 500, []Candidate{busy("a", 1500, 1000), busy("b", 0, nan), busy("c", 0, inf), busy("d", 0, -5)}, true},
		"no valid throughput admits none":        {2, 0, []Candidate{busy("a", 0, 0)}, false},
		"no candidates admit none":               {2, 0, nil, false},
		"a limit of 0 admits a request of none":  {0, 0, []Candidate{busy("a", 0, 1)}, true},
		"a limit of 0 admits no work":            {0, 1, []Candidate{busy("a", 0, 1)}, false},
		"a negative limit admits none":           {-1, 0, []Candidate{busy("a", 0, 1)}, false},
		"work over throughputs beyond all bound": {2, 1, []Candidate{busy("a", 0, 1e308), busy("b", 0, 1e308)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := routerOf(t, edited(v1alpha1.PowerOfN, func(c *Config) { c.MaxInputWork = test.limit }))
			step := callOf(t, r, Request{Model: model, InputTokens: test.tokens}).Next(snapshotOf(t, test.candidates...), 0, seeded1())
			if admitted := !errors.Is(step.Err, ErrOverloaded); admitted != test.admitted || (step.Action == Send) != test.admitted {
				t.Errorf("admitted: %v (%v), want %v", admitted, step.Err, test.admitted)
			}
		})
	}
}

func TestAdmissionIsAskedOnce(t *testing.T) {
	r := routerOf(t, edited(v1alpha1.WaitAndWiden, func(c *Config) { c.MaxInputWork = 1 }))
	call := callOf(t, r, Request{Model: model, InputTokens: 100})
	far := idle("b", 100*ms)
	if step := call.Next(snapshotOf(t, full("a", 0), far), 0, seeded1()); step.Action != Retry {
		t.Fatalf("the first step is %+v, want a retry", step)
	}
	far.QueuedInputTokens = 1e6
	if step := call.Next(snapshotOf(t, full("a", 0), far), 25*ms, seeded1()); step.Action != Send {
		t.Errorf("the second step is %+v, want to send", step)
	}
}

func TestTheProxyDecidesAgainAtLeastEvery25Milliseconds(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 2, config)
		s.fill(a)
		call := callOf(t, s.router, s.last(a))
		for elapsed := time.Duration(0); elapsed < 300*ms; elapsed += 25 * ms {
			if step := call.Next(s.snapshot(), elapsed, seeded1()); step.Action != Retry || step.After != 25*ms || step.Wait != 300*ms-elapsed {
				t.Fatalf("after %v the step is %+v", elapsed, step)
			}
		}
		if step := call.Next(s.snapshot(), 290*ms, seeded1()); step.After != 10*ms {
			t.Errorf("after 290ms the next decision is in %v, want 10ms", step.After)
		}
		if step := call.Next(s.snapshot(), 300*ms, seeded1()); step.Action != Send || step.Cluster != s.clusters[b].ID {
			t.Errorf("after 300ms the step is %+v, want B", step)
		}
	})
}

func TestTheRoutingWaitEnds(t *testing.T) {
	wait := func(d time.Duration) *time.Duration { return &d }
	config := edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.AffinityWait = time.Hour })
	for name, test := range map[string]struct {
		maxWait *time.Duration
		elapsed time.Duration
		after   time.Duration // 0: it fails
	}{
		"not before a minute":                   {nil, 59*time.Second + 990*ms, 10 * ms},
		"after a minute":                        {nil, time.Minute, 0},
		"not before the request's limit":        {wait(80 * ms), 70 * ms, 10 * ms},
		"at the request's limit":                {wait(80 * ms), 80 * ms, 0},
		"at once with a limit of 0":             {wait(0), 0, 0},
		"a longer limit does not extend":        {wait(time.Hour), time.Minute, 0},
		"nor does it shorten":                   {wait(time.Hour), 59 * time.Second, 25 * ms},
		"past the limit the wait has ended too": {wait(80 * ms), time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 2, config)
			s.fill(a)
			s.request.MaxWait = test.maxWait
			step := callOf(t, s.router, s.request).Next(s.snapshot(), test.elapsed, seeded1())
			if test.after > 0 && (step.Action != Retry || step.After != test.after) {
				t.Errorf("the step is %+v, want a retry after %v", step, test.after)
			}
			if test.after == 0 && (step.Action != Fail || !errors.Is(step.Err, ErrWaitedTooLong)) {
				t.Errorf("the step is %+v, want the end of the wait", step)
			}
			s.drain(a)
			if step := callOf(t, s.router, s.request).Next(s.snapshot(), test.elapsed, seeded1()); step.Action != Send {
				t.Errorf("with a free slot the step is %+v, want to send", step)
			}
		})
	}
}

func TestAMaxWaitMakesUnavailableWorthRetrying(t *testing.T) {
	limit := 100 * ms
	s := newSite(t, 2, DefaultConfig(v1alpha1.PulsarWaitAndWiden))
	s.fill(a, b)
	call := callOf(t, s.router, s.request)
	if step := call.Next(s.snapshot(), 0, seeded1()); step.Action != Fail || !errors.Is(step.Err, ErrUnavailable) {
		t.Errorf("without a limit the step is %+v", step)
	}
	s.request.MaxWait = &limit
	call = callOf(t, s.router, s.request)
	if step := call.Next(s.snapshot(), 0, seeded1()); step.Action != Retry || step.After != 25*ms || step.Outcome != Unavailable {
		t.Errorf("with a limit the step is %+v, want a retry", step)
	}
	if step := call.Next(s.snapshot(), 90*ms, seeded1()); step.After != 10*ms {
		t.Errorf("near the limit the step is %+v, want a retry at the limit", step)
	}
	call.Exclude(s.clusters[a].ID)
	if step := call.Next(s.snapshot(), 50*ms, seeded1()); step.Action != Retry {
		t.Errorf("with one cluster left the step is %+v", step)
	}
	call.Exclude(s.clusters[b].ID)
	call.Exclude(s.clusters[b].ID)
	if step := call.Next(s.snapshot(), 50*ms, seeded1()); step.Action != Fail || !errors.Is(step.Err, ErrUnavailable) {
		t.Errorf("with every cluster excluded the step is %+v", step)
	}
	call = callOf(t, s.router, s.request)
	if step := call.Next(s.snapshot(), 100*ms, seeded1()); step.Action != Fail || !errors.Is(step.Err, ErrWaitedTooLong) {
		t.Errorf("at the limit the step is %+v", step)
	}
}

func TestRetriesKeepTheSessionState(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		for name, test := range map[string]struct {
			hint string
			want SessionState
		}{"new": {"", SessionNew}, "returning": {s.clusters[b].ID, SessionReturning}, "stale": {"gone", SessionStale}} {
			r := s.request
			r.LastCluster = test.hint
			call := callOf(t, s.router, r)
			if call.Session() != SessionNone {
				t.Errorf("%s: before the first decision the session is %v", name, call.Session())
			}
			for range 3 {
				call.Next(s.snapshot(), 0, seeded1())
				if call.Session() != test.want || call.Session().String() != name {
					t.Errorf("the session is %v, want %s", call.Session(), name)
				}
				call.Exclude(s.clusters[b].ID)
			}
			call.Next(snapshotOf(t, s.clusters[a], Candidate{ID: "gone"}), 0, seeded1())
			if call.Session() != test.want {
				t.Errorf("after the clusters changed the session is %v, want %s", call.Session(), name)
			}
		}
	})
}
