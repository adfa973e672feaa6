package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/render"
)

// again is the gate as it judges another attempt; nil where there is none.
func again(gate *v1alpha1.GateRecord) *v1alpha1.GateRecord {
	if gate == nil {
		return nil
	}
	next := *gate
	next.Failed = false
	return &next
}

// failedByMetrics tells whether the revision failed by its gate. Such a failure does not go away by itself when every
// pod is ready, since every pod was.
func (r Record) failedByMetrics() bool { return r.Gate != nil && r.Gate.Failed }

// failureReason is the reason of the condition that tells of the failure.
func (r Record) failureReason() string {
	if r.failedByMetrics() {
		return ReasonAnalysisFailed
	}
	return ReasonRevisionFailed
}

// Sampling asks for what Stargate's pods count to be followed. What a plan no longer asks for is over.
type Sampling struct {
	// Key by which World.Figures holds what was counted.
	Key string
	// Subjects whose sessions and requests count.
	Subjects []analysis.Subject
	// Revision of the pods that count; empty for all.
	Revision string
}

// judge lets the wave in Stargate's template pass or fail once its metrics were followed for the interval.
func (p *pass) judge() (bool, error) {
	sg, settings := &p.w.Stargate, p.w.Plane.Analysis
	name := sg.Template.Revision
	record, failed := p.failed(name, sg)
	if failed && record.failedByMetrics() {
		p.flags = verdict{reason: ReasonAnalysisFailed, message: record.Message}
	}
	wave := p.unjudged(name, record)
	if failed || wave.Len() == 0 || !record.complete() {
		return false, nil
	}
	sampling := Sampling{
		Key:      fmt.Sprintf("after %s, gateways of %d", name, p.gatewaysChanged().Unix()),
		Subjects: subjects(wave, p.w.Revisions[name].File), Revision: name,
	}
	figures := p.follow(sampling)
	what := fmt.Sprintf("wave %d (%s)", p.w.Revisions[name].Wave, unitNames(render.Units(wave)))
	metrics := "the metrics of " + what
	p.judging = p.notBefore(figures.Since.Add(settings.Interval), ReasonAnalysis, metrics+", over spec.rollout.analysis.interval")
	if p.judging == nil && slices.ContainsFunc(p.workloads(), func(w *Workload) bool { return !w.settled() }) {
		p.judging = &reason{reason: ReasonAnalysis, message: metrics + ", once every workload is rolled out"}
	}
	if p.judging != nil {
		return false, nil
	}

	before := analysis.Counts{Requests: float64(record.Gate.RequestsBefore), Errors: float64(record.Gate.ServerErrorsBefore)}
	found := settings.Judge(before, &figures)
	if found.Outcome == analysis.TooFew && settings.Hold {
		p.judging = &reason{reason: ReasonAnalysis, message: metrics + ": too few samples, and spec.rollout.analysis.tooFewSamples is Hold"}
		p.scarce = found.Figures
		return false, nil
	}
	p.plan.Sampling = nil // it is over
	gate := *record.Gate
	record.Gate = &gate
	why := fmt.Sprintf("%s passes: %s", what, found.Figures)
	if found.Outcome == analysis.Failed {
		gate.Failed = true
		record.Failed, record.Retry, record.Message = p.w.Now, p.w.Plane.Retry, metrics+": "+found.Figures
		p.flags = verdict{reason: ReasonAnalysisFailed, message: record.Message}
		why = fmt.Sprintf("%s failed on %s %s: %s", name, sg.Kind, sg.Name, record.Message)
	} else {
		gate.PassedAt = optionalTime(p.w.Now)
	}
	p.write(name, sg, record, why)
	p.plan.Steps[len(p.plan.Steps)-1].Verdict = found.Outcome
	return false, nil
}

// gatewaysChanged is when the last rollout of a gateway was complete. With it the memory went, so that what was counted
// before says nothing.
func (p *pass) gatewaysChanged() (last time.Time) {
	for i := range p.w.Gateways {
		g := &p.w.Gateways[i]
		if t := p.recordOf(g.Template.Revision, g).Completed; t.After(last) {
			last = t
		}
	}
	return last
}

