package analysis

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

func all(*Series) bool { return true }

const exposition = `# HELP stargate_requests_total Requests.
# TYPE stargate_requests_total counter
stargate_requests_total{routing_key="rk",model="a",inference_server_id="is-1",status="200"} 90
stargate_requests_total{routing_key="rk",model="a",inference_server_id="is-1",status="503"} 1e1 1700000000000
stargate_requests_total{inference_server_id="is-1",model="b \"x\"\n",routing_key="",status="200",} 7

  stargate_routing_session_selections_total {routing_key="rk",model="a",algorithm="pulsar-wait-and-widen",session_state="returning",selection="primary"} 5
stargate_routing_selections_total{model="a",algorithm="pulsar-wait-and-widen",selection="primary"} 9
stargate_requests_total_seconds_bucket{model="a",le="+Inf"} 3
http_latency{quantile="0.5"} NaN
`

func TestReadKeepsTheCountersOfStargate(t *testing.T) {
	got, err := Read(strings.NewReader(exposition), "stargate_", all)
	if err != nil {
		t.Fatal(err)
	}
	want := Sample{
		{RoutingKey: "rk", Model: "a", Server: "is-1", Status: "200"}:                                                90,
		{RoutingKey: "rk", Model: "a", Server: "is-1", Status: "503"}:                                                10,
		{Model: "b \"x\"\n", Server: "is-1", Status: "200"}:                                                          7,
		{RoutingKey: "rk", Model: "a", Algorithm: "pulsar-wait-and-widen", State: "returning", Selection: "primary"}: 5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	none, err := Read(strings.NewReader(exposition), "other_", all)
	if err != nil || len(none) != 0 {
		t.Errorf("with another prefix: %v, %v", none, err)
	}
	some, err := Read(strings.NewReader(exposition), "stargate_", func(s *Series) bool { return s.Model != "a" })
	if err != nil || len(some) != 1 {
		t.Errorf("of model b alone: %v, %v", some, err)
	}
}

func TestSeriesThatDifferInForeignLabelsAreOne(t *testing.T) {
	got, err := Read(strings.NewReader("requests_total{model=\"a\",status=\"200\",zone=\"x\"} 1\nrequests_total{model=\"a\",status=\"200\",zone=\"y\"} 2\n"), "", all)
	if want := (Sample{{Model: "a", Status: "200"}: 3}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

type endless struct{ line string }

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e.line) <= len(p) {
		n += copy(p[n:], e.line)
	}
	if n == 0 {
		n = copy(p, strings.Repeat("#", len(p)))
	}
	return n, nil
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	const good = `stargate_requests_total{model="a",status="200"} `
	many := func() io.Reader {
		var b strings.Builder
		for i := range maxSeries + 1 {
			fmt.Fprintf(&b, "stargate_requests_total{model=\"a\",inference_server_id=\"%d\",status=\"200\"} 1\n", i)
		}
		return strings.NewReader(b.String())
	}
	tests := map[string]struct {
		in   io.Reader
		says string
	}{
		"a page":                      {strings.NewReader("<html>secret</html>"), "line 1 begins no metric: this is not the Prometheus text format; check spec.stargate.metrics.port"},
		"JSON":                        {strings.NewReader("\n{\"token\":1}"), "line 2 begins no metric"},
		"a value that is none":        {strings.NewReader(good + "secret"), "line 1, metric stargate_requests_total: the line is not in the Prometheus text format"},
		"a label without an end":      {strings.NewReader("# x\n" + `stargate_requests_total{model="a`), "line 2, metric stargate_requests_total: the line is not"},
		"a negative count":            {strings.NewReader(good + "-1"), "the value is no count"},
		"no number":                   {strings.NewReader(good + "NaN"), "the value is no count"},
		"an infinite count":           {strings.NewReader(good + "+Inf"), "the value is no count"},
		"requests without a status":   {strings.NewReader(`stargate_requests_total{model="a"} 1`), "the labels are not those of Stargate"},
		"requests with a state":       {strings.NewReader(`stargate_requests_total{status="200",session_state="new"} 1`), "the labels are not those of Stargate"},
		"sessions without a state":    {strings.NewReader(`stargate_routing_session_selections_total{status="200"} 1`), "the labels are not those of Stargate"},
		"a line without an end":       {strings.NewReader("# x\n# " + strings.Repeat("y", maxLine+1)), "line 2 is longer than"},
		"more bytes than are read":    {endless{"# " + strings.Repeat("x", 1000) + "\n"}, "more than 32 MiB of metrics"},
		"more series than are kept":   {many(), "more than 50000 series of the wave's models"},
		"a connection that is broken": {io.MultiReader(strings.NewReader(good+"1\n"), broken{}), "reading: broken"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sample, err := Read(test.in, "stargate_", all)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %d series and error %v, want %q", len(sample), err, test.says)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("quotes what it read: %v", err)
			}
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

func FuzzReadCountsOrRefuses(f *testing.F) {
	f.Add(exposition, "stargate_")
	f.Add("requests_total{status=\"500\"} 1", "")
	f.Add("requests_total 1\nrequests_total{} 2 3\n", "")
	f.Add("x_requests_total{status=\"5\xff\"} 1e400", "x_")
	f.Fuzz(func(t *testing.T, text, prefix string) {
		sample, err := Read(strings.NewReader(text), prefix, all)
		if err != nil && sample != nil {
			t.Errorf("a sample beside error %v", err)
		}
		w := NewWindow([]Subject{{Every: true}}, "")
		w.Look(time.Unix(1, 0), nil)
		w.Look(time.Unix(2, 0), []Look{{UID: "1", Created: time.Unix(2, 0), Sample: sample, Err: err}})
		c := w.Figures().Counts
		for _, n := range []float64{c.New, c.Stale, c.Returning, c.Requests, c.Returning - c.Primary, c.Requests - c.Errors} {
			if n < 0 {
				t.Errorf("counted %+v of %q", c, text)
			}
		}
	})
}

var (
	start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	old   = start.Add(-time.Hour)
	wave  = []Subject{{Model: "a", Algorithm: "pulsar-wait-and-widen"}}
)

func requests(ok, failed float64) Sample {
	return Sample{{Model: "a", Status: "200"}: ok, {Model: "a", Status: "500"}: failed}
}

func TestAWindowCountsWhatHappensInIt(t *testing.T) {
	failed := errors.New("no answer")
	pod := func(uid string, created time.Time, sample Sample) Look {
		return Look{UID: uid, Name: "pod-" + uid, Created: created, Sample: sample}
	}
	unread := func(uid string) Look { return Look{UID: uid, Name: "pod-" + uid, Created: old, Err: failed} }
	young := start.Add(time.Second)
	tests := map[string]struct {
		looks  [][]Look
		want   Counts
		unread []string
	}{
		"one look is where counting begins": {looks: [][]Look{{pod("1", old, requests(100, 1))}}},
		"the increase counts": {looks: [][]Look{{pod("1", old, requests(100, 1))}, {pod("1", old, requests(130, 3))}, {pod("1", old, requests(135, 3))}},
			want: Counts{Requests: 37, Errors: 2}},
		"a counter that fell began anew at 0": {looks: [][]Look{{pod("1", old, requests(100, 5))}, {pod("1", old, requests(10, 1))}, {pod("1", old, requests(15, 1))}},
			want: Counts{Requests: 16, Errors: 1}},
		"a series that appears is counted whole": {looks: [][]Look{{pod("1", old, Sample{})}, {pod("1", old, requests(8, 2))}},
			want: Counts{Requests: 10, Errors: 2}},
		"a series that is missing after a restart is no zero, and counts whole when it is back": {
			looks: [][]Look{{pod("1", old, requests(5, 0))}, {pod("1", old, Sample{})}, {pod("1", old, requests(7, 0))}},
			want:  Counts{Requests: 7}},
		"a pod that came counts whole": {looks: [][]Look{{pod("1", old, requests(100, 0))}, {pod("1", old, requests(100, 0)), pod("2", young, requests(20, 1))}},
			want: Counts{Requests: 21, Errors: 1}},
		"an old pod that can be read only now begins there": {looks: [][]Look{{unread("1")}, {pod("1", old, requests(500, 0))}, {pod("1", old, requests(501, 0))}},
			want: Counts{Requests: 1}},
		"a pod that is there at the first look begins there, whatever the clock of the API server said when it came": {
			looks: [][]Look{{pod("1", young, requests(500, 0))}, {pod("1", young, requests(501, 0))}},
			want:  Counts{Requests: 1}},
		"a pod that went keeps what it counted": {looks: [][]Look{{pod("1", old, requests(10, 0))}, {pod("1", old, requests(30, 0))}, {}},
			want: Counts{Requests: 20}},
		"a pod that could not be read once goes on from before": {looks: [][]Look{{pod("1", old, requests(10, 0))}, {unread("1")}, {pod("1", old, requests(30, 0))}},
			want: Counts{Requests: 20}},
		"a pod that cannot be read is named": {looks: [][]Look{{}, {unread("2"), unread("1")}}, unread: []string{"pod pod-1: no answer", "pod pod-2: no answer"}},
		"a pod that ends may be gone":        {looks: [][]Look{{}, {{UID: "1", Name: "pod-1", Ending: true, Err: failed}}}},
		"other models do not count": {looks: [][]Look{{}, {pod("1", young, Sample{{Model: "b", Status: "500"}: 9,
			{Model: "b", Algorithm: "pulsar-wait-and-widen", State: "new", Selection: "primary"}: 9}), pod("2", young, requests(1, 0))}},
			want: Counts{Requests: 1}},
		"sessions count by state, those of another algorithm do not": {looks: [][]Look{{}, {pod("1", young, Sample{
			{Model: "a", Algorithm: "pulsar-wait-and-widen", State: "new", Selection: "primary"}:        1,
			{Model: "a", Algorithm: "pulsar-wait-and-widen", State: "new", Selection: "fallback"}:       2,
			{Model: "a", Algorithm: "pulsar-wait-and-widen", State: "stale", Selection: "primary"}:      4,
			{Model: "a", Algorithm: "pulsar-wait-and-widen", State: "returning", Selection: "primary"}:  8,
			{Model: "a", Algorithm: "pulsar-wait-and-widen", State: "returning", Selection: "fallback"}: 16,
			{Model: "a", Algorithm: "wait-and-widen", State: "new", Selection: "primary"}:               32,
		})}}, want: Counts{New: 3, Stale: 4, Returning: 24, Primary: 8}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := NewWindow(wave, "")
			for i, looks := range test.looks {
				w.Look(start.Add(time.Duration(i)*time.Minute), looks)
			}
			got := w.Figures()
			want := Figures{Since: start, Last: start.Add(time.Duration(len(test.looks)-1) * time.Minute), Counts: test.want, Unread: test.unread}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAWindowOfARevisionCountsItsPodsOnly(t *testing.T) {
	w := NewWindow(wave, "new")
	looks := []Look{{UID: "1", Revision: "old", Created: start.Add(1), Sample: requests(5, 0)}, {UID: "2", Revision: "new", Created: start.Add(1), Sample: requests(3, 0)}}
	w.Look(start, nil)
	w.Look(start.Add(time.Minute), looks)
	if got := w.Figures().Counts.Requests; got != 3 {
		t.Errorf("counted %v requests, want 3", got)
	}
}

func TestThePlanesOwnFlagConcernsEveryModel(t *testing.T) {
	w := NewWindow([]Subject{{Every: true, Algorithm: "wait-and-widen"}, {Model: "", Algorithm: "pulsar-wait-and-widen"}}, "")
	tests := map[Series]bool{
		{Model: "x", Status: "200"}:                                      true,
		{Model: "x", Algorithm: "wait-and-widen", State: "new"}:          true,
		{Model: "x", Algorithm: "pulsar-wait-and-widen", State: "new"}:   false,
		{Model: "", Algorithm: "pulsar-wait-and-widen", State: "new"}:    true, // a model ID may be empty
		{Model: "x", Algorithm: "pulsar-wait-and-widen", State: "stale"}: false,
	}
	for series, want := range tests {
		if got := w.Concerns(&series); got != want {
			t.Errorf("%+v: %t", series, got)
		}
	}
}

func TestJudge(t *testing.T) {
	settings := SettingsOf(&v1alpha1.RolloutAnalysis{})
	before := Counts{Requests: 1000, Errors: 2}
	good := Counts{New: 100, Returning: 900, Primary: 800, Requests: 1000, Errors: 5}
	with := func(change func(*Counts)) Counts {
		c := good
		change(&c)
		return c
	}
	tests := map[string]struct {
		before, after Counts
		change        func(*Settings)
		want          Outcome
		says          string
	}{
		"good figures": {before: before, after: good, want: Passed,
			says: "10.0 % of 1000 classified sessions were new or stale; 88.9 % of 900 returning sessions reached their last cluster; 0.5 % of 1000 requests ended in a 5xx, and 0.2 % of 1000 before the wave"},
		"no hints": {before: before, after: with(func(c *Counts) { c.New, c.Stale, c.Returning, c.Primary = 600, 360, 40, 40 }), want: Failed,
			says: "96.0 % of 1000 classified sessions were new or stale, more than 95.0 %: the hints of the gateways do not arrive; 40 sessions returned, of the 100 that it takes; 0.5 %"},
		"exactly the largest share of new sessions passes":  {before: before, after: with(func(c *Counts) { c.New, c.Returning, c.Primary = 1900, 100, 100 }), want: Passed},
		"returning sessions that go elsewhere":              {before: before, after: with(func(c *Counts) { c.Primary = 449 }), want: Failed, says: "49.9 % of 900 returning sessions reached their last cluster, fewer than 50.0 %"},
		"exactly the smallest share of returning sessions":  {before: before, after: with(func(c *Counts) { c.Primary = 450 }), want: Passed},
		"more server errors":                                {before: before, after: with(func(c *Counts) { c.Errors = 13 }), want: Failed, says: "1.3 % of 1000 requests ended in a 5xx, and 0.2 % of 1000 before the wave: an increase of more than 1.0 %"},
		"as many server errors as before":                   {before: Counts{Requests: 1000, Errors: 500}, after: with(func(c *Counts) { c.Errors = 505 }), want: Passed},
		"server errors before which nothing was counted":    {after: with(func(c *Counts) { c.Errors = 1000 }), want: Passed, says: "server errors are not judged, since only 0 requests were counted before the wave"},
		"too few sessions":                                  {before: before, after: with(func(c *Counts) { c.New, c.Returning = 1, 98 }), want: TooFew, says: "99 sessions were classified, of the 100 that it takes; 98 sessions returned"},
		"too few requests":                                  {before: before, after: with(func(c *Counts) { c.Requests = 99 }), want: TooFew, says: "99 requests, of the 100 that it takes"},
		"nothing at all":                                    {want: TooFew},
		"a share of new sessions that is not judged":        {before: before, after: with(func(c *Counts) { c.New, c.Returning = 1000, 100 }), change: func(s *Settings) { s.MaxNewShare, s.MinPrimaryShare = 1, 0 }, want: Passed, says: "1100 sessions were classified; 100 sessions returned"},
		"server errors that are not judged":                 {before: before, after: with(func(c *Counts) { c.Errors = 1000 }), change: func(s *Settings) { s.MaxErrorIncrease = 1 }, want: Passed, says: "1000 of 1000 requests ended in a 5xx"},
		"nothing is judged, and nothing takes samples":      {change: func(s *Settings) { s.MaxNewShare, s.MinPrimaryShare, s.MaxErrorIncrease = 1, 0, 1 }, want: Passed},
		"a share that fails outweighs one with few samples": {before: before, after: with(func(c *Counts) { c.Requests, c.Errors, c.Primary = 10, 0, 0 }), want: Failed, says: "0.0 % of 900 returning"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := *settings
			if test.change != nil {
				test.change(&s)
			}
			got := s.Judge(test.before, &Figures{Counts: test.after})
			if got.Outcome != test.want || !strings.HasPrefix(got.Figures, test.says) && !strings.Contains(got.Figures, "; "+test.says) {
				t.Errorf("got %s: %s\nwant %s: %s", got.Outcome, got.Figures, test.want, test.says)
			}
		})
	}
	t.Run("pods that cannot be read are named, the first three of them", func(t *testing.T) {
		got := settings.Judge(before, &Figures{Counts: good, Unread: []string{"pod 1: x", "pod 2: x", "pod 3: x", "pod 4: x"}})
		if got.Outcome != Passed || !strings.HasSuffix(got.Figures, "; cannot read the metrics of pod 1: x, pod 2: x, pod 3: x, and 1 more") {
			t.Errorf("got %s: %s", got.Outcome, got.Figures)
		}
	})
}

func TestSettingsTakeTheirDefaults(t *testing.T) {
	if got := SettingsOf(nil); got != nil {
		t.Errorf("got %+v of nothing", got)
	}
	want := &Settings{Interval: 5 * time.Minute, MinSamples: 100, MaxNewShare: 0.95, MinPrimaryShare: 0.5, MaxErrorIncrease: 0.01}
	if diff := cmp.Diff(want, SettingsOf(&v1alpha1.RolloutAnalysis{})); diff != "" {
		t.Error(diff)
	}
	for interval, every := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: 3 * time.Second, time.Hour: 15 * time.Second} {
		if got := (&Settings{Interval: interval}).Every(); got != every {
			t.Errorf("looks every %s of %s, want %s", got, interval, every)
		}
	}
}

// BenchmarkRead reads 20,000 lines, of which every tenth is of Stargate's counters.
func BenchmarkRead(b *testing.B) {
	var text strings.Builder
	for i := range 18_000 {
		fmt.Fprintf(&text, "stargate_request_duration_seconds_bucket{routing_key=\"rk-%d\",model=\"org/model\",le=\"%d\"} %d\n", i%100, i, i)
	}
	for i := range 2_000 {
		fmt.Fprintf(&text, "stargate_requests_total{routing_key=\"rk-%d\",model=\"org/model-%d\",inference_server_id=\"is-%d\",status=\"200\"} %d\n", i%10, i%20, i, i)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if sample, err := Read(strings.NewReader(text.String()), "stargate_", all); err != nil || len(sample) != 2_000 {
			b.Fatal(len(sample), err)
		}
	}
}
