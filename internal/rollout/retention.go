package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// retain deletes revisions beyond the history that nothing names.
func (p *pass) retain() { p.deleteRevisions(p.w.Plane.HistoryLimit) }

// deleteRevisions deletes, per artefact, the revisions that nothing names, oldest first, but keeps the newest
// of them up to the limit.
func (p *pass) deleteRevisions(limit int) {
	used := p.used()
	unused := map[string][]Revision{}
	for _, name := range slices.Sorted(maps.Keys(p.w.Revisions)) {
		revision := p.w.Revisions[name]
		if !used.Has(name) && !revision.Referenced && !revision.Deleting {
			unused[revision.Artefact] = append(unused[revision.Artefact], revision)
		}
	}
	for _, artefact := range slices.Sorted(maps.Keys(unused)) {
		revisions := unused[artefact]
		slices.SortStableFunc(revisions, func(a, b Revision) int { return b.lastUsed().Compare(a.lastUsed()) })
		for _, revision := range revisions[min(limit, len(revisions)):] {
			p.plan.Steps = append(p.plan.Steps, Step{Kind: StepDeleteRevision, Revision: revision.Name,
				Why: fmt.Sprintf("%s is unused and beyond spec.revisionHistoryLimit", revision.Name)})
		}
	}
}

// used are the revisions that a template or a pod names, those that the plane's spec names, and those that the
// operator would go back to.
func (p *pass) used() sets.Set[string] {
	used := sets.New(p.w.Plane.Pin, p.plan.Target).Union(p.consulted)
	if p.held != nil {
		used.Insert(p.held.revision) // with it would go the memory of its failure
	}
	for _, w := range p.workloads() {
		for _, t := range w.templates() {
			used.Insert(t.Revision)
		}
		if good := p.lastGood(w); good != nil && p.w.Plane.Deleted.IsZero() {
			used.Insert(good.Name)
		}
	}
	return used
}

// lastUsed is when a workload was last complete on the revision, or else when it was made.
func (r *Revision) lastUsed() time.Time {
	last := r.Created
	for _, record := range r.Records {
		if record.Completed.After(last) {
			last = record.Completed
		}
	}
	return last
}
