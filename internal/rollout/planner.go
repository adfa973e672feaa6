package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

// Make plans one pass: what to do now, what to wait for, and why. It returns an error only where the
// configuration cannot be rendered at all, which validated policies rule out.
func Make(w *World) (*Plan, error) {
	world := *w
	world.Revisions = maps.Clone(w.Revisions) // what the pass records is seen by the rest of the pass only
	p := &pass{w: &world, consulted: sets.New[string](), plan: &Plan{Stage: v1alpha1.StageSettled, Config: w.Config}}
	if err := p.run(); err != nil {
		return nil, fmt.Errorf("plan %s/%s: %w", w.Plane.Namespace, w.Plane.Name, err)
	}
	p.tidyPreflights()
	p.finish()
	return p.plan, nil
}

// pass is the state of one planning pass.
type pass struct {
	w    *World
	plan *Plan

	// desired are the flags that the configuration asks for, and on those that are on in the file that the router
	// was given, less what has failed.
	desired, on render.Flags

	// last is what was rendered last of the configuration: the stages mostly ask for the same.
	last *file

	// held is the failure that keeps the wanted configuration, or the next wave, from being rolled out. guilty are
	// the owners of the changes that are to blame, as far as they are known, and trying those of the ones that are
	// tried next.
	held           *failure
	guilty, trying []string
	// consulted are the failed revisions that the choice went by.
	consulted sets.Set[string]

	// asked are the preflight pods that are waited for, and unasked says why what is given was not loaded by one.
	asked   []string
	unasked string

	// judging is why the wave that was rolled out last neither passes nor fails yet, and scarce the figures that are too
	// few. next is the gate of the wave that is about to be rolled out.
	judging *reason
	scarce  string
	next    *v1alpha1.GateRecord

	stargate, gateway, flags verdict
	stalled                  *reason
	// waitReason is the reason of the Reconciling condition while something is waited for.
	waitReason string
}

// failure is a revision that failed on a workload.
type failure struct {
	revision string
	workload *Workload
	record   Record
}

// file is the configuration rendered with the flags that are on, and the name of its revision.
type file struct {
	on       render.Flags
	name     string
	rendered render.Rendered
}

// run goes through the stages in their order. Each stage either has something to do or to wait for, and ends
// the pass, or lets the next one have its turn.
func (p *pass) run() error {
	if p.w.Plane.NamespaceTerminating {
		p.step(Step{Kind: StepRemoveFinalizer, Why: "the namespace is being deleted"})
		return nil
	}
	p.record()
	if !p.w.Plane.Deleted.IsZero() {
		return p.unwind()
	}
	if !p.usable() {
		return nil
	}
	for _, stage := range []func() (bool, error){p.judge, p.choose, p.unstick, p.restore, p.base, p.memory, p.warmup, p.waves, p.former, p.whole} {
		busy, err := stage()
		if busy || err != nil {
			return err
		}
	}
	p.retain()
	return nil
}

// usable tells whether the plane's workloads can be handled at all, and says what is in the way if not.
func (p *pass) usable() bool {
	sg := &p.w.Stargate
	switch {
	case !sg.Found || sg.Deleting:
		p.plan.Stage = v1alpha1.StageBase
		p.stargate = verdict{reason: ReasonWorkloadNotFound, message: fmt.Sprintf("%s %s does not exist in namespace %s", sg.Kind, sg.Name, p.w.Plane.Namespace)}
		p.wait(ReasonWorkloadNotFound, p.stargate.message, time.Time{})
		p.gateway, p.flags = unknown(p.stargate), unknown(p.stargate)
		return false
	case sg.Release().Generation == release.Unsupported:
		p.plan.Stage = v1alpha1.StageBase
		p.stall(&p.stargate, ReasonReleaseUnsupported, fmt.Sprintf(
			"%s %s runs Stargate %s (image %s); releases before the first of the operator's feature table are not supported: upgrade Stargate, or state the image's release in spec.stargate.releases%s",
			sg.Kind, sg.Name, sg.Release().Version, sg.Template.Image, p.remembering()))
		p.gateway, p.flags = unknown(p.stargate), unknown(p.stargate)
		return false
	}
	if blocked := p.blocked(sg); blocked != nil {
		p.plan.Stage = v1alpha1.StageBase
		p.stall(&p.stargate, blocked.reason, blocked.message)
		p.gateway, p.flags = unknown(p.stargate), unknown(p.stargate)
		return false
	}
	return true
}

