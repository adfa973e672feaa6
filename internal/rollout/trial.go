package rollout

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

// change is what one owner changed of the last good configuration. Changes are tried and held whole.
type change struct {
	// owner in a person's words, by which changes are sorted: "policy nvcf/llama".
	owner string
	// key tells the change from every other of the same owner.
	key string
	// models that the owner added, changed or took out; plane: the plane's own settings.
	models []string
	plane  bool
}

// Owners of what no policy has.
const (
	ownerPlane = "spec.stargate of the plane"
	ownerNone  = "the removal of models"
)

// hold keeps the wanted configuration, or the part of it that is to blame, from being rolled out once it has failed.
// The last good configuration comes back first. Then the changes are tried apart, in halves, until each is either
// part of what is good or has failed alone: the innocent get through and the guilty is known. Nothing of this is
// remembered but the records of what failed.
func (p *pass) hold() (bool, error) {
	sg := &p.w.Stargate
	wanted := p.plan.Config
	target, rendered, err := p.render(p.desired.Intersection(p.on))
	if err != nil {
		return false, err
	}
	record, failed := p.failed(target, sg)
	alone := p.failedAlone()
	if !failed && len(alone) == 0 {
		return false, nil
	}
	if failed {
		p.consulted.Insert(target)
		p.held = &failure{revision: target, workload: sg, record: record}
	}
	good := p.lastGood(sg)
	if good == nil {
		return failed && p.firstFailed(target), nil
	}
	goodConfig, err := render.FromFile(good.File)
	if err != nil {
		return false, fmt.Errorf("last good revision %s: %w", good.Name, err)
	}
	if p.w.Plane.Pin != "" && failed { // a person chose it whole
		p.adopt(goodConfig)
		return false, nil
	}
	t := trial{wanted: wanted, good: goodConfig}
	if t.open, err = p.changes(good.File, rendered.Data); err != nil {
		return false, err
	}
	if err := p.try(&t, alone); err != nil {
		return false, err
	}
	switch _, back := p.failed(sg.Template.Revision, sg); {
	case len(t.guilty) == 0 && !failed:
		p.adopt(wanted) // what once failed alone is not wanted any more
		return false, nil
	case back:
		p.adopt(t.with(0))
	default:
		p.adopt(t.with(len(t.candidate)))
	}
	if len(t.guilty) > 0 {
		p.held = &t.failures[0]
	}
	p.guilty, p.trying, p.plan.Held = owners(t.guilty), owners(t.candidate), t.held()
	if name, _, err := p.render(p.desired.Intersection(p.on)); err != nil {
		return false, err
	} else if _, failed := p.failed(name, sg); failed {
		p.adopt(goodConfig) // it failed for another reason than a change of a policy
	}
	return false, nil
}

// firstFailed goes back from the first configuration ever, which has failed: there is only the router as it was without the
// operator to go back to, and none where its arguments already point at the operator's file.
func (p *pass) firstFailed(target string) bool {
	sg := &p.w.Stargate
	if sg.Template.ReadsFile || sg.Template.Revision != target {
		return false
	}
	why := fmt.Sprintf("letting go of %s %s: its first configuration failed", sg.Kind, sg.Name)
	if r := p.mayRoll(sg, true); r != nil {
		p.waitFor(r, why)
		return true
	}
	p.step(Step{Kind: StepLetGo, Workload: sg, Why: why})
	p.wait(ReasonRollingOut, why, time.Time{})
	return true
}

// try finds the next candidate: as many of the open changes as have not failed together.
func (p *pass) try(t *trial, alone map[string]failure) error {
	t.open = slices.DeleteFunc(t.open, func(c change) bool {
		f, known := alone[c.key]
		if known {
			p.consulted.Insert(f.revision)
			t.blame(c, f)
		}
		return known
	})
	for len(t.open) > 0 {
		var last failure
		for size := len(t.open); size > 0; size /= 2 {
			p.adopt(t.with(size))
			name, _, err := p.render(p.desired.Intersection(p.on))
			if err != nil {
				return err
			}
			record, failed := p.failed(name, &p.w.Stargate)
			if !failed {
				t.candidate = t.open[:size]
				return nil
			}
			p.consulted.Insert(name)
			last = failure{revision: name, workload: &p.w.Stargate, record: record}
		}
		guilty := t.open[0] // not even alone: everything else in that revision is good by now
		if last.record.Change != guilty.key {
			last.record.Change = guilty.key
			p.write(last.revision, last.workload, last.record, fmt.Sprintf("%s failed by what %s changes", last.revision, guilty.owner))
		}
		t.blame(guilty, last)
		t.open = t.open[1:]
	}
	return nil
}

// trial is the last good configuration on its way to the wanted one.
type trial struct {
	wanted, good render.Config
	// open are the changes that are neither good nor known to be guilty; the candidate are the first of them.
	open, candidate []change
	guilty          []change
	failures        []failure
}

