// Package forecast tells how a plane would get from where it is to what is wanted. It has the operator's own planner
// make one pass after the other, in a world in which every rollout succeeds. It is pure.
package forecast

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Event is a rollout of a workload, a wait, or a preflight, which takes next to nothing.
type Event struct {
	// After is the time from now to the beginning, and Takes how long it goes on.
	After, Takes time.Duration
	// Workload as Kind/name, and its pods, all of which restart; empty for a wait and for a preflight.
	Workload string
	Pods     int32
	// Revision that the workload gets; empty where it is let go, or finishes what it has begun.
	Revision string
	// Why in the planner's words.
	Why string
}

// Forecast is what would happen.
type Forecast struct {
	Events []Event
	// Total time.
	Total time.Duration
	// Stage at the end.
	Stage v1alpha1.Stage
	// Blocked is what the plane waits for at the end that time alone does not bring; empty where it is done.
	Blocked string
	// Omitted are the settings that the release of Stargate does not know.
	Omitted []render.Omission
	// Judged tells that waves of flags are judged by metrics on the way, which are taken to be good.
	Judged bool
	// Warnings of the planner.
	Warnings []string
}

// Restarts counts the rollouts of each workload.
func (f *Forecast) Restarts() map[string]int {
	restarts := map[string]int{}
	for _, event := range f.Events {
		if event.Workload != "" {
			restarts[event.Workload]++
		}
	}
	return restarts
}

// passes that a forecast may take: a wave takes about four.
const passes = 1000

// Make forecasts what the operator does from the world on. Takes says how long a rollout of a workload takes. A pause
// is taken to be over.
func Make(world *rollout.World, takes func(*rollout.Workload) time.Duration) (*Forecast, error) {
	c := newCourse(world, takes)
	for range passes {
		plan, err := rollout.Make(&c.world)
		if err != nil {
			return nil, err
		}
		c.world.Plane.Status.Records, c.world.Plane.Status.Conditions = plan.Records, plan.Conditions
		c.follow(plan.Sampling)
		if plan.Omitted != nil {
			c.forecast.Omitted = plan.Omitted
		}
		if !c.pass(plan) {
			c.forecast.Stage, c.forecast.Warnings = plan.Stage, plan.Warnings
			if plan.Waiting != nil {
				c.forecast.Blocked = plan.Waiting.For
			}
			c.forecast.Total = c.elapsed()
			return &c.forecast, nil
		}
	}
	return nil, fmt.Errorf("the rollout of plane %s/%s has no end in sight after %d passes of the planner", world.Plane.Namespace, world.Plane.Name, passes)
}

// course is a world in which things happen.
type course struct {
	world    rollout.World
	start    time.Time
	takes    func(*rollout.Workload) time.Duration
	forecast Forecast
}

// newCourse copies what will change.
func newCourse(world *rollout.World, takes func(*rollout.Workload) time.Duration) *course {
	c := &course{world: *world, start: world.Now, takes: takes}
	c.world.Plane.Paused = false
	c.world.Gateways = slices.Clone(world.Gateways)
	c.world.Former = slices.Clone(world.Former)
	c.world.Revisions = maps.Clone(world.Revisions)
	if c.world.Revisions == nil {
		c.world.Revisions = map[string]rollout.Revision{}
	}
	// Preflights succeed too, those under way as well.
	c.world.Preflight.Pods = slices.DeleteFunc(slices.Clone(world.Preflight.Pods), func(p rollout.PreflightPod) bool { return p.Terminating })
	for i := range c.world.Preflight.Pods {
		c.world.Preflight.Pods[i].Loaded = true
	}
	return c
}

func (c *course) elapsed() time.Duration { return c.world.Now.Sub(c.start) }

// pass lets happen what a pass planned, or what it waits for, and tells whether anything did.
func (c *course) pass(plan *rollout.Plan) bool {
	for i := range plan.Steps {
		c.do(&plan.Steps[i])
	}
	if len(plan.Steps) > 0 {
		return !slices.ContainsFunc(plan.Steps, func(s rollout.Step) bool { return s.Kind == rollout.StepRemoveFinalizer })
	}
	for _, w := range c.workloads() {
		if w.Found && !w.Deleting && w.Hold == "" && !w.RolledOut {
			c.roll(w, "", "what is being rolled out already")
			return true
		}
	}
	if !plan.Requeue.After(c.world.Now) {
		return false
	}
	event := Event{After: c.elapsed(), Takes: plan.Requeue.Sub(c.world.Now)}
	if plan.Waiting != nil {
		event.Why = plan.Waiting.For
	}
	c.forecast.Events = append(c.forecast.Events, event)
	c.world.Now = plan.Requeue
	return true
}

// follow lets every gate see more good traffic than it takes.
func (c *course) follow(samplings []rollout.Sampling) {
	const plenty = 1e12
	c.forecast.Judged = c.forecast.Judged || len(samplings) > 0
	figures := map[string]analysis.Figures{}
	for _, s := range samplings {
		since := c.world.Now
		if known, ok := c.world.Figures[s.Key]; ok {
			since = known.Since
		}
		figures[s.Key] = analysis.Figures{Since: since, Counts: analysis.Counts{Returning: plenty, Primary: plenty, Requests: plenty}}
	}
	c.world.Figures = figures
}

