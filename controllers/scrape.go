package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Bounds of reading metrics within a pass: a plane whose pods cannot be reached holds a worker up for no longer.
const (
	scrapePod   = 2 * time.Second
	scrapeAll   = 5 * time.Second
	scrapesOnce = 8
)

// NewMetricsTransport makes the transport by which pods' metrics are read: directly, whatever proxy the environment
// names, and without decompressing anything.
func NewMetricsTransport() http.RoundTripper {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: scrapePod}).DialContext,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// scraper reads the metrics of Stargate's pods: of those that the plane's workload owns, at the address that their
// kubelet reports, the path /metrics and nothing that it redirects to.
type scraper struct {
	client *http.Client // with the bound of one pod
	all    time.Duration
}

func newScraper(transport http.RoundTripper) *scraper {
	if transport == nil {
		transport = NewMetricsTransport()
	}
	return &scraper{all: scrapeAll, client: &http.Client{
		Transport: transport, Timeout: scrapePod,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// read reads the pods side by side. Those whose container has not started have nothing to be read.
func (s *scraper) read(ctx context.Context, pods []rollout.Pod, at v1alpha1.StargateMetrics, keep func(*analysis.Series) bool) []analysis.Look {
	ctx, cancel := context.WithTimeout(ctx, s.all)
	defer cancel()
	looks := make([]analysis.Look, len(pods))
	var group errgroup.Group
	group.SetLimit(scrapesOnce)
	for i := range pods {
		pod := &pods[i]
		looks[i] = analysis.Look{UID: pod.UID, Name: pod.Name, Revision: pod.Revision, Created: pod.Created, Ending: pod.Terminating || !pod.Started}
		group.Go(func() error {
			sample, err := s.pod(ctx, pod, at, keep)
			looks[i].Sample, looks[i].Err = sample, s.tell(err)
			return nil
		})
	}
	_ = group.Wait() // every failure is in its look
	return looks
}

func (s *scraper) pod(ctx context.Context, pod *rollout.Pod, at v1alpha1.StargateMetrics, keep func(*analysis.Series) bool) (analysis.Sample, error) {
	ip, err := netip.ParseAddr(pod.IP)
	if err != nil {
		return nil, errors.New("it has no address")
	}
	target := url.URL{Scheme: "http", Host: net.JoinHostPort(ip.String(), strconv.Itoa(int(at.Port))), Path: "/metrics"}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("port %d answers /metrics with status %d", at.Port, response.StatusCode)
	}
	return analysis.Read(response.Body, at.Prefix, keep)
}

// tell says why metrics could not be read in words that do not change from one attempt to the next, as a port of
// the operator's own would.
func (s *scraper) tell(err error) error {
	var late net.Error
	var errno syscall.Errno
	var failed *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("no answer within %s", s.client.Timeout)
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &failed):
		return failed.Err
	}
	return err
}

// follower follows the metrics of a plane's pods between its passes.
type follower struct {
	every   time.Duration
	looked  time.Time
	windows map[string]*analysis.Window
}

// follow takes up what a plan asks for, goes on with what an earlier one asked for too, and drops the rest.
func (f *follower) follow(samplings []rollout.Sampling, settings *analysis.Settings) {
	windows := make(map[string]*analysis.Window, len(samplings))
	for _, s := range samplings {
		window := f.windows[s.Key]
		if window == nil {
			window = analysis.NewWindow(s.Subjects, s.Revision)
		}
		windows[s.Key] = window
	}
	f.windows = windows
	if settings != nil {
		f.every = settings.Every()
	}
}

// due tells after how long the pods are to be looked at, if anything is followed.
func (f *follower) due(now time.Time) (after time.Duration, following bool) {
	for _, window := range f.windows {
		if window.Fresh() {
			return 0, true
		}
	}
	return max(f.looked.Add(f.every).Sub(now), 0), len(f.windows) > 0
}

func (f *follower) concerns(s *analysis.Series) bool {
	for _, window := range f.windows {
		if window.Concerns(s) {
			return true
		}
	}
	return false
}

// look adds a look at the pods to what is followed.
func (f *follower) look(now time.Time, looks []analysis.Look) {
	f.looked = now
	for _, window := range f.windows {
		window.Look(now, looks)
	}
}

// figures of what was looked at at least once.
func (f *follower) figures() map[string]analysis.Figures {
	figures := map[string]analysis.Figures{}
	for key, window := range f.windows {
		if !window.Fresh() {
			figures[key] = window.Figures()
		}
	}
	return figures
}

// analysis looks at the metrics, if it is time to, and puts what was counted into the world.
func (g *gatherer) analysis() error {
	f, w := &g.memory.follower, &g.seen.world
	if after, following := f.due(w.Now); following && after == 0 {
		at := g.plane.Spec.Stargate.Metrics
		if at.Port == 0 { // of a plane that was stored without defaults
			at = v1alpha1.StargateMetrics{Port: 9090, Prefix: "stargate_"}
		}
		f.look(w.Now, g.scraper.read(g.ctx, w.Stargate.Pods, at, f.concerns))
	}
	w.Figures = f.figures()
	return nil
}
