package routing

import (
	"math"
	"testing"
	"time"
)

func TestQueueDelay(t *testing.T) {
	estimates := []QueueEstimate{{Priority: 5, Delay: 50 * ms}, {Priority: 2, Delay: 20 * ms}}
	for name, test := range map[string]struct {
		candidate Candidate
		priority  uint32
		want      time.Duration
	}{
		"a free slot means none, whatever is queued and published":  {Candidate{MaxConcurrency: 4, Running: 3, QueuedInputTokens: 1e6, QueueEstimates: estimates}, 9, 0},
		"the estimate of the same priority":                         {Candidate{MaxConcurrency: 4, Running: 4, QueueEstimates: estimates}, 5, 50 * ms},
		"the estimate of the nearest priority below":                {Candidate{MaxConcurrency: 4, Running: 4, QueueEstimates: estimates}, 4, 20 * ms},
		"no estimate at or below the priority counts as none":       {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: 1e6, QueueEstimates: estimates}, 1, 0},
		"without estimates the queued work":                         {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: 500, LastMeanInputTPS: 1000}, 0, 500 * ms},
		"queued work is rounded up to a millisecond":                {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: 1, LastMeanInputTPS: 3000}, 0, ms},
		"a whole number of milliseconds is not rounded up":          {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: 11, LastMeanInputTPS: 1100}, 0, 10 * ms},
		"with an unknown number of slots no slot is known free":     {Candidate{Running: 0, QueuedInputTokens: 500, LastMeanInputTPS: 1000}, 0, 500 * ms},
		"nothing queued takes no time, also at no throughput":       {Candidate{MaxConcurrency: 4, Running: 4}, 0, 0},
		"queued work at no throughput takes for ever":               {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: 1}, 0, forever},
		"queued work at an infinite throughput takes for ever":      {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: 1, LastMeanInputTPS: inf}, 0, forever},
		"queued work at a negative throughput takes for ever":       {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: 1, LastMeanInputTPS: -5}, 0, forever},
		"queued work at a throughput that is no number, for ever":   {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: 1, LastMeanInputTPS: nan}, 0, forever},
		"more queued work than a duration holds takes for ever":     {Candidate{MaxConcurrency: 4, Running: 4, QueuedInputTokens: math.MaxUint64, LastMeanInputTPS: 0.1}, 0, forever},
		"an estimate counts although there is no valid throughput":  {Candidate{MaxConcurrency: 4, Running: 9, QueuedInputTokens: 1, QueueEstimates: estimates}, 7, 50 * ms},
		"the estimates are sorted by the snapshot and read by rank": {Candidate{QueueEstimates: []QueueEstimate{{9, 9}, {0, 1}, {4, 4}}}, 8, 4},
	} {
		t.Run(name, func(t *testing.T) {
			c := snapshotOf(t, test.candidate).At(0)
			if got := c.queueDelay(test.priority); got != test.want {
				t.Errorf("queue delay is %v, want %v", got, test.want)
			}
		})
	}
}

func TestPrefill(t *testing.T) {
	for name, test := range map[string]struct {
		tokens     uint64
		scale, tps float64
		want       time.Duration
	}{
		"tokens over throughput":                              {1000, 1, 500, 2 * time.Second},
		"scaled":                                              {1000, 0.1, 500, 200 * ms},
		"rounded to the nearest nanosecond":                   {1, 1, 3, 333333333},
		"no work takes no time, also at no throughput":        {0, 1, 0, 0},
		"work at no throughput takes for ever":                {1, 1, 0, forever},
		"work at no throughput takes for ever, also scaled 0": {1, 0, 0, forever},
		"scaled to nothing at a valid throughput":             {1, 0, 5, 0},
		"more than a duration holds":                          {math.MaxUint64, 1, 0.001, forever},
	} {
		t.Run(name, func(t *testing.T) {
			c := Candidate{LastMeanInputTPS: test.tps}
			if got := c.prefill(test.tokens, test.scale); got != test.want {
				t.Errorf("prefill takes %v, want %v", got, test.want)
			}
		})
	}
}

func TestHasCapacity(t *testing.T) {
	for _, test := range []struct {
		running, slots, limit uint64
		want                  bool
	}{
		{3, 4, 0, true}, {4, 4, 0, false}, {4, 4, 1, true}, {5, 4, 1, false}, {9, 4, 0, false},
		{1000, 0, 0, true}, {4, 4, math.MaxUint64, true}, {math.MaxUint64, 4, 0, false},
	} {
		c := Candidate{Running: test.running, MaxConcurrency: test.slots}
		if got := c.hasCapacity(test.limit); got != test.want {
			t.Errorf("%d running in %d slots with %d allowed to queue: capacity is %v", test.running, test.slots, test.limit, got)
		}
	}
}