func (c *course) workloads() []*rollout.Workload {
	all := []*rollout.Workload{&c.world.Stargate}
	for i := range c.world.Gateways {
		all = append(all, &c.world.Gateways[i])
	}
	for i := range c.world.Former {
		all = append(all, &c.world.Former[i])
	}
	return all
}

func (c *course) find(step *rollout.Step) *rollout.Workload {
	for _, w := range c.workloads() {
		if step.Workload != nil && w.Key() == step.Workload.Key() {
			return w
		}
	}
	return nil
}

func (c *course) do(step *rollout.Step) {
	w := c.find(step)
	switch step.Kind {
	case rollout.StepEnsureRevision:
		c.ensure(step, w)
	case rollout.StepRecord:
		revision := c.world.Revisions[step.Revision]
		revision.Records = maps.Clone(revision.Records)
		if revision.Records == nil {
			revision.Records = map[string]rollout.Record{}
		}
		revision.Records[w.Key()] = step.Record
		c.world.Revisions[step.Revision] = revision
	case rollout.StepApply:
		w.Managed = true
		w.Template.Touched, w.Template.Revision = true, step.Revision
		if step.Artefact == render.ArtefactGateway {
			w.Template.Memory = memory(c.world.Revisions[step.Revision].Data, w.Template.Release.Generation)
		}
		c.roll(w, step.Revision, step.Why)
	case rollout.StepLetGo:
		// The annotation goes in a second step, which restarts nothing.
		if !w.Template.Touched {
			w.Managed = false
			break
		}
		w.Template.Touched, w.Template.Revision, w.Template.Memory = false, "", rollout.Memory{}
		c.roll(w, "", step.Why)
	case rollout.StepDisown:
		w.Managed = false
	case rollout.StepDeletePod:
		w.Pods = slices.DeleteFunc(slices.Clone(w.Pods), func(p rollout.Pod) bool { return p.Name == step.Pod.Name })
		w.RolledOut = false
	case rollout.StepPreflight:
		c.forecast.Events = append(c.forecast.Events, Event{After: c.elapsed(), Revision: step.Revision, Why: step.Why})
		c.world.Preflight.Pods = append(c.world.Preflight.Pods, rollout.PreflightPod{
			Pod: rollout.Pod{Name: step.Revision, Template: rollout.Template{Revision: step.Revision}}, Made: w.Template.Foreign, Loaded: true,
		})
	case rollout.StepDeletePreflight:
		c.world.Preflight.Pods = slices.DeleteFunc(c.world.Preflight.Pods, func(p rollout.PreflightPod) bool { return p.Name == step.Pod.Name })
	case rollout.StepDeleteRevision:
		delete(c.world.Revisions, step.Revision)
	case rollout.StepRemoveFinalizer:
	}
}

// ensure makes the revision as the operator would find it later.
func (c *course) ensure(step *rollout.Step, w *rollout.Workload) {
	revision := rollout.Revision{
		Name: step.Revision, Artefact: step.Artefact, Data: step.Data, Wave: step.Wave, Intact: true, Created: c.world.Now,
		Records: map[string]rollout.Record{w.Key(): step.Record},
	}
	if step.Artefact == render.ArtefactStargate {
		if file, err := lbconfig.Read([]byte(step.Data[render.LBConfigKey]), release.Newest); err == nil {
			revision.File, revision.Flags = file, sets.New(file.Flags()...)
		}
	}
	c.world.Revisions[step.Revision] = revision
}

// memory of a gateway that gets its variables from a revision.
func memory(data map[string]string, generation release.Generation) rollout.Memory {
	m := rollout.Memory{Variables: data}
	m.On = data[render.VariableEnabled] == "true" && (generation == release.Unknown || generation >= release.V3)
	m.Unverified = m.On && generation == release.Unknown
	return m
}

// roll replaces every pod of the workload, and lets the time pass that it takes.
func (c *course) roll(w *rollout.Workload, revision, why string) {
	takes := c.takes(w)
	c.forecast.Events = append(c.forecast.Events, Event{
		After: c.elapsed(), Takes: takes, Workload: w.Key(), Pods: w.Replicas, Revision: revision, Why: why,
	})
	c.world.Now = c.world.Now.Add(takes)
	w.Generation++
	w.ObservedGeneration = w.Generation
	w.OtherTemplates = nil
	w.RolledOut = true
	w.Pods = nil
	for i := range w.Replicas {
		w.Pods = append(w.Pods, rollout.Pod{
			Name: fmt.Sprintf("%s-%d", w.Name, i), Template: w.Template, Updated: true, Ready: true, Started: true, Created: c.world.Now.Add(-takes), ReadySince: c.world.Now,
		})
	}
}
