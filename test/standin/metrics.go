package standin

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// Count adds to a counter of the program that the pod's judged container runs, named as in an exposition:
// `stargate_requests_total{model="a",status="200"}`. Counters begin at zero with the program. It tells whether a
// program runs.
func (s *Standin) Count(namespace, pod, series string, n float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		p := r.main.process
		if r.pod.Namespace != namespace || r.pod.Name != pod || r.gone || p == nil {
			continue
		}
		if p.counters == nil {
			p.counters = map[string]float64{}
		}
		p.counters[series] += n
		return true
	}
	return false
}

// MetricsTransport answers requests for the metrics of pods at their addresses, on any port: the pods have no network.
func (s *Standin) MetricsTransport() http.RoundTripper { return metricsTransport{s} }

type metricsTransport struct{ *Standin }

// RoundTrip refuses the connection where no program runs that could answer.
func (t metricsTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	exposition, ok := t.exposition(request.URL.Hostname())
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	response := &http.Response{
		Request: request, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Status: http.StatusText(http.StatusOK), StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain; version=0.0.4"}},
	}
	if request.URL.Path != "/metrics" {
		response.Status, response.StatusCode, exposition = http.StatusText(http.StatusNotFound), http.StatusNotFound, nil
	}
	response.Body = io.NopCloser(bytes.NewReader(exposition))
	return response, nil
}

func (s *Standin) exposition(ip string) ([]byte, bool) {
	r, pod := s.at(ip)
	if r == nil || s.behaviour(pod).NoMetrics {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.gone || r.main.process == nil {
		return nil, false
	}
	text := []byte("# HELP process_uptime_seconds Of no interest.\n# TYPE process_uptime_seconds gauge\nprocess_uptime_seconds 1\n")
	counters := r.main.process.counters
	for _, series := range slices.Sorted(maps.Keys(counters)) {
		text = fmt.Appendf(text, "%s %s\n", series, strconv.FormatFloat(counters[series], 'g', -1, 64))
	}
	return text, true
}

// at finds the pod at an address.
func (s *Standin) at(ip string) (*run, *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if r.ip == ip {
			return r, r.pod
		}
	}
	return nil, nil
}
