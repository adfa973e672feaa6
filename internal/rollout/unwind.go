package rollout

import (
	"fmt"
	"slices"
	"strings"
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
	sg, said := &p.w.Stargate, "the plane was deleted"
	kept := p.kept()
	if sg.Touched() && sg.Template.ReadsFile && sg.OtherPlane == "" {
		flags := ""
		if p.w.Revisions[sg.Template.Revision].Flags.Len() > 0 {
			flags = ", flags included,"
		}
		said += fmt.Sprintf("; %s %s still reads the operator's file, so its mount and %s stay%s and belong to nobody: point its arguments elsewhere, then remove volume and mount as docs/adopting.md says",
			sg.Kind, sg.Name, sg.Template.Revision, flags)
	} else if len(kept) == 0 {
		said += " and its workloads were let go"
	}
	if len(kept) > 0 {
		said += fmt.Sprintf("; %s could not be let go of within spec.rollout.progressDeadline, and the operator's fields stay there as they are: once nothing is in the way, kubectl routing release %s -n %s takes them out",
			strings.Join(kept, ", "), p.w.Plane.Name, p.w.Plane.Namespace)
	}
	return said
}

// kept are the workloads that were to be let go of and could not be.
func (p *pass) kept() (names []string) {
	for _, w := range p.workloads() {
		if w.Touched() && w.OtherPlane == "" && !w.Template.ReadsFile {
			names = append(names, w.Kind+" "+w.Name)
		}
	}
	return names
}

// overdue tells whether unwinding has gone on for the whole deadline without any progress of the workload or of one that
// is still being rolled out, which it may wait for: what is gone or stuck is not waited for any longer.
func (p *pass) overdue(w *Workload) bool {
	since := p.w.Plane.Deleted
	for _, other := range append(p.workloads(), w) {
		if t := other.progressed(); (other == w || !other.settled()) && t.After(since) {
			since = t
		}
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
		rolled, err := p.rollBase(name, rendered, render.Flags{})
		return rolled || err != nil || !p.overdue(sg), err
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
			waited := g
			if p.flagsGone() != nil {
				waited = &p.w.Stargate
			}
			if p.letGo(g, "the plane was deleted", p.flagsGone) || !p.overdue(waited) {
				return true, nil
			}
			p.disown(g)
			continue
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
	case sg.Touched() && sg.Template.ReadsFile, p.blocked(sg) != nil: // what it reads, or may read, stays, and is nobody's
		p.disown(sg)
	case sg.Touched() || sg.Managed:
		if p.letGo(sg, "the plane was deleted, and it reads another file", p.always) || !p.overdue(sg) {
			return true, nil
		}
		p.disown(sg)
	case (!sg.settled() || sg.mounts()) && !p.overdue(sg):
		p.wait(ReasonRollingOut, sg.progress(), time.Time{})
		return true, nil
	}
	return false, nil
}

// disown takes the plane's name off a workload whose template stays as it is.
func (p *pass) disown(w *Workload) {
	if w.Managed {
		p.step(Step{Kind: StepDisown, Workload: w, Why: fmt.Sprintf("%s %s no longer names the plane, which was deleted", w.Kind, w.Name)})
	}
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
				"%s %s is no longer named by the plane and still reads the operator's file, which stays as it is until its arguments point elsewhere", w.Kind, w.Name))
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
