package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/routing"
)

// Setup is what a run needs. Site and Workload have their defaults filled in, as ReadSite, DefaultSite and so on
// give them.
type Setup struct {
	Site     Site
	Workload Workload
	// Trace replaces the workload's sessions; nil: there is none.
	Trace   []TraceRequest
	Variant Variant
	Seed    uint64
	// Progress is told now and then what share of the time is simulated; nil: nobody is.
	Progress func(share float64)
	// Record is told of every request that arrives; nil: nobody is.
	Record func(TraceRequest)
}

func newSim(setup Setup) (*sim, error) {
	s := &sim{Setup: setup, draw: newSessionRand()}
	s.ttl = cmp.Or(setup.Variant.TTL, ptr.Deref(setup.Site.Gateway.TTL, Duration{}).Duration, render.DefaultTTL)
	s.duration = ptr.Deref(setup.Workload.Duration, Duration{Duration: defaultDuration}).Duration
	if setup.Workload.Duration == nil && setup.Trace != nil {
		s.duration = (setup.Trace[len(setup.Trace)-1].Time + time.Second).Truncate(time.Second)
	}
	if warmup := setup.Workload.Warmup.Duration; warmup >= s.duration {
		return nil, fmt.Errorf("the warm-up of %v takes all of the %v that are simulated; shorten warmup in the workload", warmup, s.duration)
	}
	source := randomness(setup.Seed, "replicas of requests", 0)
	s.assign = rand.New(&source)
	if err := s.addModels(); err != nil {
		return nil, err
	}
	s.addClusters()
	for i, m := range s.models {
		m.figures = newFigures(len(s.clusters), s.duration)
		if !slices.ContainsFunc(s.clusters, func(c *cluster) bool { return c.serves[i] }) {
			return nil, fmt.Errorf("no cluster of the site serves model %q; add it to the models of one", m.name)
		}
	}
	if err := s.addReplicas(); err != nil {
		return nil, err
	}
	if setup.Trace != nil {
		s.startReplay()
		return s, nil
	}
	for i, g := range s.traffics {
		if at, ok := g.next(0); ok {
			s.come(at, sessionStart, int32(i))
		}
	}
	return s, nil
}

// trafficByModel is the traffic of each model that is simulated: the workload's, where it has an entry without a model all
// of the configuration, and those of the trace.
func (s *Setup) trafficByModel() map[string]*Traffic {
	var everyOther *Traffic
	byName := map[string]*Traffic{}
	for i := range s.Workload.Traffic {
		t := &s.Workload.Traffic[i]
		if t.Model == "" {
			everyOther = t
			continue
		}
		byName[t.Model] = t
	}
	var names []string
	if everyOther != nil {
		names = s.Variant.Models()
	}
	for i := range s.Trace {
		names = append(names, s.Trace[i].Model)
	}
	byDefault(&everyOther, DefaultWorkload().Traffic[0])
	for _, name := range names {
		if byName[name] == nil {
			t := *everyOther
			t.Model = name
			byName[name] = &t
		}
	}
	return byName
}

// Warnings tells which models of the configuration get no traffic, and which of the traffic have no entry in the
// configuration.
func (s *Setup) Warnings() []string {
	var warnings []string
	traffic := s.trafficByModel()
	for _, name := range s.Variant.Models() {
		if traffic[name] == nil {
			warnings = append(warnings, fmt.Sprintf("model %q of %s is not simulated: the workload has no traffic for it", name, s.Variant.Policy))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(traffic)) {
		if _, ok := s.Variant.Plane.Models[name]; !ok {
			warnings = append(warnings, fmt.Sprintf("model %q has no entry in %s: the default algorithm decides about it", name, s.Variant.Policy))
		}
	}
	return warnings
}

// addModels settles which models there are.
func (s *sim) addModels() error {
	traffic := s.trafficByModel()
	if len(traffic) == 0 {
		return errors.New("no model: the files have no RoutingPolicy; name a model in the traffic of the workload")
	}
	for i, name := range slices.Sorted(maps.Keys(traffic)) {
		s.models = append(s.models, &model{name: name, headers: traffic[name]})
		s.traffics = append(s.traffics, newTraffic(traffic[name], int32(i), s.Seed, s.newKey))
	}
	return nil
}

func (s *sim) newKey(name string) *affinityKey {
	s.keyIDs++
	return &affinityKey{id: s.keyIDs, name: name, last: -1}
}

func (s *sim) addClusters() {
	for i := range s.Site.Clusters {
		spec := &s.Site.Clusters[i]
		serves := make([]bool, len(s.models))
		for m := range s.models {
			serves[m] = len(spec.Models) == 0 || slices.Contains(spec.Models, s.models[m].name)
		}
		for n, name := range spec.names() {
			s.clusters = append(s.clusters, &cluster{
				name: name, serves: serves, slots: *spec.Slots,
				prefillRate: *spec.PrefillTokensPerSecond, decodeRate: *spec.DecodeTokensPerSecond, maxInputTPS: *spec.MaxInputTokensPerSecond,
				oneWay: spec.RTT.Duration / 2, timeline: spec.Timeline, period: spec.TimelinePeriod.Duration,
				shift: time.Duration(n) * spec.TimelineShift.Duration,
				up:    true, factor: 1, cache: newKVCache(*spec.KVTokens), load: newSeries(windows, s.duration),
			})
		}
	}
	slices.SortFunc(s.clusters, func(a, b *cluster) int { return cmp.Compare(a.name, b.name) })
	interval := s.Site.StatisticsInterval.Duration
	for i, c := range s.clusters {
		c.published = c.statistics()
		s.events.push(interval/time.Duration(len(s.clusters))*time.Duration(i+1), publication, int32(i), 0)
		if len(c.timeline) > 0 {
			s.events.push(c.shift+c.timeline[0].At.Duration, timelineMoment, int32(i), 0)
		}
	}
}

func (s *sim) addReplicas() error {
	for i := range *s.Site.Replicas {
		router, err := routing.NewRouter(s.Variant.Plane, routing.Options{})
		if err != nil {
			return err
		}
		source := randomness(s.Seed, "replica", uint64(i))
		s.replicas = append(s.replicas, &replica{router: router, rng: rand.New(&source), views: make([]view, len(s.models)), pending: make([]pending, len(s.clusters))})
	}
	return s.setCandidates()
}
