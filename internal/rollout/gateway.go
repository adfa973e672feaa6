package rollout

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

// memory brings the gateways' memory to where it should be: on while a flag is wanted, off by letting go when
// none is, and off explicitly when Stargate no longer knows the header.
func (p *pass) memory() (bool, error) {
	wanted := render.Desired(p.w.Config).Union(p.desired)
	if limit := p.limit(); limit != nil && wanted.Len() > 0 {
		p.flags = limit.verdict()
	}
	switch {
	case wanted.Len() == 0:
		return p.memoryOff(false), nil
	case p.w.Stargate.Release().Generation < release.V3:
		return p.memoryOff(true), nil
	default:
		return p.memoryOn(), nil
	}
}

// limit says what keeps every flag off for as long as nobody changes the site: nothing is waited for then.
func (p *pass) limit() *reason {
	switch {
	case p.w.Stargate.Release().Generation < release.V3:
		return p.knowsHeader()
	case len(p.w.Gateways) == 0:
		return p.flagsAllowed()
	}
	return nil
}

// restore switches a gateway's memory on again that went off while flags are on. It waits for nothing but the
// operator's own rollout of another workload.
func (p *pass) restore() (bool, error) {
	if p.on.Intersection(p.desired).Len() == 0 || p.limit() != nil {
		return false, nil
	}
	data := render.GatewayVariables(p.w.Plane.LastCluster, true)
	name := render.RevisionName(p.w.Plane.Name, render.ArtefactGateway, data)
	for i := range p.w.Gateways {
		g := &p.w.Gateways[i]
		if _, failed := p.failed(name, g); failed || g.Template.Memory.On || !g.Found || g.Deleting {
			continue
		}
		p.plan.Stage = v1alpha1.StageGatewayMemory
		if p.rollGateway(g, name, data, fmt.Sprintf("the memory went off while flags are on: %s %s gets %s", g.Kind, g.Name, name), p.knowsHeader, true) {
			return true, nil
		}
	}
	return false, nil
}

func (p *pass) memoryOn() bool {
	p.plan.Stage = v1alpha1.StageGatewayMemory
	data := render.GatewayVariables(p.w.Plane.LastCluster, true)
	name := render.RevisionName(p.w.Plane.Name, render.ArtefactGateway, data)
	for i := range p.w.Gateways {
		g := &p.w.Gateways[i]
		// Pods that lack what their template has since been given get it by a revision, whose rollout restarts them.
		lacking := g.outdated() != nil && p.blocked(g) == nil
		if g.OtherPlane == "" && !lacking && sameVariables(g.Template.Memory.Variables, data) && p.intact(g.Template.Revision) {
			continue
		}
		if _, failed := p.failed(name, g); failed {
			p.holdGateway(g, name)
			return true
		}
		p.rollGateway(g, name, data, fmt.Sprintf("switching the memory of the last cluster on: %s %s gets %s", g.Kind, g.Name, name), p.knowsHeader, false)
		return true
	}
	for i := range p.w.Gateways {
		if r := p.unsettled(&p.w.Gateways[i]); r != nil && r.reason == ReasonRollingOut {
			p.gateway = r.verdict()
			p.wait(r.reason, r.message, time.Time{})
			return true
		}
	}
	p.gateway = p.memoryVerdict()
	return false
}

