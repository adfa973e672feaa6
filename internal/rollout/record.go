package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// crashLoop is the number of restarts from which a container's exits are evidence and no accident.
const crashLoop = 2

// recordOf merges what the revision's annotation and the plane's status hold of the workload on the revision.
// Of two, the later time counts, and of failures the one that no retry has lifted, or else the earlier: the stricter in
// each case.
func (p *pass) recordOf(revision string, w *Workload) Record {
	record := p.w.Revisions[revision].Records[w.Key()]
	for _, r := range p.w.Plane.Status.Records {
		if r.Revision != revision || r.Workload != w.Key() {
			continue
		}
		if record.Applied.IsZero() { // the annotation is lost
			record.Gate = r.Gate
		}
		if r.AppliedAt != nil && r.AppliedAt.After(record.Applied) {
			record.Applied = r.AppliedAt.Time
		}
		if r.CompletedAt != nil && r.CompletedAt.After(record.Completed) {
			record.Completed, record.Template = r.CompletedAt.Time, r.Template
		}
		stands, stood := r.Retry == p.w.Plane.Retry, record.Retry == p.w.Plane.Retry
		if r.FailedAt != nil && (record.Failed.IsZero() || stands && !stood || stands == stood && r.FailedAt.Time.Before(record.Failed)) {
			record.Failed, record.Retry, record.Message = r.FailedAt.Time, r.Retry, r.Message
		}
		record.Change = cmp.Or(record.Change, r.Change)
	}
	return record
}

// failed tells whether the revision failed on the workload and nobody asked for another attempt since (I5).
func (p *pass) failed(revision string, w *Workload) (Record, bool) {
	record := p.recordOf(revision, w)
	return record, !record.Failed.IsZero() && record.Retry == p.w.Plane.Retry
}

// completedAt is when the workload was first complete on the revision in its template: as recorded, and not
// before its oldest live pod became ready, in case the record is of an earlier use of the revision.
func (p *pass) completedAt(w *Workload) time.Time {
	completed := p.recordOf(w.Template.Revision, w).Completed
	var oldest time.Time
	for i := range w.Pods {
		if pod := &w.Pods[i]; pod.Ready && !pod.Terminating && (oldest.IsZero() || pod.ReadySince.Before(oldest)) {
			oldest = pod.ReadySince
		}
	}
	if oldest.After(completed) {
		return oldest
	}
	return completed
}

// lastGood is the revision, other than the one in the template if that failed, on which the workload was last
// complete, and whose metrics are no longer being judged; nil if there is none.
func (p *pass) lastGood(w *Workload) *Revision {
	return p.lastComplete(w, func(name string, record Record) bool { return p.unjudged(name, record).Len() == 0 })
}

func (p *pass) lastComplete(w *Workload, good func(name string, record Record) bool) *Revision {
	var last *Revision
	var when time.Time
	for name := range p.w.Revisions {
		revision := p.w.Revisions[name]
		record, failed := p.failed(name, w)
		completed := record.Completed
		if completed.IsZero() || failed || !good(name, record) || revision.Deleting || revision.Artefact == render.ArtefactStargate && revision.File == nil {
			continue
		}
		if last == nil || completed.After(when) || completed.Equal(when) && name > last.Name {
			last, when = &revision, completed
		}
	}
	return last
}

// record notes what became of the revisions in the workloads' templates: completion, or failure with evidence
// against the operator's own change.
func (p *pass) record() {
	p.plan.Records = p.liveRecords()
	for _, w := range p.workloads() {
		name := w.Template.Revision
		if _, ok := p.w.Revisions[name]; !ok {
			continue
		}
		record, failed := p.failed(name, w)
		switch {
		case failed && record.failedByMetrics():
			p.keep(name, w, record)
		case w.settled():
			if record.complete() && record.Template == w.Template.Foreign && record.Failed.IsZero() {
				p.keep(name, w, record)
				continue
			}
			p.write(name, w, Record{Applied: record.Applied, Completed: p.w.Now, Template: w.Template.Foreign, Gate: again(record.Gate)},
				fmt.Sprintf("%s %s is complete on %s", w.Kind, w.Name, name))
		case !record.Failed.IsZero() && record.Retry != p.w.Plane.Retry:
			record.Applied, record.Failed, record.Message = p.w.Now, time.Time{}, ""
			p.write(name, w, record, fmt.Sprintf("another attempt of %s on %s %s, as asked for", name, w.Kind, w.Name))
		case record.Failed.IsZero():
			if message := p.evidence(w, record); message != "" {
				record.Failed, record.Retry, record.Message = p.w.Now, p.w.Plane.Retry, message
				p.write(name, w, record,
					fmt.Sprintf("%s failed on %s %s: %s", name, w.Kind, w.Name, message))
			}
		}
	}
	p.restoreRecords()
	p.recordPreflights()
}

