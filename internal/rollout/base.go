package rollout

import (
	"fmt"
	"strings"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/render"
)

// base brings Stargate onto the configuration that is wanted, with no flag on that is not on already. Flags
// that nobody wants any more, or that must go, go with the same rollout.
func (p *pass) base() (bool, error) {
	sg := &p.w.Stargate
	p.plan.Stage = v1alpha1.StageBase
	keep := p.desired.Intersection(p.on)
	if lost := p.lost(); lost != nil && keep.Len() > 0 {
		if lost.until.IsZero() {
			p.note("withdrawing flags: %s", lost.message)
			keep = render.Flags{}
		} else {
			p.requeue(lost.until)
			p.note("flags are held: %s", lost.message)
		}
	}
	name, rendered, err := p.render(keep)
	if err != nil {
		return true, err
	}
	p.plan.Omitted = rendered.Omitted
	p.plan.Target, p.plan.TargetData = name, rendered.Data

	current := sg.Template.Revision
	if current != "" && current != name && p.sameMeaning(current, rendered) {
		name = current
		p.plan.Target = current
	}
	if revision := p.w.Revisions[name]; current == name && revision.Intact && !revision.Deleting && sg.Managed {
		return p.inProgress(sg), nil
	}
	if record, failed := p.failed(name, sg); failed && p.w.Plane.Deleted.IsZero() {
		p.held = &failure{revision: name, workload: sg, record: record}
		p.stall(&p.stargate, ReasonRevisionFailed, p.heldMessage())
		return true, nil
	}
	_, err = p.rollBase(name, rendered, keep)
	return true, err
}

// lost says that flags are on although a gateway's memory is not, with until set while that is to be restored
// first and unset where the flags have to be withdrawn.
func (p *pass) lost() *reason {
	sg := &p.w.Stargate
	if p.on.Len() == 0 || sg.Template.Revision == "" {
		return nil
	}
	missing := p.flagsAllowed()
	if missing == nil || missing.reason == ReasonStargateTooOld {
		return nil // a template that does not know the flag is not given it in the first place
	}
	if missing.reason == ReasonNoGateway {
		return missing
	}
	since := p.w.Now
	if was := conditionOf(p.w.Plane.Status, v1alpha1.ConditionGatewayReady); was != nil && was.Status == "False" {
		since = was.LastTransitionTime.Time
	}
	for i := range p.w.Gateways {
		if t := p.w.Gateways[i].progressed(); t.After(since) {
			since = t
		}
	}
	if deadline := since.Add(p.w.Plane.ProgressDeadline); p.w.Now.Before(deadline) {
		missing.until = deadline
	} else {
		missing.message += fmt.Sprintf(", and nothing got any further for %s", p.w.Plane.ProgressDeadline)
		missing.until = time.Time{}
	}
	return missing
}

// rollBase gives Stargate the revision as soon as nothing speaks against it, and tells whether it does.
func (p *pass) rollBase(name string, rendered render.Rendered, keep render.Flags) (bool, error) {
	sg := &p.w.Stargate
	withdrawn := sg.Template.Revision != "" && p.w.Revisions[sg.Template.Revision].Flags.Difference(keep).Len() > 0
	if withdrawn && p.appeared() == nil { // else the policies that ask for them may be still to come
		p.plan.Stage = v1alpha1.StageWithdrawFlags
	}
	generation := sg.Release().Generation
	if _, err := lbconfig.Read(rendered.Data, generation); err != nil {
		return false, fmt.Errorf("the rendered file would be refused by Stargate %s: %w", sg.Release().Version, err)
	}

	wave := 0
	if keep.Len() > 0 {
		wave = p.wavesDone()
	}
	// Waiting cannot help a template that has no file that its Stargate would take, nor pods that exit, and
	// a withdrawal does not wait for what it withdraws.
	unreadable := sg.Template.ReadsFile && !p.readable(sg.Template.Revision) && !foreign(sg)
	urgent := unreadable || withdrawn || sg.crash() != nil
	gates := []func() *reason{func() *reason { return p.mayRoll(sg, urgent) }}
	if withdrawn {
		gates = append(gates, p.appeared)
	}
	if !urgent {
		gates = append(gates, p.quiet, p.interval, func() *reason { return p.preflight(name, stargateData(rendered), wave) })
	}
	why := p.baseReason(name, withdrawn, unreadable)
	if r := first(gates...); r != nil {
		p.stargate = verdict{reason: r.reason, message: fmt.Sprintf("%s (%s) waits: %s", why, name, r.message)}
		p.waitFor(r, why)
		return false, nil
	}
	p.apply(sg, render.ArtefactStargate, name, stargateData(rendered), wave, fmt.Sprintf("%s: %s %s gets %s", why, sg.Kind, sg.Name, name))
	p.stargate = verdict{reason: ReasonRollingOut, message: fmt.Sprintf("%s %s gets %s", sg.Kind, sg.Name, name)}
	p.wait(ReasonRollingOut, p.stargate.message, time.Time{})
	return true, nil
}