// memoryOff switches off what the operator switched on, as soon as no Stargate pod can have a flag on.
func (p *pass) memoryOff(explicit bool) bool {
	data := render.GatewayVariables(p.w.Plane.LastCluster, false)
	name := render.RevisionName(p.w.Plane.Name, render.ArtefactGateway, data)
	for i := range p.w.Gateways {
		g := &p.w.Gateways[i]
		if !g.Template.Touched && !g.Managed || explicit && (g.Template.Revision == name || !g.Template.Memory.On) {
			continue
		}
		p.plan.Stage = v1alpha1.StageWithdrawMemory
		if explicit {
			p.rollGateway(g, name, data, fmt.Sprintf("Stargate %s would pass the header on to the backends, so the memory goes off: %s %s gets %s",
				p.w.Stargate.Release().Version, g.Kind, g.Name, name), p.flagsGone, true)
			return true
		}
		p.letGo(g, "no flag needs the memory any more", p.flagsGone)
		return true
	}
	for i := range p.w.Gateways {
		if g := &p.w.Gateways[i]; g.Found && p.rolling(g) {
			p.gateway = verdict{reason: ReasonRollingOut, message: g.progress()}
			p.plan.Stage = v1alpha1.StageWithdrawMemory
			p.wait(ReasonRollingOut, g.progress(), time.Time{})
			return true
		}
	}
	p.gateway = verdict{ok: true, reason: ReasonMemoryNotNeeded, message: "no flag is in effect, so no gateway needs the memory"}
	return false
}

// flagsGone is the gate of switching a memory off: nothing of Stargate has a flag on.
func (p *pass) flagsGone() *reason {
	sg := &p.w.Stargate
	for _, t := range sg.templates() {
		revision, known := p.w.Revisions[t.Revision]
		if t.Revision == "" || known && revision.File != nil && revision.Flags.Len() == 0 {
			continue
		}
		if !known || revision.File == nil {
			return &reason{reason: ReasonFlagsOn, message: fmt.Sprintf("%s %s still uses revision %s, which cannot be read and may have a flag on", sg.Kind, sg.Name, t.Revision)}
		}
		return &reason{reason: ReasonFlagsOn, message: fmt.Sprintf("%s %s still has pods or a template on %s, which has flags on%s", sg.Kind, sg.Name, t.Revision, p.terminatingOn(t.Revision))}
	}
	return nil
}

func (p *pass) terminatingOn(revision string) string {
	for i := range p.w.Stargate.Pods {
		if pod := &p.w.Stargate.Pods[i]; pod.Revision == revision && pod.Terminating {
			return fmt.Sprintf(": pod %s%s", pod.Name, onNode(pod))
		}
	}
	return ""
}

// rollGateway gives the gateway the revision as soon as nothing speaks against it, and tells whether it does.
func (p *pass) rollGateway(g *Workload, name string, data map[string]string, why string, gate func() *reason, urgent bool) bool {
	if !p.gatewayReachable(g) {
		return false
	}
	if r := first(gate, func() *reason { return p.mayRoll(g, urgent || g.crash() != nil) }); r != nil {
		p.gateway = r.verdict()
		p.waitFor(r, why)
		return false
	}
	p.apply(g, render.ArtefactGateway, name, data, 0, why)
	p.gateway = verdict{reason: ReasonRollingOut, message: fmt.Sprintf("%s %s gets %s", g.Kind, g.Name, name)}
	p.wait(ReasonRollingOut, p.gateway.message, time.Time{})
	return true
}

// letGo gives up every field of the workload as soon as nothing speaks against it, and tells whether it does. The
// annotation goes last, once the template without the fields is rolled out.
func (p *pass) letGo(w *Workload, because string, gate func() *reason) bool {
	why := fmt.Sprintf("letting go of %s %s: %s", w.Kind, w.Name, because)
	if !w.Touched() {
		why = fmt.Sprintf("%s %s is let go of: %s", w.Kind, w.Name, because)
	}
	if r := first(gate, func() *reason { return p.mayRoll(w, w.crash() != nil) }); r != nil {
		p.gateway = r.verdict()
		p.waitFor(r, why)
		return false
	}
	p.step(Step{Kind: StepLetGo, Workload: w, Why: why})
	p.gateway = verdict{reason: ReasonRollingOut, message: why}
	p.wait(ReasonRollingOut, why, time.Time{})
	return true
}

func (p *pass) gatewayReachable(g *Workload) bool {
	if !g.Found || g.Deleting {
		message := fmt.Sprintf("%s %s does not exist in namespace %s", g.Kind, g.Name, p.w.Plane.Namespace)
		p.gateway = verdict{reason: ReasonWorkloadNotFound, message: message}
		p.wait(ReasonWorkloadNotFound, message, time.Time{})
		return false
	}
	if blocked := p.blocked(g); blocked != nil {
		p.stall(&p.gateway, blocked.reason, blocked.message)
		return false
	}
	return true
}

