package controllers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

func keepAll(*analysis.Series) bool { return true }

// patientScraper has the production's transport and no bound that a busy machine could reach.
func patientScraper() *scraper {
	s := newScraper(nil)
	s.client.Timeout, s.all = time.Minute, time.Minute
	return s
}

// served starts a server on loopback, and tells a pod and a port by which it is reached.
func served(t *testing.T, handler http.HandlerFunc) (rollout.Pod, v1alpha1.StargateMetrics) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return rollout.Pod{Name: "router-1", UID: "1", IP: host, Started: true}, v1alpha1.StargateMetrics{Port: int32(n), Prefix: "stargate_"}
}

func TestScraperReadsTheMetricsOfAPod(t *testing.T) {
	pod, at := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.String() != "/metrics" {
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
		fmt.Fprintln(w, `stargate_requests_total{model="a",status="200"} 3`)
	})
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1") // never asked
	pod.Revision = "llm-stargate-x"
	looks := patientScraper().read(t.Context(), []rollout.Pod{pod}, at, keepAll)
	if len(looks) != 1 || looks[0].Err != nil || looks[0].Sample[analysis.Series{Model: "a", Status: "200"}] != 3 || looks[0].Revision != pod.Revision || looks[0].Ending {
		t.Errorf("got %+v", looks)
	}
}

func TestScraperSaysWhatIsInTheWay(t *testing.T) {
	var elsewhere atomic.Int32
	other, at := served(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	target := "http://" + net.JoinHostPort(other.IP, strconv.Itoa(int(at.Port))) + "/secret"
	tests := map[string]struct {
		handler http.HandlerFunc
		change  func(*rollout.Pod)
		says    string
	}{
		"a redirect is not followed": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) }, nil, "answers /metrics with status 302"},
		"a refusal":                  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusForbidden) }, nil, "answers /metrics with status 403"},
		"something else":             {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<p>secret</p>") }, nil, "line 1 begins no metric"},
		"no address yet":             {nil, func(p *rollout.Pod) { p.IP = "" }, "it has no address"},
		"a name for an address":      {nil, func(p *rollout.Pod) { p.IP = "metadata.internal" }, "it has no address"},
		"an answer that breaks off":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, "EOF"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod, at := served(t, func(w http.ResponseWriter, r *http.Request) {
				if test.handler != nil {
					test.handler(w, r)
				}
			})
			if test.change != nil {
				test.change(&pod)
			}
			looks := patientScraper().read(t.Context(), []rollout.Pod{pod}, at, keepAll)
			if err := looks[0].Err; err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q", err, test.says)
			}
		})
	}
	if elsewhere.Load() != 0 {
		t.Error("followed a redirect")
	}
}

func TestScraperTellsTheSameOfTheSameFailure(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pod := rollout.Pod{Name: "router-1", UID: "1", IP: "127.0.0.1"}
	at := v1alpha1.StargateMetrics{Port: int32(listener.Addr().(*net.TCPAddr).Port)}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		looks := patientScraper().read(t.Context(), []rollout.Pod{pod}, at, keepAll)
		if err := looks[0].Err; err == nil || err.Error() != "connection refused" {
			t.Errorf("got %v", err)
		}
	}
}

func TestScraperWaitsForNoPodLongerThanItsBound(t *testing.T) {
	release := make(chan struct{})
	pod, at := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select { // the headers came, the body does not
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	looks := newScraper(nil).read(t.Context(), []rollout.Pod{pod}, at, keepAll)
	if err := looks[0].Err; err == nil || err.Error() != "no answer within 2s" {
		t.Errorf("got %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	looks = newScraper(nil).read(done, []rollout.Pod{pod, pod}, at, keepAll)
	if looks[0].Err == nil || looks[1].Err == nil {
		t.Errorf("got %+v of a pass that is over", looks)
	}
}

func TestFollowerLooksWhenItIsTime(t *testing.T) {
	var f follower
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	settings := &analysis.Settings{Interval: time.Minute}
	if _, following := f.due(start); following || len(f.figures()) != 0 {
		t.Error("follows nothing, and yet something")
	}
	one := []rollout.Sampling{{Key: "before x", Subjects: []analysis.Subject{{Model: "a"}}}}
	f.follow(one, settings)
	if after, following := f.due(start); after != 0 || !following || len(f.figures()) != 0 {
		t.Errorf("what is new is due after %s", after)
	}
	sample := func(n float64) []analysis.Look {
		return []analysis.Look{{UID: "1", Sample: analysis.Sample{{Model: "a", Status: "200"}: n}}}
	}
	f.look(start, sample(5))
	f.follow(one, settings)
	if after, _ := f.due(start.Add(time.Second)); after != 2*time.Second {
		t.Errorf("the next look is due after %s, want 2s: a twentieth of the interval", after)
	}
	f.look(start.Add(3*time.Second), sample(9))
	if got := f.figures()["before x"]; got.Counts.Requests != 4 || !got.Since.Equal(start) {
		t.Errorf("got %+v", got)
	}
	f.follow(append(one, rollout.Sampling{Key: "after y"}), settings)
	if after, _ := f.due(start.Add(3 * time.Second)); after != 0 || len(f.figures()) != 1 {
		t.Errorf("what is new beside it is due after %s", after)
	}
	f.follow(nil, nil)
	if _, following := f.due(start); following || len(f.figures()) != 0 {
		t.Error("what nobody asks for any more is still followed")
	}
}
