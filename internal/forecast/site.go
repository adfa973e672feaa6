package forecast

import (
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// assumed of a site that cannot be looked at: three replicas of each workload, as the platform has them.
const assumedReplicas = 3

// Site is the world of a plane that nobody can look at: its workloads run the configuration, flags included as far as
// the release and the plane allow them, and what is wanted is the same. Its gateways are of a release that has the
// memory.
func Site(plane *v1alpha1.RoutingPlane, running render.Config, stargate release.Release, now time.Time) (*rollout.World, error) {
	w := &rollout.World{
		Now: now, Plane: rollout.Settings(plane), Config: running, Revisions: map[string]rollout.Revision{},
		Stargate: workload(plane.Spec.Stargate.WorkloadRef, rollout.Template{Release: stargate, ReadsFile: true}),
	}
	on := render.Flags{}
	if len(plane.Spec.Gateways) > 0 && stargate.Generation >= release.V3 {
		on = render.Desired(running)
	}
	rendered, err := render.LBConfig(running, on, stargate.Generation)
	if err != nil {
		return nil, err
	}
	c := newCourse(w, func(*rollout.Workload) time.Duration { return 0 })
	c.give(&c.world.Stargate, rollout.Step{
		Artefact: render.ArtefactStargate, Data: map[string]string{render.LBConfigKey: string(rendered.Data)},
		Wave: rollout.CountWaves(w.Plane.Waves, len(render.Units(on))),
	})
	for i := range plane.Spec.Gateways {
		c.world.Gateways = append(c.world.Gateways, workload(plane.Spec.Gateways[i].WorkloadRef, rollout.Template{
			Release: release.Release{Version: "unknown", Generation: release.Unknown},
		}))
		if gateway := &c.world.Gateways[i]; on.Len() > 0 {
			c.give(gateway, rollout.Step{Artefact: render.ArtefactGateway, Data: render.GatewayVariables(plane.Spec.LastCluster, true)})
		} else {
			c.roll(gateway, "", "")
		}
	}
	return &c.world, nil
}

// give has the workload run a revision already, and for so long that nothing is to be waited for.
func (c *course) give(w *rollout.Workload, step rollout.Step) {
	step.Workload, step.Revision = w, render.RevisionName(c.world.Plane.Name, step.Artefact, step.Data)
	past := c.world.Now.Add(-longAgo)
	step.Record = rollout.Record{Applied: past, Completed: past}
	step.Kind = rollout.StepEnsureRevision
	c.do(&step)
	step.Kind = rollout.StepApply
	c.do(&step)
	for i := range w.Pods {
		w.Pods[i].Created, w.Pods[i].ReadySince = past, past
	}
}

// longAgo is longer than any warm-up or interval that a plane would have.
const longAgo = 365 * 24 * time.Hour

func workload(ref v1alpha1.WorkloadReference, template rollout.Template) rollout.Workload {
	return rollout.Workload{Kind: ref.Kind, Name: ref.Name, Found: true, Replicas: assumedReplicas, Template: template}
}