// restoreRecords puts into the status what only revisions have: the operator may have died, or lost the lead, between the
// one write and the other, and the template has another revision since.
func (p *pass) restoreRecords() {
	for _, w := range p.workloads() {
		for _, name := range slices.Sorted(maps.Keys(p.w.Revisions)) {
			if _, recorded := p.w.Revisions[name].Records[w.Key()]; recorded {
				p.keep(name, w, p.recordOf(name, w))
			}
		}
	}
}

// evidence says how the operator's change to the workload failed, or nothing where there is only a reason to
// wait: a container started and then exited repeatedly, or stayed unready without any progress for the whole
// deadline, in a template that differs from the last good one in the operator's fields only.
func (p *pass) evidence(w *Workload, record Record) string {
	if record.complete() || w.Hold != "" || w.ObservedGeneration < w.Generation {
		return ""
	}
	if last := p.lastComplete(w, func(string, Record) bool { return true }); last != nil {
		if template := p.recordOf(last.Name, w).Template; template != "" && template != w.Template.Foreign {
			return ""
		}
	}
	since := w.progressed()
	if record.Applied.After(since) { // another attempt with the same pods
		since = record.Applied
	}
	deadline := since.Add(p.w.Plane.ProgressDeadline)
	for i := range w.Pods {
		pod := &w.Pods[i]
		if !pod.Updated || pod.Terminating || pod.Ready {
			continue
		}
		if pod.Crash != nil && pod.Crash.Restarts >= crashLoop && !pod.Crash.before(record.Applied) {
			return strings.TrimSuffix(fmt.Sprintf("container %s of pod %s exits at start: %s", pod.Crash.Container, pod.Name, pod.Crash.Message), ": ")
		}
		if pod.Started && pod.Waiting == "" {
			if !p.w.Now.Before(deadline) {
				return fmt.Sprintf("pod %s started and did not become ready; no pod got any further for %s", pod.Name, p.w.Plane.ProgressDeadline)
			}
			p.requeue(deadline)
		}
	}
	return ""
}

// before tells whether the last exit may have been before the time: of the exit a pod's status knows the second only, and
// in the second of t it may be either. What exits at start does so again.
func (c *Crash) before(t time.Time) bool {
	return !c.At.IsZero() && c.At.Before(t)
}

// write records onto the revision and into the status, and lets the rest of the pass see it.
func (p *pass) write(revision string, w *Workload, record Record, why string) {
	p.step(Step{Kind: StepRecord, Workload: w, Revision: revision, Record: record, Why: why})
	p.keep(revision, w, record)
	p.w.Plane.Status.Records = p.plan.Records
	stored := p.w.Revisions[revision]
	records := map[string]Record{w.Key(): record}
	for key, r := range stored.Records {
		if key != w.Key() {
			records[key] = r
		}
	}
	stored.Records = records
	p.w.Revisions[revision] = stored
}

// keep puts the record into the plane's status.
func (p *pass) keep(revision string, w *Workload, record Record) {
	entry := v1alpha1.RevisionRecord{
		Workload: w.Key(), Revision: revision, Template: record.Template,
		AppliedAt: optionalTime(record.Applied), CompletedAt: optionalTime(record.Completed), FailedAt: optionalTime(record.Failed), Retry: record.Retry, Message: record.Message, Change: record.Change,
		Gate: record.Gate,
	}
	p.plan.Records = slices.DeleteFunc(p.plan.Records, func(r v1alpha1.RevisionRecord) bool {
		return r.Revision == revision && r.Workload == entry.Workload
	})
	p.plan.Records = append(p.plan.Records, entry)
	slices.SortFunc(p.plan.Records, func(a, b v1alpha1.RevisionRecord) int {
		return cmp.Or(cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Revision, b.Revision))
	})
}

// liveRecords are the status's records of revisions that still exist.
func (p *pass) liveRecords() []v1alpha1.RevisionRecord {
	var live []v1alpha1.RevisionRecord
	for _, r := range p.w.Plane.Status.Records {
		if _, ok := p.w.Revisions[r.Revision]; ok {
			live = append(live, r)
		}
	}
	return live
}

func optionalTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}