// judged ends the pass while a wave is being judged.
func (p *pass) judged() bool {
	r := p.judging
	if r == nil {
		return false
	}
	p.plan.Stage = v1alpha1.StageFlags
	p.flags = r.verdict()
	if p.scarce != "" {
		p.flags.message += ": " + p.scarce // not waited for in as many words, since it changes with every look
	}
	p.wait(r.reason, r.message, r.until)
	return true
}

// unjudged are the flags that the revision switched on and whose metrics have not been judged yet. There are none where
// the gate is off, and none once the revision before is gone: it is what would be gone back to, and kept until then.
func (p *pass) unjudged(revision string, record Record) render.Flags {
	if p.w.Plane.Analysis == nil || record.Gate == nil || record.Gate.PassedAt != nil {
		return nil
	}
	before, there := p.w.Revisions[record.Gate.Before]
	if !there {
		return nil
	}
	return p.w.Revisions[revision].Flags.Difference(before.Flags)
}

// undecided holds whatever would disturb the figures and can wait. Once only more samples would help, it goes on.
func (p *pass) undecided() *reason {
	if p.judging == nil || p.judging.until.IsZero() {
		return nil
	}
	return p.judging
}

// beforeWave counts the server errors before a wave, for as long as they are counted after it.
func (p *pass) beforeWave(next *wave) *reason {
	settings := p.w.Plane.Analysis
	if settings == nil {
		return nil
	}
	p.next = &v1alpha1.GateRecord{Before: p.w.Stargate.Template.Revision}
	if !settings.CountsErrors() || p.w.Plane.Paused {
		return nil
	}
	figures := p.follow(Sampling{Key: "before " + next.name, Subjects: subjects(render.OfUnits(p.desired, next.units...), nil)})
	p.next.RequestsBefore, p.next.ServerErrorsBefore = int64(figures.Counts.Requests), int64(figures.Counts.Errors)
	return p.notBefore(figures.Since.Add(settings.Interval), ReasonAnalysis, "the server errors before the wave, over spec.rollout.analysis.interval")
}

// gateOf is the gate of a revision that Stargate is about to get. What replaces a wave that was not judged yet is judged
// in its place.
func (p *pass) gateOf() *v1alpha1.GateRecord {
	if p.next != nil {
		return p.next
	}
	current := p.w.Stargate.Template.Revision
	record := p.recordOf(current, &p.w.Stargate)
	if p.unjudged(current, record).Len() == 0 {
		return nil
	}
	return again(record.Gate)
}

// follow asks for the sampling and returns what was counted so far; before the first look that is nothing, since now.
func (p *pass) follow(s Sampling) analysis.Figures {
	p.plan.Sampling = append(p.plan.Sampling, s)
	if figures, ok := p.w.Figures[s.Key]; ok {
		return figures
	}
	return analysis.Figures{Since: p.w.Now}
}

// warnOfUnread says what of that which is followed could not be read.
func (p *pass) warnOfUnread() {
	for _, s := range p.plan.Sampling {
		figures := p.w.Figures[s.Key]
		warning := figures.Unreadable()
		if warning == "" {
			continue
		}
		warning += "; the metric gate counts without them (the operator reads port spec.stargate.metrics.port of each Stargate pod: NetworkPolicies have to allow it)"
		if !slices.Contains(p.plan.Warnings, warning) {
			p.plan.Warnings = append(p.plan.Warnings, warning)
		}
	}
}

// subjects of flags: of a model's own flag the algorithm is in the file.
func subjects(flags render.Flags, file *lbconfig.File) (list []analysis.Subject) {
	for _, flag := range render.SortFlags(flags) {
		subject := analysis.Subject{Every: flag.Plane, Model: flag.Model, Algorithm: string(flag.RequestAlgorithm)}
		if subject.Algorithm == "" && file != nil {
			subject.Algorithm = string(file.Models[flag.Model].Algorithm)
		}
		list = append(list, subject)
	}
	return list
}
