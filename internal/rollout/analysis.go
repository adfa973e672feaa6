package rollout

import (
	"fmt"
	"slices"

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
		Key:      fmt.Sprintf("after %s of %d %q", name, record.Applied.Unix(), p.w.Plane.Retry),
		Subjects: subjects(wave, p.w.Revisions[name].File), Revision: name,
	}
	figures := p.follow(sampling)
	what := fmt.Sprintf("wave %d (%s)", p.w.Revisions[name].Wave, unitNames(render.Units(wave)))
	if r := p.notBefore(figures.Since.Add(settings.Interval), ReasonAnalysis, fmt.Sprintf("the metrics of %s, over spec.rollout.analysis.interval", what)); r != nil || !sg.settled() {
		p.judging = r
		return false, nil
	}

	p.plan.Sampling = nil
	verdict := settings.Judge(analysis.Counts{Requests: float64(record.Gate.RequestsBefore), Errors: float64(record.Gate.ServerErrorsBefore)}, &figures)
	gate := *record.Gate
	switch {
	case verdict.Outcome == analysis.Failed:
		gate.Failed = true
		record.Gate, record.Change = &gate, ""
		record.Failed, record.Retry, record.Message = p.w.Now, p.w.Plane.Retry, fmt.Sprintf("the metrics of %s: %s", what, verdict.Figures)
		p.flags = verdictOf(ReasonAnalysisFailed, record.Message)
		p.write(name, sg, record, fmt.Sprintf("%s failed on %s %s: %s", name, sg.Kind, sg.Name, record.Message))
		p.plan.Steps[len(p.plan.Steps)-1].Verdict = verdict.Outcome
	case verdict.Outcome == analysis.TooFew && settings.Hold:
		p.judging = &reason{reason: ReasonAnalysis, message: fmt.Sprintf("the metrics of %s: too few samples, and spec.rollout.analysis.tooFewSamples is Hold", what)}
		p.scarce, p.plan.Sampling = verdict.Figures, []Sampling{sampling}
	default:
		gate.PassedAt = optionalTime(p.w.Now)
		record.Gate = &gate
		p.write(name, sg, record, fmt.Sprintf("%s passes: %s", what, verdict.Figures))
		p.plan.Steps[len(p.plan.Steps)-1].Verdict = verdict.Outcome
	}
	return false, nil
}

func verdictOf(why, message string) verdict { return verdict{reason: why, message: message} }

// judged ends the pass while a wave is being judged.
func (p *pass) judged() bool {
	r := p.judging
	if r == nil {
		return false
	}
	p.plan.Stage = v1alpha1.StageFlags
	p.flags = verdictOf(r.reason, r.message)
	if p.scarce != "" {
		p.flags.message += ": " + p.scarce // not waited for in as many words, since it changes with every look
	}
	p.wait(r.reason, r.message, r.until)
	return true
}

// unjudged are the flags that the revision switched on and whose metrics have not been judged yet. Nothing is where the
// gate is off.
func (p *pass) unjudged(revision string, record Record) render.Flags {
	if p.w.Plane.Analysis == nil || record.Gate == nil || record.Gate.PassedAt != nil {
		return nil
	}
	return p.w.Revisions[revision].Flags.Difference(p.w.Revisions[record.Gate.Before].Flags)
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
	record, failed := p.failed(current, &p.w.Stargate)
	if failed || p.unjudged(current, record).Len() == 0 {
		return nil
	}
	return again(record.Gate)
}

// follow asks for the sampling and returns what was counted so far; before the first look that is nothing, since now.
func (p *pass) follow(s Sampling) analysis.Figures {
	p.plan.Sampling = append(p.plan.Sampling, s)
	figures, ok := p.w.Figures[s.Key]
	if !ok {
		return analysis.Figures{Since: p.w.Now}
	}
	if unreadable := figures.Unreadable(); unreadable != "" {
		warning := unreadable + "; the metric gate counts without them (the operator reads port spec.stargate.metrics.port of each Stargate pod: NetworkPolicies have to allow it)"
		if !slices.Contains(p.plan.Warnings, warning) {
			p.plan.Warnings = append(p.plan.Warnings, warning)
		}
	}
	return figures
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
