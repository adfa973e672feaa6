// Package report shows what simulations found: as a table, as JSON and as one HTML page.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/routing-operator/routing-operator/internal/simulate"
)

// Report is the results of some variants on one site under one workload.
type Report struct {
	// Seed of the simulation.
	Seed uint64 `json:"seed"`
	// Stargate is the release whose configuration was simulated, in words.
	Stargate string `json:"stargate"`
	// Site, Workload and Trace name the files; "default" where there was none. Trace is empty without one.
	Site     string `json:"site"`
	Workload string `json:"workload"`
	Trace    string `json:"trace,omitempty"`
	// GoodputTTFTMs is the time to first token in milliseconds within which a request counts for the goodput.
	GoodputTTFTMs float64 `json:"goodputTTFTMs"`
	// Warnings about the policies and about what is not simulated.
	Warnings []string           `json:"warnings,omitempty"`
	Results  []*simulate.Result `json:"results"`
}

// JSON writes the report as JSON. The same report gives the same bytes.
func JSON(w io.Writer, r *Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("writing the report as JSON: %w", err)
	}
	return nil
}

// column is a variant's result for one model.
type column struct {
	result *simulate.Result
	simulate.ModelResult
}

// models are those that occur in any result, sorted, and columnsOf the results that have one.
func (r *Report) models() []string {
	var names []string
	for _, result := range r.Results {
		for _, m := range result.Models {
			names = append(names, m.Model)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *Report) columnsOf(model string) []column {
	var columns []column
	for _, result := range r.Results {
		for _, m := range result.Models {
			if m.Model == model {
				columns = append(columns, column{result, m})
			}
		}
	}
	return columns
}

// figure is a row of a table: a number of every column, NaN where there is none.
type figure struct {
	name, meaning string
	of            func(c *column) float64
	text          func(x float64) string
	// better is 1 when more is better, -1 when less is, 0 when neither is.
	better int
}

// figures in the order of a table. What they mean is for the page.
func (r *Report) figures() []figure {
	limit := milliseconds(r.GoodputTTFTMs)
	return []figure{
		{"requests", "that arrived after the warm-up", func(c *column) float64 { return float64(c.Requests) }, count, 0},
		{"KV reuse", "share of input tokens that a KV cache served", func(c *column) float64 { return among(c.TTFT.Count, c.KVReuse) }, percent, 1},
		{"recomputed history", "share of the tokens of a session's earlier turns that had to be prefilled again", func(c *column) float64 { return among(c.TTFT.Count, c.Recomputed) }, percent, -1},
		{"left last cluster", "share of returning requests that went to another cluster than the one that served their session last", func(c *column) float64 { return among(int64(c.Returning), c.LeftShare) }, percent, -1},
		{"TTFT p50", "half of the requests had their first token within", func(c *column) float64 { return among(c.TTFT.Count, c.TTFT.P50) }, milliseconds, -1},
		{"TTFT p90", "nine of ten had it within", func(c *column) float64 { return among(c.TTFT.Count, c.TTFT.P90) }, milliseconds, -1},
		{"TTFT p99", "ninety-nine of a hundred had it within", func(c *column) float64 { return among(c.TTFT.Count, c.TTFT.P99) }, milliseconds, -1},
		{"TTFT p99, new", "of the first requests of sessions", func(c *column) float64 { return among(c.TTFTNew.Count, c.TTFTNew.P99) }, milliseconds, -1},
		{"TTFT p99, returning", "of all later requests", func(c *column) float64 { return among(c.TTFTReturning.Count, c.TTFTReturning.P99) }, milliseconds, -1},
		{"routing wait, mean", "time that Stargate held a request before it chose a cluster", func(c *column) float64 { return among(c.RoutingWait.Count, c.RoutingWait.Mean) }, milliseconds, -1},
		{"routing wait p99", "", func(c *column) float64 { return among(c.RoutingWait.Count, c.RoutingWait.P99) }, milliseconds, -1},
		{"queue wait, mean", "time in a cluster's queue", func(c *column) float64 { return among(c.QueueWait.Count, c.QueueWait.Mean) }, milliseconds, -1},
		{"goodput", "requests per second served with a TTFT within " + limit, func(c *column) float64 { return c.Goodput }, perSecond, 1},
		{"goodput share", "share of all requests that were", func(c *column) float64 { return among(int64(c.Requests), c.GoodputShare) }, percent, 1},
		{"failed", "requests without a whole answer", func(c *column) float64 { return float64(c.Failed) }, count, -1},
	}
}

// among is a figure that says something about n requests, or nothing if there are none.
func among(n int64, figure float64) float64 {
	if n == 0 {
		return math.NaN()
	}
	return figure
}

// reasons of failures, as rows; those that occur nowhere are left out.
func reasons(columns []column) []figure {
	all := []figure{
		{"  refused (400)", "", func(c *column) float64 { return float64(c.Failures.Refused) }, count, 0},
		{"  over the admission limit", "", func(c *column) float64 { return float64(c.Failures.Overloaded) }, count, 0},
		{"  no cluster", "", func(c *column) float64 { return float64(c.Failures.Unavailable) }, count, 0},
		{"  waited too long", "", func(c *column) float64 { return float64(c.Failures.WaitedTooLong) }, count, 0},
		{"  too long for the cache", "", func(c *column) float64 { return float64(c.Failures.TooLong) }, count, 0},
		{"  cut off", "", func(c *column) float64 { return float64(c.Failures.CutOff) }, count, 0},
		{"  unfinished", "", func(c *column) float64 { return float64(c.Failures.Unfinished) }, count, 0},
		{"retried attempts", "", func(c *column) float64 { return float64(c.Retried) }, count, 0},
	}
	return slices.DeleteFunc(all, func(f figure) bool {
		return !slices.ContainsFunc(columns, func(c column) bool { return f.of(&c) > 0 })
	})
}

// best is the value that is better than that of some column and worse than that of none, as it is shown; false if all show
// the same.
func (f *figure) best(columns []column) (string, bool) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return math.IsNaN(f.of(&c)) })
	if f.better == 0 || len(columns) < 2 {
		return "", false
	}
	byValue := func(a, b column) int { return f.better * cmp.Compare(f.of(&a), f.of(&b)) }
	best, worst := slices.MaxFunc(columns, byValue), slices.MinFunc(columns, byValue)
	text := f.text(f.of(&best))
	return text, text != f.text(f.of(&worst))
}

// percent writes a share, and a dash for none.
func percent(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return strconv.FormatFloat(100*x, 'f', 1, 64) + " %"
}

func perSecond(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) + " /s" }

// count writes a whole number in groups of three digits.
func count(x float64) string {
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + " " + digits[i:]
	}
	return digits
}

// milliseconds writes a time with three digits, and a dash for none.
func milliseconds(ms float64) string {
	switch {
	case math.IsNaN(ms):
		return "–"
	case ms >= 100_000:
		return strconv.FormatFloat(ms/1000, 'f', 0, 64) + " s"
	case ms >= 10_000:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + " s"
	case ms >= 1000:
		return strconv.FormatFloat(ms/1000, 'f', 2, 64) + " s"
	case ms >= 100 || ms == 0:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	}
	return strings.TrimSuffix(strconv.FormatFloat(ms, 'f', 1, 64), ".0") + " ms"
}
