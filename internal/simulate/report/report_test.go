package report

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/routing-operator/routing-operator/internal/simulate"
)

// small is a report of two variants of which the second is better, but for its queue wait.
func small() *Report {
	result := func(flag simulate.Flag, x float64) *simulate.Result {
		times := func(ms float64) simulate.Times {
			return simulate.Times{Count: 1000, Mean: ms, P50: ms, P90: 10 * ms, P99: 100 * ms, Max: 200 * ms}
		}
		return &simulate.Result{
			Variant: "p, flag " + string(flag), Policy: "p", Flag: flag, AsWritten: flag == simulate.FlagOn, WindowSeconds: 10,
			Models: []simulate.ModelResult{{
				Model: "<script>m</script>", Algorithm: "pulsar-wait-and-widen", Requests: 1010, Served: 1000, Failed: 10,
				Failures: simulate.Failures{Unavailable: 10}, KVReuse: 0.9 - x/10, Recomputed: x / 10,
				TTFT: times(15 + 10*x), TTFTNew: times(20), TTFTReturning: times(10 * x), RoutingWait: times(x), QueueWait: times(5 - x),
				Goodput: 10.25, GoodputShare: 0.9, Returning: 800, Left: int(80 * x), LeftShare: x / 10, Clusters: []int{750, 250},
				TTFTDistribution: []simulate.Point{{Ms: 10, Share: 0}, {Ms: 30, Share: 0.5}, {Ms: 3000, Share: 0.99}, {Ms: 6000, Share: 1}},
				ReuseOverTime:    []*float64{new(0.8), nil, new(0.9), new(0.9)},
			}},
			Clusters: []simulate.ClusterResult{
				{Name: "a-cluster-with-a-name-that-is-very-long", Slots: 4, LoadOverTime: []float64{0, 0.5, 1, 1.5}},
				{Name: "b", Slots: 4, LoadOverTime: []float64{0, 0, 0, 9}},
			},
		}
	}
	return &Report{
		Seed: 1, Stargate: "V3", Site: "s.yaml", Workload: "w.yaml", GoodputTTFTMs: 2000, Warnings: []string{"look & see"},
		Results: []*simulate.Result{result(simulate.FlagOff, 2), result(simulate.FlagOn, 1)},
	}
}

