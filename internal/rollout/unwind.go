package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// unwind takes a deleted plane out of its workloads: flags off, memory off, fields let go. The configuration is
// that of the file in place, whatever became of the policies. What Stargate's arguments still point at stays.
func (p *pass) unwind() error {
	if p.w.Plane.Paused || p.w.Plane.DeletionPolicy == v1alpha1.DeletionRetain {
		p.step(Step{Kind: StepRemoveFinalizer, Why: "the plane was deleted and its workloads stay as they are"})
		return nil
	}
	for _, stage := range []func() (bool, error){p.unstick, p.unwindFlags, p.unwindMemory, p.unwindStargate} {
		if busy, err := stage(); busy || err != nil {
			return err
		}
	}
	p.deleteRevisions(0)
	p.step(Step{Kind: StepRemoveFinalizer, Why: p.released()})
	return nil
}

// released says what is left of a plane that was taken out of its workloads.
func (p *pass) released() string {
	sg := &p.w.Stargate
	if !sg.Touched() || !sg.Template.ReadsFile {
		return "the plane was deleted and its workloads were let go"
	}
	return fmt.Sprintf("the plane was deleted; %s %s still reads %s, so its mount and %s stay and belong to nobody: point its arguments elsewhere, then remove volume and mount as docs/adopting.md says",
		sg.Kind, sg.Name, p.w.Plane.ConfigPath, sg.Template.Revision)
}

// overdue tells whether unwinding has gone on for the whole deadline without any progress: what is gone or
// stuck is not waited for any longer.
func (p *pass) overdue(w *Workload) bool {
	since := p.w.Plane.Deleted
	if t := w.progressed(); t.After(since) {
		since = t
	}
	deadline := since.Add(p.w.Plane.ProgressDeadline)
	p.requeue(deadline)
	return !p.w.Now.Before(deadline)
}

func (p *pass) unwindFlags() (bool, error) {
	sg := &p.w.Stargate
	if !sg.Found || sg.Deleting || !sg.Touched() || p.blocked(sg) != nil {
		return false, nil
	}
	p.plan.Stage = v1alpha1.StageWithdrawFlags
	// Of a file that is gone the last good one takes the place, or else what the policies still ask for.
	config := p.w.Config
	current, there := p.w.Revisions[sg.Template.Revision]
	there = there && current.File != nil
	source := &current
	if !there {
		source = p.lastGood(sg)
	}
	if source != nil {
		var err error
		if config, err = render.FromFile(source.File); err != nil {
			return true, err
		}
	}
	p.adopt(config)
	if !there || current.Flags.Len() > 0 {
		name, rendered, err := p.render(render.Flags{})
		if err != nil {
			return true, err
		}
		return true, p.rollBase(name, rendered, render.Flags{})
	}
	if sg.settled() && p.flagsGone() == nil || p.overdue(sg) {
		return false, nil
	}
	message := sg.progress()
	if r := p.flagsGone(); r != nil && sg.settled() {
		message = r.message
	}
	p.wait(ReasonRollingOut, message, time.Time{})
	return true, nil
}

func (p *pass) unwindMemory() (bool, error) {
	for i := range p.w.Gateways {
		g := &p.w.Gateways[i]
		if g.Found && !g.Deleting && (g.Touched() || g.Managed) {
			p.plan.Stage = v1alpha1.StageWithdrawMemory
			if r := p.flagsGone(); r != nil && !p.overdue(&p.w.Stargate) {
				p.wait(r.reason, r.message, r.until)
				return true, nil
			}
			if !p.letGo(g, "the plane was deleted", p.always) && p.overdue(g) {
				continue
			}
			return true, nil
		}
		if g.Found && !g.Deleting && !g.settled() && !p.overdue(g) {
			p.plan.Stage = v1alpha1.StageWithdrawMemory
			p.wait(ReasonRollingOut, g.progress(), time.Time{})
			return true, nil
		}
	}
	return false, nil
}

func (p *pass) unwindStargate() (bool, error) {
	sg := &p.w.Stargate
	p.plan.Stage = v1alpha1.StageRelease
	switch {
	case !sg.Found || sg.Deleting:
		return false, nil
	case sg.Touched() && sg.Template.ReadsFile: // what it reads stays, and is nobody's
		if sg.Managed {
			p.step(Step{Kind: StepDisown, Workload: sg, Why: fmt.Sprintf("%s %s no longer names the plane, which was deleted", sg.Kind, sg.Name)})
		}
		return false, nil
	case sg.Touched() || sg.Managed:
		planned := p.letGo(sg, "the plane was deleted, and it reads another file", p.always)
		return planned || !p.overdue(sg), nil
	case (!sg.settled() || sg.mounts()) && !p.overdue(sg):
		p.wait(ReasonRollingOut, sg.progress(), time.Time{})
		return true, nil
	}
	return false, nil
}

// mounts tells whether a pod, possibly a terminating one, still has a revision mounted.
func (w *Workload) mounts() bool {
	return slices.ContainsFunc(w.Pods, func(pod Pod) bool { return pod.Revision != "" })
}

// former lets go of workloads that the plane names no longer.
func (p *pass) former() (bool, error) {
	for i := range p.w.Former {
		w := &p.w.Former[i]
		if !w.Found || w.Deleting {
			continue
		}
		if w.Touched() && w.Template.ReadsFile {
			p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(
				"%s %s is no longer named by the plane and still reads %s; its file stays as it is until its arguments point elsewhere", w.Kind, w.Name, p.w.Plane.ConfigPath))
			continue
		}
		p.plan.Stage = v1alpha1.StageRelease
		p.letGo(w, "the plane names it no longer", p.always)
		return true, nil
	}
	return false, nil
}

// Touched tells whether any of the operator's fields are in the template.
func (w *Workload) Touched() bool { return w.Template.Touched }