func (t *trial) blame(c change, f failure) {
	t.guilty, t.failures = append(t.guilty, c), append(t.failures, f)
}

// with is the last good configuration with the first n of the open changes: the wanted one less all others.
func (t *trial) with(n int) render.Config {
	excluded := slices.Concat(t.guilty, t.open[n:])
	if len(excluded) == 0 {
		return t.wanted
	}
	config := t.wanted
	left := sets.New[string]()
	for i := range excluded {
		left.Insert(excluded[i].models...)
		if excluded[i].plane {
			config.DefaultAlgorithm, config.RequestAlgorithms = t.good.DefaultAlgorithm, t.good.RequestAlgorithms
		}
	}
	config.Models = nil
	for i := range t.wanted.Models {
		if !left.Has(t.wanted.Models[i].Name) {
			config.Models = append(config.Models, t.wanted.Models[i])
		}
	}
	for i := range t.good.Models {
		if left.Has(t.good.Models[i].Name) {
			config.Models = append(config.Models, t.good.Models[i])
		}
	}
	return config
}

// held says, by model, why its change is not in what is being rolled out.
func (t *trial) held() map[string]string {
	held := map[string]string{}
	for i := range t.guilty {
		for _, model := range t.guilty[i].models {
			held[model] = fmt.Sprintf("Stargate did not start with the change (%s); change it, or ask for another attempt by the plane's annotation %s",
				t.failures[i].revision, RetryAnnotation)
		}
	}
	for i := range t.open {
		for _, model := range t.open[i].models {
			held[model] = "a change to the plane failed, and this one waits while the changes are tried apart"
		}
	}
	return held
}

func owners(changes []change) []string {
	return capped(changes, func(c change) string { return c.owner })
}

// failedAlone are the failures of revisions that made one change only, by the key of the change.
func (p *pass) failedAlone() map[string]failure {
	alone := map[string]failure{}
	for _, name := range slices.Sorted(maps.Keys(p.w.Revisions)) {
		if p.w.Revisions[name].Artefact != render.ArtefactStargate {
			continue
		}
		if record, failed := p.failed(name, &p.w.Stargate); failed && record.Change != "" {
			alone[record.Change] = failure{revision: name, workload: &p.w.Stargate, record: record}
		}
	}
	return alone
}

// changes are what the rendered file changes of the good one, by owner, flags apart: these have stages of their own.
func (p *pass) changes(good *lbconfig.File, data []byte) ([]change, error) {
	file, err := lbconfig.Read(data, release.Newest)
	if err != nil {
		return nil, fmt.Errorf("reading the rendered lb-config.json: %w", err)
	}
	names := sets.KeySet(file.Models).Union(sets.KeySet(good.Models))
	models := map[string][]string{}
	for _, name := range sets.List(names) {
		entry, there := file.Models[name]
		was, before := good.Models[name]
		if there == before && lbconfig.SameEntry(entry.WithoutFlags(), was.WithoutFlags()) {
			continue
		}
		owner := ownerNone
		if there {
			owner = fmt.Sprintf("model %q", name)
			if policy, ok := p.w.Owners[name]; ok {
				owner = "policy " + policy.String()
			}
		}
		models[owner] = append(models[owner], name)
	}
	var changes []change
	own, before := lbconfig.WithoutFlags(file.RequestAlgorithms), lbconfig.WithoutFlags(good.RequestAlgorithms)
	if file.Default != good.Default || !maps.EqualFunc(own, before, lbconfig.SameEntry) {
		c := change{owner: ownerPlane, plane: true}
		if c.key, err = key(c.owner, file.Default, own); err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	for _, owner := range slices.Sorted(maps.Keys(models)) {
		c := change{owner: owner, models: models[owner]}
		entries := map[string]lbconfig.Entry{}
		for _, name := range c.models {
			entries[name] = file.Models[name].WithoutFlags()
		}
		if c.key, err = key(owner, entries); err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	slices.SortStableFunc(changes, func(a, b change) int { return strings.Compare(a.owner, b.owner) })
	return changes, nil
}

// key is the owner's name and a hash of what it wants.
func key(owner string, content ...any) (string, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("hashing what %s changes: %w", owner, err)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(text) // never fails
	return fmt.Sprintf("%s %016x", owner, sum.Sum64()), nil
}

// soleChange is the key of the one change that the file makes to the last good one, if it is one.
func (p *pass) soleChange(data map[string]string) string {
	good := p.lastGood(&p.w.Stargate)
	if good == nil {
		return ""
	}
	changes, err := p.changes(good.File, []byte(data[render.LBConfigKey]))
	if err != nil || len(changes) != 1 {
		return ""
	}
	return changes[0].key
}