// remembering says which gateways' memory stays on beside a Stargate that nothing can be rendered for: their template is
// left alone too, since the file that this Stargate is given may have flags on, and a newer one would go by them.
func (p *pass) remembering() string {
	var names []string
	for i := range p.w.Gateways {
		if g := &p.w.Gateways[i]; g.Template.Memory.On {
			names = append(names, g.Kind+" "+g.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; nothing is changed until then, so the memory of the last cluster stays on in %s, and this Stargate passes its header on to the backends",
		strings.Join(names, ", "))
}

// blocked says what only a person can mend before the operator may touch the workload.
func (p *pass) blocked(w *Workload) *reason {
	switch {
	case w.Problem != "":
		return &reason{reason: ReasonWorkloadProblem, message: fmt.Sprintf("%s %s: %s", w.Kind, w.Name, w.Problem)}
	case w.OtherPlane != "":
		return w.taken()
	case len(w.Rivals) > 0 && !w.Managed:
		return &reason{reason: ReasonFieldOwned, message: rivalsMessage(w)}
	}
	return nil
}

// taken says that another plane manages the workload; nil where none does. That plane gives a gateway's memory up by its
// own Stargate's flags alone, so no other may rely on it.
func (w *Workload) taken() *reason {
	if w.OtherPlane == "" {
		return nil
	}
	return &reason{reason: ReasonWorkloadTaken, message: fmt.Sprintf("%s %s is managed by plane %s; remove it from that plane first", w.Kind, w.Name, w.OtherPlane)}
}

func rivalsMessage(w *Workload) string {
	var owned []string
	for _, rival := range w.Rivals {
		owned = append(owned, fmt.Sprintf("%s is owned by field manager %q", rival.Field, rival.Manager))
	}
	return fmt.Sprintf("%s %s: %s; the operator does not take a field that was never its own: remove it there (for a chart: from its values), and the operator goes on",
		w.Kind, w.Name, strings.Join(owned, ", "))
}

// choose decides which configuration the pass works towards: the effective one, that of the pin, or, where
// the one it should be has failed, the last good one.
func (p *pass) choose() (bool, error) {
	p.plan.Stage = v1alpha1.StageBase
	config := p.w.Config
	if pin := p.w.Plane.Pin; pin != "" {
		pinned, ok := p.w.Revisions[pin]
		if !ok || pinned.Artefact != render.ArtefactStargate || pinned.File == nil {
			p.stall(&p.stargate, ReasonPinNotFound, fmt.Sprintf("spec.rollout.pin names %s, which is no Stargate revision of this plane that can be read; there are: %s",
				pin, p.revisionNames(render.ArtefactStargate)))
			return true, nil
		}
		var err error
		if config, err = render.FromFile(pinned.File); err != nil {
			return true, fmt.Errorf("pinned revision %s: %w", pin, err)
		}
		p.note("pinned to %s", pin)
	}
	p.adopt(config)
	return p.hold()
}

// whole waits, once nothing else is left to do, for workloads that lack pods or that somebody else rolls. That is no
// stage of its own: nothing of the plane's changes by it.
func (p *pass) whole() (bool, error) {
	for i := range p.w.Gateways {
		if r := p.unsettled(&p.w.Gateways[i]); r != nil && p.w.Gateways[i].Found {
			p.gateway = r.verdict()
			p.wait(r.reason, r.message, time.Time{})
			return true, nil
		}
	}
	if r := p.unsettled(&p.w.Stargate); r != nil {
		p.wait(r.reason, r.message, time.Time{})
		return true, nil
	}
	return false, nil
}

// adopt makes the configuration the one that the pass works towards.
func (p *pass) adopt(config render.Config) {
	p.plan.Config, p.last = config, nil
	p.desired = render.Desired(config)
	p.on = p.given()
}

// given are the flags that are on in the file that the router was given. Flags of a failed revision do not
// count: the ones before it do. Where somebody took the file out of the template, those of the last one count,
// and where nothing of the operator's was given yet, a running site's own, so that putting a file back and
// adopting a site change no behaviour; both only as far as the flags may be on at all.
func (p *pass) given() render.Flags {
	sg := &p.w.Stargate
	if name := sg.Template.Revision; name != "" {
		if _, failed := p.failed(name, sg); failed {
			if good := p.lastGood(sg); good != nil {
				return good.Flags
			}
			return render.Flags{}
		}
		if revision, ok := p.w.Revisions[name]; ok && revision.Intact {
			return revision.Flags
		}
		// The revision is gone or forged, and with it the knowledge of what was in it, unless all flags give its name.
		if all, _, err := p.render(p.desired); err == nil && all == name {
			return p.desired
		}
		return render.Flags{}
	}
	if p.flagsAllowed() != nil {
		return render.Flags{}
	}
	if good := p.lastGood(sg); sg.Managed && good != nil {
		return good.Flags
	}
	return sg.Template.Unread.Flags
}

// render renders the configuration with the flags for the release in Stargate's template.
func (p *pass) render(on render.Flags) (name string, rendered render.Rendered, err error) {
	if last := p.last; last != nil && last.on.Equal(on) {
		return last.name, last.rendered, nil
	}
	rendered, err = render.LBConfig(p.plan.Config, on, p.w.Stargate.Release().Generation)
	if err != nil {
		return "", rendered, err
	}
	name = render.RevisionName(p.w.Plane.Name, render.ArtefactStargate, stargateData(rendered))
	p.last = &file{on, name, rendered}
	return name, rendered, nil
}

func stargateData(r render.Rendered) map[string]string {
	return map[string]string{render.LBConfigKey: string(r.Data)}
}

// sameMeaning tells whether the file of the existing revision means the same as the rendered one.
func (p *pass) sameMeaning(revision string, rendered render.Rendered) bool {
	existing, ok := p.w.Revisions[revision]
	if !ok || !existing.Intact || existing.Deleting || existing.File == nil {
		return false
	}
	file, err := lbconfig.Read(rendered.Data, release.Newest)
	return err == nil && lbconfig.Same(existing.File, file)
}

// apply plans the two steps that give the workload a revision.
func (p *pass) apply(w *Workload, artefact, name string, data map[string]string, wave int, why string) {
	record := p.recordOf(name, w)
	record = Record{Applied: p.w.Now, Completed: record.Completed, Template: record.Template}
	if artefact == render.ArtefactStargate {
		record.Change = p.soleChange(data)
		record.Gate = p.gateOf()
	}
	why += p.unasked
	p.step(Step{Kind: StepEnsureRevision, Workload: w, Revision: name, Artefact: artefact, Data: data, Wave: wave, Record: record, Why: why})
	p.keep(name, w, record)
	p.step(Step{Kind: StepApply, Workload: w, Revision: name, Artefact: artefact, Force: w.Managed, Why: why})
}

func (p *pass) step(s Step) {
	p.plan.Steps = append(p.plan.Steps, s)
	p.note("%s", s.Why)
}

func (p *pass) note(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); note != "" && !slices.Contains(p.plan.Notes, note) {
		p.plan.Notes = append(p.plan.Notes, note)
	}
}

// held up: what would be done, and what it waits for.
func (p *pass) waitFor(r *reason, then string) {
	p.wait(r.reason, fmt.Sprintf("%s (then: %s)", r.message, then), r.until)
}

// wait ends a stage with what is waited for.
func (p *pass) wait(why, what string, until time.Time) {
	p.waitReason = why
	p.plan.Waiting = &v1alpha1.Waiting{For: what, Until: optionalTime(until)}
	p.requeue(until)
	p.note("waiting: %s", what)
}

func (p *pass) requeue(at time.Time) {
	if !at.IsZero() && (p.plan.Requeue.IsZero() || at.Before(p.plan.Requeue)) {
		p.plan.Requeue = at
	}
}

func (p *pass) revisionNames(artefact string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.w.Revisions)) {
		if p.w.Revisions[name].Artefact == artefact {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(capped(names, func(name string) string { return name }), ", ")
}