func TestScores(t *testing.T) {
	full := Candidate{RTT: 10 * ms, MaxConcurrency: 4, Running: 6, Queued: 2, QueuedInputTokens: 1001, LastMeanInputTPS: 10000}
	request := &Request{InputTokens: 500}
	for comparator, want := range map[Comparator]float64{
		CompareTTFT:        float64(10*ms + 101*ms + 5*ms),
		CompareQueueTime:   float64(101 * ms),
		CompareInputWork:   0.1501,
		CompareUtilization: 1.5,
		CompareQueued:      2,
	} {
		if got := full.score(comparator, request, 0.1); math.Abs(got-want) > 1e-12*want {
			t.Errorf("%s is %v, want %v", comparator, got, want)
		}
	}
	unknown := Candidate{Running: 6}
	if got := unknown.score(CompareUtilization, request, 1); got != 6 {
		t.Errorf("the utilization of an unknown number of slots is %v, want that of one", got)
	}
	if got := unknown.score(CompareInputWork, request, 1); got != inf {
		t.Errorf("the input work at no throughput is %v, want infinity", got)
	}
	if got := unknown.score(CompareInputWork, &Request{}, 1); got != 0 {
		t.Errorf("no input work at no throughput is %v, want 0", got)
	}
	huge := Candidate{QueuedInputTokens: 2, LastMeanInputTPS: 1}
	if got := huge.score(CompareInputWork, &Request{InputTokens: math.MaxUint64}, 1); got < math.MaxUint64 {
		t.Errorf("the work of more tokens than 64 bits count is %v", got)
	}
}

func TestLessLoaded(t *testing.T) {
	for name, test := range map[string]struct {
		less, more Candidate
		equal      bool
	}{
		"the shorter queue delay first": {
			less: Candidate{MaxConcurrency: 4, Running: 9, QueueEstimates: []QueueEstimate{{0, ms}}},
			more: Candidate{MaxConcurrency: 4, Running: 4, QueueEstimates: []QueueEstimate{{0, 2 * ms}}}},
		"then the smaller share of slots": {
			less: Candidate{MaxConcurrency: 100, Running: 10}, more: Candidate{MaxConcurrency: 8, Running: 1}},
		"then running counts where one number of slots is unknown": {
			less: Candidate{MaxConcurrency: 8, Running: 2}, more: Candidate{Running: 3}},
		"and where the other is": {
			less: Candidate{Running: 2}, more: Candidate{MaxConcurrency: 8, Running: 3}},
		"nothing left to compare": {
			less: Candidate{MaxConcurrency: 8, Running: 2}, more: Candidate{MaxConcurrency: 16, Running: 4}, equal: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lessLoaded(&test.less, &test.more, 0); got == test.equal {
				t.Errorf("the first is less loaded: %v", got)
			}
			if lessLoaded(&test.more, &test.less, 0) {
				t.Error("the second is less loaded than the first")
			}
		})
	}
}

func TestQueueSLO(t *testing.T) {
	rising := Config{QueueSLO: true, QueueTimeFloor: 100 * ms, QueueTimeCeil: 500 * ms}
	falling := Config{QueueSLO: true, QueueTimeFloor: 500 * ms, QueueTimeCeil: 100 * ms}
	for name, test := range map[string]struct {
		config              Config
		delay, elapsed, slo time.Duration
		want                bool
	}{
		"without bounds anything goes":                        {Config{QueueTimeFloor: ms}, forever, 0, time.Second, true},
		"the floor on arrival":                                {rising, 100 * ms, 0, time.Second, true},
		"above the floor on arrival":                          {rising, 101 * ms, 0, time.Second, false},
		"halfway":                                             {rising, 300 * ms, 500 * ms, time.Second, true},
		"above halfway":                                       {rising, 301 * ms, 500 * ms, time.Second, false},
		"the ceiling past the SLO":                            {rising, 500 * ms, time.Hour, time.Second, true},
		"above the ceiling":                                   {rising, 501 * ms, time.Hour, time.Second, false},
		"the ceiling without an SLO":                          {rising, 500 * ms, 0, 0, true},
		"the ceiling with a negative SLO":                     {rising, 500 * ms, 0, -1, true},
		"an infinite delay is not within the longest ceiling": {Config{QueueSLO: true, QueueTimeCeil: forever}, forever, 0, 0, false},
		"an infinite delay is within nothing":                 {rising, forever, 0, 0, false},
		"a floor above the ceiling is not reordered":          {falling, 400 * ms, 0, time.Second, true},
		"and shrinks with age":                                {falling, 400 * ms, time.Second, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.config.withinSLO(test.delay, test.elapsed, test.slo); got != test.want {
				t.Errorf("acceptable: %v, want %v", got, test.want)
			}
		})
	}
}
