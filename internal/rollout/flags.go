package rollout

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// pending are the units that have a flag still to be switched on.
func (p *pass) pending() []render.Unit { return render.Units(p.desired.Difference(p.on)) }

// warmup lets the gateways' memory fill before a first or further flag relies on it.
func (p *pass) warmup() (bool, error) {
	if len(p.pending()) == 0 || p.limit() != nil {
		return false, nil
	}
	if r := p.flagsAllowed(); r != nil {
		p.plan.Stage = v1alpha1.StageGatewayMemory
		p.flags = r.verdict()
		p.wait(r.reason, r.message, r.until)
		return true, nil
	}
	var warm time.Time
	for i := range p.w.Gateways {
		if t := p.completedAt(&p.w.Gateways[i]).Add(p.w.Plane.GatewayWarmup); t.After(warm) {
			warm = t
		}
	}
	if r := p.notBefore(warm, ReasonWarmup, "the gateways' memory to fill"); r != nil {
		p.plan.Stage = v1alpha1.StageWarmup
		next, err := p.nextWave()
		if err != nil {
			return true, err
		}
		p.beforeWave(&next) // counted meanwhile
		p.flags = verdict{reason: r.reason, message: fmt.Sprintf("%d units of flags wait until the gateways' memory is warm", len(p.pending()))}
		p.wait(r.reason, r.message, r.until)
		return true, nil
	}
	return false, nil
}

// waves switches the next flags on.
func (p *pass) waves() (bool, error) {
	pending := p.pending()
	if len(pending) == 0 || p.limit() != nil {
		p.plan.Stage = v1alpha1.StageSettled
		return p.judged(), nil
	}
	sg := &p.w.Stargate
	p.plan.Stage = v1alpha1.StageFlags
	next, err := p.nextWave()
	if err != nil {
		return true, err
	}
	name, rendered, done := next.name, next.rendered, next.done
	record, failed := p.failed(name, sg)
	var before *reason
	if !failed {
		before = p.beforeWave(&next)
	}
	if p.judged() {
		return true, nil
	}
	if failed {
		p.held = &failure{name, sg, record}
		p.stall(&p.flags, record.failureReason(), p.heldMessage())
		return true, nil
	}
	pause := func() *reason {
		if done == 0 {
			return nil
		}
		return p.notBefore(p.completedAt(sg).Add(p.w.Plane.WaveInterval), ReasonWaveInterval, fmt.Sprintf("spec.rollout.waveInterval since wave %d", done))
	}
	what := fmt.Sprintf("wave %d: lastClusterAffinity of %s", done+1, unitNames(next.units))
	counted := func() *reason { return before }
	preflight := func() *reason { return p.preflight(name, stargateData(rendered), done+1) }
	if r := first(func() *reason { return p.mayRoll(sg, false) }, pause, p.interval, counted, preflight); r != nil {
		p.flags = verdict{reason: r.reason, message: fmt.Sprintf("%s waits: %s", what, r.message)}
		p.waitFor(r, what)
		return true, nil
	}
	p.plan.Target, p.plan.TargetData = name, rendered.Data
	p.apply(sg, render.ArtefactStargate, name, stargateData(rendered), done+1, what)
	p.flags = verdict{reason: ReasonRollingOut, message: what}
	p.wait(ReasonRollingOut, fmt.Sprintf("%s %s gets %s", sg.Kind, sg.Name, name), time.Time{})
	return true, nil
}

// wave of flags that is the next one.
type wave struct {
	units []render.Unit
	// done is the number of waves before it.
	done int
	// name of the revision that brings it, and its file.
	name     string
	rendered render.Rendered
}

// wavesDone is the number of waves up to the revision in Stargate's template, or, where that failed, up to the one that
// it goes back to.
func (p *pass) wavesDone() int {
	sg := &p.w.Stargate
	if _, failed := p.failed(sg.Template.Revision, sg); !failed {
		return p.w.Revisions[sg.Template.Revision].Wave
	}
	if good := p.lastGood(sg); good != nil {
		return good.Wave
	}
	return 0
}

func (p *pass) nextWave() (next wave, err error) {
	pending := p.pending()
	if p.on.Len() > 0 {
		next.done = p.wavesDone()
	}
	next.units = pending[:waveSize(p.w.Plane.Waves, next.done, len(pending))]
	next.name, next.rendered, err = p.render(p.on.Intersection(p.desired).Union(render.OfUnits(p.desired, next.units...)))
	return next, err
}

// waveSize is the number of units in the wave after done waves: the entry of waves, the last one repeating; a
// percentage is of those pending, rounded up. At least one.
func waveSize(waves []intstr.IntOrString, done, pending int) int {
	if len(waves) == 0 {
		return pending
	}
	entry := waves[min(done, len(waves)-1)]
	size, err := intstr.GetScaledValueFromIntOrPercent(&entry, pending, true)
	if err != nil {
		size = 1
	}
	return min(max(size, 1), pending)
}

const namesShown = 16

func unitName(u render.Unit) string {
	if u.Plane {
		return "the plane's requestAlgorithms"
	}
	return u.Model
}

func unitNames(units []render.Unit) string {
	return strings.Join(capped(units, unitName), ", ")
}

// capped lists the first names and says in a last entry how many more there are.
func capped[T any](all []T, name func(T) string) (names []string) {
	shown := all
	if len(all) > namesShown {
		shown = all[:namesShown-1]
	}
	for _, one := range shown {
		names = append(names, name(one))
	}
	if more := len(all) - len(shown); more > 0 {
		names = append(names, "and "+strconv.Itoa(more)+" more")
	}
	return names
}
