package analysis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Bounds of what is read of a pod's metrics.
const (
	// MaxBytes of an exposition.
	MaxBytes  = 32 << 20
	maxLine   = 64 << 10
	maxSeries = 50_000
)

// Names of the counters, after the prefix, and of their labels (Stargate's reference of metrics).
const (
	requestsName = "requests_total"
	sessionsName = "routing_session_selections_total"
)

// Series is one counter: of requests, with a status, or of classified sessions, with an algorithm.
type Series struct {
	RoutingKey, Model string
	// Server and Status of a request.
	Server, Status string
	// Algorithm, State (new, returning, stale) and Selection (primary, fallback) of a session.
	Algorithm, State, Selection string
}

// isRequests tells the two counters apart: only sessions have a state.
func (s *Series) isRequests() bool { return s.State == "" }

// Sample holds the counters of a pod at a moment.
type Sample map[Series]float64

// Read reads those of Stargate's counters that are kept from an exposition in the Prometheus text format. The prefix is
// that of every metric's name. Lines of other metrics are passed over without being understood. It fails on what is no
// exposition, on a counter that is none, and on more than its bounds; errors quote nothing of what was read, which may
// come from anywhere that a pod's address leads to.
func Read(r io.Reader, prefix string, keep func(*Series) bool) (Sample, error) {
	limited := &io.LimitedReader{R: r, N: MaxBytes + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxLine)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	sample := Sample{}
	number := 0
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if !startsName(line[0]) {
			return nil, fmt.Errorf("line %d begins no metric: this is not the Prometheus text format; check spec.stargate.metrics.port", number)
		}
		name, ok := counterOf(line, prefix)
		if !ok {
			continue
		}
		if err := sample.add(&parser, line, name, keep); err != nil {
			return nil, fmt.Errorf("line %d, metric %s%s: %w", number, prefix, name, err)
		}
		if len(sample) > maxSeries {
			return nil, fmt.Errorf("more than %d series of the wave's models", maxSeries)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d is longer than %d bytes", number+1, maxLine)
	case err != nil:
		return nil, fmt.Errorf("reading: %w", err)
	case limited.N <= 0:
		return nil, fmt.Errorf("more than %d MiB of metrics", MaxBytes>>20)
	}
	return sample, nil
}

func startsName(b byte) bool {
	return b == '_' || b == ':' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// counterOf tells whose value the line holds, if one of the two counters'.
func counterOf(line []byte, prefix string) (name string, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(prefix))
	if !ok {
		return "", false
	}
	for _, name := range []string{requestsName, sessionsName} {
		if after, ok := bytes.CutPrefix(rest, []byte(name)); ok && len(after) > 0 && strings.IndexByte("{ \t", after[0]) >= 0 {
			return name, true
		}
	}
	return "", false
}

// add counts one line. A line by itself is an exposition too, and takes little memory to parse. Series that differ in
// further labels only are one.
func (s Sample) add(parser *expfmt.TextParser, line []byte, name string, keep func(*Series) bool) error {
	families, err := parser.TextToMetricFamilies(io.MultiReader(bytes.NewReader(line), strings.NewReader("\n")))
	if err != nil {
		return errors.New("the line is not in the Prometheus text format")
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			series := seriesOf(metric)
			if series.isRequests() != (name == requestsName) || series.isRequests() && series.Status == "" {
				return errors.New("the labels are not those of Stargate")
			}
			value := metric.GetUntyped().GetValue()
			if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
				return errors.New("the value is no count")
			}
			if keep(&series) {
				s[series] += value
			}
		}
	}
	return nil
}

func seriesOf(metric *dto.Metric) (s Series) {
	of := map[string]*string{
		"routing_key": &s.RoutingKey, "model": &s.Model, "inference_server_id": &s.Server, "status": &s.Status,
		"algorithm": &s.Algorithm, "session_state": &s.State, "selection": &s.Selection,
	}
	for _, label := range metric.GetLabel() {
		if value, ok := of[label.GetName()]; ok {
			*value = label.GetValue()
		}
	}
	return s
}