func TestTable(t *testing.T) {
	const want = `<script>m</script>
policy                                       p                 p
algorithm                    pulsar-w…nd-widen pulsar-w…nd-widen
flag                                       off   on (as written)
────────────────────────────────────────────────────────────────
requests                                 1 010             1 010
KV reuse                                70.0 %            80.0 %
recomputed history                      20.0 %            10.0 %
left last cluster                       20.0 %            10.0 %
TTFT p50                                 35 ms             25 ms
TTFT p90                                350 ms            250 ms
TTFT p99                                3.50 s            2.50 s
TTFT p99, new                           2.00 s            2.00 s
TTFT p99, returning                     2.00 s            1.00 s
routing wait, mean                        2 ms              1 ms
routing wait p99                        200 ms            100 ms
queue wait, mean                          3 ms              4 ms
goodput                               10.25 /s          10.25 /s
goodput share                           90.0 %            90.0 %
failed                                      10                10
  no cluster                                10                10
requests per cluster
  a-cluster-w…t-is-very-long        750 75.0 %        750 75.0 %
  b                                 250 25.0 %        250 25.0 %

Goodput counts requests served with a TTFT within 2.00 s. Stargate V3, seed 1.
Site      s.yaml
Workload  w.yaml
`
	var got strings.Builder
	if err := Table(&got, small(), false); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestATableFitsTheTerminal(t *testing.T) {
	r := small()
	for i := range 5 {
		more := *r.Results[i%2]
		r.Results = append(r.Results, &more)
	}
	r.Site = strings.Repeat("directory/", 30) + "site.yaml"
	var got strings.Builder
	if err := Table(&got, r, false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(got.String()) {
		if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 100 {
			t.Errorf("%d columns: %s", width, line)
		}
	}
	if n := strings.Count(got.String(), "KV reuse"); n != 2 {
		t.Errorf("seven variants are in %d tables, want 2", n)
	}
}

func TestWhatWasNeverMeasuredIsADash(t *testing.T) {
	r := small()
	for i := range r.Results {
		m := &r.Results[i].Models[0]
		m.Clusters = []int{0, 0}
		if i == 0 {
			m.KVReuse, m.Returning, m.LeftShare, m.GoodputShare = 0, 0, 0, 0
			m.TTFT, m.TTFTNew, m.TTFTReturning, m.RoutingWait, m.QueueWait = simulate.Times{}, simulate.Times{}, simulate.Times{}, simulate.Times{}, simulate.Times{}
			m.TTFTDistribution = nil
		}
	}
	var table, page strings.Builder
	if err := errors.Join(Table(&table, r, true), HTML(&page, r)); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"KV reuse                                     –            80.0 %\n",
		"TTFT p50                                     –             25 ms\n",
		"left last cluster                            –            10.0 %\n",
	} {
		if !strings.Contains(table.String(), row) {
			t.Errorf("%q is not in the table:\n%s", row, table.String())
		}
	}
	if strings.Contains(page.String(), "NaN") || !strings.Contains(page.String(), "from –") {
		t.Error("the page shows what was never measured as something else than a dash")
	}
}

func TestTicksTellShortTimesApart(t *testing.T) {
	for _, test := range []struct {
		seconds, window float64
		want            string
	}{{90, 1, "1:30"}, {7260, 120, "2:01 h"}, {0.4, 0.1, "0:00.4"}, {59.5, 0.99, "0:59.5"}, {60, 0.99, "1:00.0"}} {
		if got := clock(test.seconds, test.window); got != test.want {
			t.Errorf("%v seconds are %q, want %q", test.seconds, got, test.want)
		}
	}
}

func TestColourMarksTheBestOfARowAndNothingElse(t *testing.T) {
	var plainText, coloured strings.Builder
	if err := Table(&plainText, small(), false); err != nil {
		t.Fatal(err)
	}
	if err := Table(&coloured, small(), true); err != nil {
		t.Fatal(err)
	}
	for _, marked := range []string{green + "80.0 %" + plain, green + "2.50 s" + plain, green + "3 ms" + plain} {
		if !strings.Contains(coloured.String(), marked) {
			t.Errorf("%q is not in the table", marked)
		}
	}
	if strings.Contains(coloured.String(), green+"90.0 %") {
		t.Error("a value that all columns share is marked")
	}
	if stripped := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(coloured.String(), ""); stripped != plainText.String() {
		t.Error("without the colours it is not the plain table")
	}
}

func TestNumbersAreShort(t *testing.T) {
	for ms, want := range map[float64]string{0: "0 ms", 3.14159: "3.1 ms", 40: "40 ms", 99.96: "100 ms", 523.4: "523 ms", 1234: "1.23 s", 45678: "45.7 s", 123456: "123 s"} {
		if got := milliseconds(ms); got != want {
			t.Errorf("%v ms is %q, want %q", ms, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1 000", 1234567: "1 234 567"} {
		if got := count(n); got != want {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
}

func TestThePageLoadsNothingAndTrustsNothing(t *testing.T) {
	var got bytes.Buffer
	if err := HTML(&got, small()); err != nil {
		t.Fatal(err)
	}
	text := got.String()
	for _, reference := range []string{"http:", "https:", "//fonts", "<link", "@import", "url(", " src=", "href=", "fetch("} {
		if strings.Contains(text, reference) {
			t.Errorf("the page refers to something: %s", reference)
		}
	}
	if strings.Contains(text, "<script>m</script>") || !strings.Contains(text, "&lt;script&gt;m&lt;/script&gt;") {
		t.Error("the name of a model is not escaped")
	}
	for what, want := range map[string]int{
		"<polyline":   2 + 4, // two lines by percentile, two over time with a gap each
		"<rect":       2 * 2 * 4,
		`class="h13"`: 2, `class="h0"`: 2 * 4,
		"tile better": 5, "tile worse": 0, "tile same": 1,
		"prefers-color-scheme: dark": 2,
		"look &amp; see":             1,
	} {
		if n := strings.Count(text, what); n != want {
			t.Errorf("%s occurs %d times, want %d", what, n, want)
		}
	}
}

func TestPercentilesAreReadOffTheDistribution(t *testing.T) {
	points := small().Results[0].Models[0].TTFTDistribution
	for share, want := range map[float64]float64{0: 10, 0.5: 30, 0.745: 300, 0.99: 3000, 1: 6000} {
		if got := within(points, share); got < want*0.999 || got > want*1.001 {
			t.Errorf("%v of the requests within %v ms, want %v", share, got, want)
		}
	}
}

func TestTheSameReportGivesTheSameBytes(t *testing.T) {
	for name, write := range map[string]func(*bytes.Buffer) error{
		"JSON":  func(b *bytes.Buffer) error { return JSON(b, small()) },
		"HTML":  func(b *bytes.Buffer) error { return HTML(b, small()) },
		"table": func(b *bytes.Buffer) error { return Table(b, small(), true) },
	} {
		var one, two bytes.Buffer
		if err := write(&one); err != nil {
			t.Fatal(err)
		}
		if err := write(&two); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("%s differs", name)
		}
	}
}