func (p *pass) baseReason(name string, withdrawn, unreadable bool) string {
	sg := &p.w.Stargate
	switch _, back := p.failed(sg.Template.Revision, sg); {
	case back:
		return "going back to the last good configuration"
	case len(p.trying) > 0:
		return "trying apart what failed together: " + strings.Join(p.trying, ", ")
	case withdrawn:
		return "withdrawing flags"
	case sg.Template.Revision == name:
		return "the revision was deleted or changed, and is made anew"
	case sg.Template.Revision == "" && sg.Managed:
		return "putting back what was taken out"
	case sg.Template.Revision == "":
		return "first configuration"
	case unreadable:
		return "the present file would be refused by Stargate " + sg.Release().Version
	default:
		return "new configuration"
	}
}

// foreign tells whether pods serve with a file that is not the operator's where its own would be, such as one that
// another plane has left.
func foreign(sg *Workload) bool {
	return sg.Template.Revision == "" && sg.settled() && sg.updated() > 0
}

// readable tells whether the revision exists, unharmed, and the Stargate of the template accepts its file (I4).
func (p *pass) readable(name string) bool {
	revision, ok := p.w.Revisions[name]
	if !ok || !revision.Intact || revision.Deleting {
		return false
	}
	_, err := lbconfig.Read([]byte(revision.Data[render.LBConfigKey]), p.w.Stargate.Release().Generation)
	return err == nil
}

// inProgress tells whether Stargate is still being rolled out onto the revision in its template.
func (p *pass) inProgress(sg *Workload) bool {
	r := p.unsettled(sg)
	if r == nil {
		p.stargate = verdict{ok: true, reason: ReasonUpToDate, message: fmt.Sprintf("all %d pods run %s", sg.Replicas, sg.Template.Revision)}
		return p.unread(sg)
	}
	p.stargate = r.verdict()
	if r.reason == ReasonPodsNotReady {
		return p.unread(sg)
	}
	p.stageOf(sg)
	p.gateway = p.memoryVerdict()
	if sg.Hold != "" {
		p.stargate = verdict{reason: ReasonWorkloadHeld, message: fmt.Sprintf("%s %s %s before every pod runs %s", sg.Kind, sg.Name, sg.Hold, sg.Template.Revision)}
	}
	p.wait(p.stargate.reason, p.stargate.message, time.Time{})
	return true
}

// unread holds everything but the base while Stargate does not read the operator's file.
func (p *pass) unread(sg *Workload) bool {
	if sg.Template.ReadsFile {
		return false
	}
	file := "gives Stargate no file at all"
	if path := sg.Template.Unread.Path; path != "" {
		file = "points at " + path
	}
	message := fmt.Sprintf("%s %s %s, so %s is mounted and not read; set --lb-config-path=%s there (chart value llmRequestRouter.loadBalancer.configPath), or spec.stargate.configPathCheck: Skip if it is passed in another way",
		sg.Kind, sg.Name, file, sg.Template.Revision, p.w.Plane.ConfigPath)
	p.stargate = verdict{reason: ReasonFileNotRead, message: message}
	p.gateway = p.memoryVerdict()
	p.wait(ReasonFileNotRead, message, time.Time{})
	return true
}

// unstick deletes a pod that keeps a StatefulSet from getting any further.
func (p *pass) unstick() (bool, error) {
	sg := &p.w.Stargate
	if pod := p.stuck(sg); pod != nil {
		p.step(Step{Kind: StepDeletePod, Workload: sg, Pod: pod, Why: fmt.Sprintf(
			"pod %s cannot start and is not of the present template; %s %s does not replace it by itself", pod.Name, sg.Kind, sg.Name)})
	}
	return false, nil
}

// stuck finds a StatefulSet's pod that an earlier template left behind: it exits, or waits for a revision that is
// gone, and the controller never replaces it, since it waits for it to become ready.
func (p *pass) stuck(w *Workload) *Pod {
	if w.Kind != v1alpha1.KindStatefulSet || w.Hold != "" || p.w.Plane.Paused {
		return nil
	}
	for i := range w.Pods {
		pod := &w.Pods[i]
		if pod.Updated || pod.Ready || pod.Terminating {
			continue
		}
		_, there := p.w.Revisions[pod.Revision]
		if pod.Crash != nil && pod.Crash.Restarts >= crashLoop || pod.Revision != "" && !there && !pod.Started {
			return pod
		}
	}
	return nil
}

// stageOf tells a rollout of flags from one of the base by comparing what is in the template with what was complete
// last. What was complete before the workload was made anew is not taken from this one.
func (p *pass) stageOf(sg *Workload) {
	good := p.lastGood(sg)
	if good == nil || p.recordOf(good.Name, sg).Completed.Before(sg.Created) {
		return
	}
	given := p.w.Revisions[sg.Template.Revision].Flags
	switch {
	case good.Flags.Difference(given).Len() > 0:
		p.plan.Stage = v1alpha1.StageWithdrawFlags
	case given.Difference(good.Flags).Len() > 0:
		p.plan.Stage = v1alpha1.StageFlags
	}
}