// holdGateway goes back to what the gateway last ran, and says that the memory failed to come on.
func (p *pass) holdGateway(g *Workload, name string) {
	record, _ := p.failed(name, g)
	p.stall(&p.gateway, ReasonRevisionFailed, fmt.Sprintf("%s failed on %s %s: %s; change spec.lastCluster or set the annotation %s to try again",
		name, g.Kind, g.Name, record.Message, RetryAnnotation))
	if g.Template.Revision != name {
		return
	}
	if r := p.mayRoll(g, true); r != nil {
		p.note("going back waits: %s", r.message)
		return
	}
	why := fmt.Sprintf("going back: %s failed on %s %s", name, g.Kind, g.Name)
	if good := p.lastGood(g); good != nil {
		p.apply(g, render.ArtefactGateway, good.Name, good.Data, 0, why)
		return
	}
	if p.flagsGone() == nil {
		p.step(Step{Kind: StepLetGo, Workload: g, Why: why})
	}
}

// intact tells whether the revision, if there is one, exists unharmed.
func (p *pass) intact(name string) bool {
	revision, ok := p.w.Revisions[name]
	return name == "" || ok && revision.Intact && !revision.Deleting
}

// memoryVerdict describes the gateways' memory as it is.
func (p *pass) memoryVerdict() verdict {
	if p.desired.Len() == 0 {
		return verdict{ok: true, reason: ReasonMemoryNotNeeded, message: "no flag is wanted, so no gateway needs the memory"}
	}
	unverified := ""
	var lacking *reason
	for i := range p.w.Gateways {
		g := &p.w.Gateways[i]
		switch r, taken := p.unsettled(g), g.taken(); {
		case taken != nil:
			return taken.verdict()
		case g.outdated() != nil:
			r = g.outdated().forgets()
			return r.verdict()
		case r == nil && g.Template.Memory.On:
		case g.Template.Memory.On && r.reason == ReasonPodsNotReady:
			lacking = r
		default:
			return verdict{reason: ReasonMemoryOff, message: fmt.Sprintf("%s %s does not have the memory of the last cluster on in every pod", g.Kind, g.Name)}
		}
		if g.Template.Memory.Unverified {
			unverified = "; no release of the gateway is known, so that it has the memory at all is unverified (spec.gateways[].releases states it)"
		}
	}
	switch {
	case len(p.w.Gateways) == 0:
		return verdict{reason: ReasonNoGateway, message: "the plane names no gateway"}
	case lacking != nil:
		return lacking.verdict()
	}
	return verdict{ok: true, reason: ReasonMemoryOn, message: "every gateway pod remembers the last cluster" + unverified}
}

// sameVariables compares variables by what the gateway makes of them: "10m" is "10m0s", "1" is "true", and what is not
// set is the gateway's default.
func sameVariables(have, want map[string]string) bool {
	defaults := render.GatewayVariables(v1alpha1.LastClusterSpec{}, false)
	for _, name := range render.GatewayVariableNames() {
		if canonical(name, cmp.Or(have[name], defaults[name])) != canonical(name, want[name]) {
			return false
		}
	}
	return true
}

// canonical is how the operator itself would spell a variable's value; what the gateway cannot read stays as it is.
func canonical(name, value string) string {
	switch name {
	case render.VariableEnabled:
		if on, err := strconv.ParseBool(value); err == nil {
			return strconv.FormatBool(on)
		}
	case render.VariableLocalMaxEntries:
		if entries, err := strconv.ParseInt(value, 10, 64); err == nil {
			return strconv.FormatInt(entries, 10)
		}
	case render.VariableTTL, render.VariableLookupTimeout:
		if d, err := time.ParseDuration(value); err == nil {
			return d.String()
		}
	}
	return value
}
