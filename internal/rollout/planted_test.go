package rollout

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"

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

// Each invariant has a bug that breaks it, planted by hiding from the planner what it has to go by, and the
// exploration finds each. So what passes the exploration does not pass for want of teeth.
func TestTheExplorationBites(t *testing.T) {
	knowsAll := func(of *Template) { of.Release.Generation = release.Newest }
	for want, plant := range map[string]struct {
		start func(testing.TB) *site
		blind func(*World)
	}{
		"I1: switches": {blind: func(w *World) { // every gateway seems to have the memory on
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
		"I2: switches": {
			start: func(t testing.TB) *site {
				s := old(t, "router:0.20.0", affine("a"), affine("b"))
				s.settle(t)
				s.setImage("router:0.22.0")
				return s
			},
			blind: func(w *World) { // pods of the old image seem to know the header
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
		"I3: rolls": {blind: func(w *World) { // every rollout seems to be complete at once
			for _, one := range append([]*Workload{&w.Stargate}, pointers(w.Gateways)...) {
				one.RolledOut = true
				for i := range one.Pods {
					one.Pods[i].Updated, one.Pods[i].Ready = true, true
				}
			}
		}},
		"I4: gives": {
			start: func(t testing.TB) *site {
				newer := affine("a")
				newer.LastClusterAffinity, newer.FallbackMaxQueued = nil, new(int64(3))
				return old(t, "router:0.10.0", newer, plain("b"))
			},
			blind: func(w *World) { knowsAll(&w.Stargate.Template) }, // the old Stargate seems to be new
		},
		"I5: gives": {
			start: func(t testing.TB) *site {
				s := small(t, v1alpha1.KindDeployment)
				s.bad = "b"
				return s
			},
			blind: func(w *World) { // no failure is remembered
				for name, revision := range w.Revisions {
					revision.Records = maps.Clone(revision.Records)
					for key, record := range revision.Records {
						revision.Records[key] = Record{Applied: record.Applied, Completed: record.Completed, Template: record.Template}
					}
					w.Revisions[name] = revision
				}
				for i := range w.Plane.Status.Records {
					w.Plane.Status.Records[i].FailedAt = nil
				}
			},
		},
		"I6: writes": {blind: func(w *World) { // what is in place always seems to be damaged
			for name, revision := range w.Revisions {
				revision.Intact = false
				w.Revisions[name] = revision
			}
		}},
		"no way to the desired end": {blind: func(w *World) { // no rollout of a gateway ever seems to be complete
			for i := range w.Gateways {
				w.Gateways[i].RolledOut = false
			}
		}},
	} {
		t.Run(strings.TrimSuffix(want[:2], ":"), func(t *testing.T) {
			start := small(t, v1alpha1.KindDeployment)
			if plant.start != nil {
				start = plant.start(t)
			}
			start.blind = plant.blind
			got := found(t, start, done)
			if !strings.Contains(got, want) {
				t.Fatalf("found %q, want %q", got, want)
			}
			t.Log(strings.SplitN(got, "\n", 2)[0])
		})
	}
}

func pointers(all []Workload) (list []*Workload) {
	for i := range all {
		list = append(list, &all[i])
	}
	return list
}
