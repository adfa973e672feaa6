package rollout

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

// finding is the verdict that a check comes to, instead of the failure of the test that runs it.
type finding struct {
	testing.TB
	message string
}

func (f *finding) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Logf drops the way to what was found.
func (f *finding) Logf(string, ...any) {}

func (f *finding) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// found is what the exploration of the site finds, if anything.
func found(t *testing.T, start *site, goal func(*site, *Plan) bool) string {
	t.Helper()
	f := &finding{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		explore(f, start, 0, goal)
	}()
	<-ended
	return f.message
}

// old is a small site with a Stargate of the image, where the models have just changed.
func old(t testing.TB, image string, models ...v1alpha1.Model) *site {
	s := small(t, v1alpha1.KindDeployment)
	s.setModels(plain("a"), plain("b"))
	s.setImage(image)
	s.settle(t)
	s.setModels(models...)
	return s
}

// Each invariant, and each property of gates and preflights, has a bug that breaks it, planted by hiding from the planner
// what it has to go by, and the exploration finds each. So what passes the exploration does not pass for want of teeth.
func TestTheExplorationBites(t *testing.T) {
	knowsAll := func(of *Template) { of.Release.Generation = release.Newest }
	judged := func(hold bool) func(testing.TB) *site {
		return func(t testing.TB) *site { return judgedSmall(t, v1alpha1.KindDeployment, hold) }
	}
	preflights := func(t testing.TB) *site { return preflightedSmall(t, v1alpha1.KindDeployment) }
	for name, plant := range map[string]struct {
		want  string
		start func(testing.TB) *site // a small one if nil
		blind func(*World)
		goal  func(*site, *Plan) bool // done if nil
	}{
		"every gateway seems to have the memory on": {want: "I1: switches", blind: func(w *World) {
			seen := Memory{On: true, Variables: render.GatewayVariables(w.Plane.LastCluster, true)}
			for i := range w.Gateways {
				g := &w.Gateways[i]
				g.Template.Memory = seen
				for j := range g.Pods {
					g.Pods[j].Memory = seen
				}
				for j := range g.OtherTemplates {
					g.OtherTemplates[j].Memory = seen
				}
			}
		}},
		"pods of the old image seem to know the header": {
			want: "I2: switches",
			start: func(t testing.TB) *site {
				s := old(t, "router:0.20.0", affine("a"), affine("b"))
				s.settle(t)
				s.setImage("router:0.22.0")
				return s
			},
			blind: func(w *World) {
				for i := range w.Stargate.Pods {
					knowsAll(&w.Stargate.Pods[i].Template)
					w.Stargate.Pods[i].Updated, w.Stargate.Pods[i].Ready = true, true
				}
				for i := range w.Stargate.OtherTemplates {
					knowsAll(&w.Stargate.OtherTemplates[i])
				}
				w.Stargate.RolledOut = true
			},
		},
		"every rollout seems to be complete at once": {want: "I3: rolls", blind: func(w *World) {
			for _, one := range append([]*Workload{&w.Stargate}, pointers(w.Gateways)...) {
				one.RolledOut = true
				for i := range one.Pods {
					one.Pods[i].Updated, one.Pods[i].Ready = true, true
				}
			}
		}},
		"the old Stargate seems to be new": {
			want: "I4: gives",
			start: func(t testing.TB) *site {
				newer := affine("a")
				newer.LastClusterAffinity, newer.FallbackMaxQueued = nil, new(int64(3))
				return old(t, "router:0.10.0", newer, plain("b"))
			},
			blind: func(w *World) { knowsAll(&w.Stargate.Template) },
		},
		"no failure is remembered": {
			want: "I5: gives",
			start: func(t testing.TB) *site {
				s := small(t, v1alpha1.KindDeployment)
				s.bad = "b"
				return s
			},
			blind: func(w *World) {
				eachRecord(w, func(_ string, r *Record) {
					*r = Record{Applied: r.Applied, Completed: r.Completed, Template: r.Template}
				})
				for i := range w.Plane.Status.Records {
					w.Plane.Status.Records[i].FailedAt = nil
				}
			},
		},
		"what is in place always seems to be damaged": {want: "I6: writes", blind: func(w *World) {
			for name, revision := range w.Revisions {
				revision.Intact = false
				w.Revisions[name] = revision
			}
		}},
		"no rollout of a gateway ever seems to be complete": {want: "no way to the desired end", blind: func(w *World) {
			for i := range w.Gateways {
				w.Gateways[i].RolledOut = false
			}
		}},
		"the metrics after a wave always seem to be good": {want: "gate: judges", start: judged(false), goal: judgedWell, blind: func(w *World) {
			for key, figures := range w.Figures {
				figures.Counts = well
				w.Figures[key] = figures
			}
		}},
		"too few samples seem to do": {want: "gate: judges", start: judged(true), goal: judgedWell, blind: func(w *World) {
			settings := *w.Plane.Analysis
			settings.Hold = false
			w.Plane.Analysis = &settings
		}},
		"waves seem not to be judged": {want: "gate: switches on", start: judged(false), goal: judgedWell, blind: func(w *World) { w.Plane.Analysis = nil }},
		"a gate that failed seems to have passed": {want: "does not withdraw the wave that failed", start: judged(false), goal: judgedWell, blind: func(w *World) {
			passed := &v1alpha1.GateRecord{Before: "none"}
			eachRecord(w, func(_ string, r *Record) {
				if r.failedByMetrics() {
					r.Failed, r.Gate = time.Time{}, passed
				}
			})
			for i := range w.Plane.Status.Records {
				if r := &w.Plane.Status.Records[i]; r.Gate != nil && r.Gate.Failed {
					r.FailedAt, r.Gate = nil, passed
				}
			}
		}},
		"the wave before the one that failed seems never to have been complete": {want: "does not withdraw the wave that failed and it alone", start: judged(false), goal: judgedWell, blind: func(w *World) {
			if w.Revisions[w.Stargate.Template.Revision].Wave < 2 {
				return
			}
			eachRecord(w, func(revision string, r *Record) {
				if w.Revisions[revision].Wave == 1 {
					r.Completed = time.Time{}
				}
			})
			for i := range w.Plane.Status.Records {
				if r := &w.Plane.Status.Records[i]; w.Revisions[r.Revision].Wave == 1 {
					r.CompletedAt = nil
				}
			}
		}},
		"nothing ever seems to be counted": {want: "no way to the desired end", start: judged(false), goal: judgedWell, blind: func(w *World) { w.Figures = nil }},
		"preflight pods seem to have loaded at once": {want: "preflight: gives", start: preflights, goal: preflightedAll, blind: func(w *World) {
			for i := range w.Preflight.Pods {
				w.Preflight.Pods[i].Loaded = true
			}
		}},
		"what a preflight pod of another template has loaded seems to count": {
			want: "preflight: gives",
			start: func(t testing.TB) *site {
				s := preflights(t)
				s.pass(t)
				s.preflights[0].ready = true
				s.setImage("router:0.22.1")
				return s
			},
			goal: preflightedAll,
			blind: func(w *World) {
				for i := range w.Preflight.Pods {
					w.Preflight.Pods[i].Made = w.Stargate.Template.Foreign
				}
			},
		},
		"preflight pods never seem to load": {want: "no way to the desired end", start: preflights, goal: preflightedAll, blind: func(w *World) {
			for i := range w.Preflight.Pods {
				w.Preflight.Pods[i].Loaded = false
			}
		}},
		"preflight pods that have loaded seem to be terminating": {want: "no way to the desired end", start: preflights, goal: preflightedAll, blind: func(w *World) {
			for i := range w.Preflight.Pods {
				w.Preflight.Pods[i].Terminating = w.Preflight.Pods[i].Terminating || w.Preflight.Pods[i].Loaded
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if plant.start == nil {
				plant.start = func(t testing.TB) *site { return small(t, v1alpha1.KindDeployment) }
			}
			if plant.goal == nil {
				plant.goal = done
			}
			start := plant.start(t)
			start.blind = plant.blind
			got := found(t, start, plant.goal)
			if !strings.Contains(got, plant.want) {
				t.Fatalf("found %q, want %q", got, plant.want)
			}
			t.Log(strings.SplitN(got, "\n", 2)[0])
		})
	}
}

// eachRecord shows every record of a workload on a revision, of a world whose revisions are not another's.
func eachRecord(w *World, change func(revision string, r *Record)) {
	for name, revision := range w.Revisions {
		revision.Records = maps.Clone(revision.Records)
		for key, record := range revision.Records {
			change(name, &record)
			revision.Records[key] = record
		}
		w.Revisions[name] = revision
	}
}

func pointers(all []Workload) (list []*Workload) {
	for i := range all {
		list = append(list, &all[i])
	}
	return list
}
