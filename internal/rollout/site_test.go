package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

// site is a small model of a plane's surroundings: the workload controllers, the pods and the people. Its
// moves are the transitions of the tests; the planner sees it through world() and acts on it through do().
type site struct {
	now      time.Time
	plane    Plane
	config   render.Config
	changed  time.Time
	burst    time.Time
	stargate *workload
	gateways []*workload

	revisions map[string]Revision
	planeGone bool
	log       []string
	// refuses tells whether a Stargate pod exits on the file of the revision, beyond what the strict reader says.
	refuses func(revision Revision) bool
	// mountFails: a Stargate pod exits wherever the operator's file is mounted, read or not.
	mountFails bool
	// appeared is when the plane was first seen, if it was new then.
	appeared time.Time
	// owners of the models.
	owners map[string]types.NamespacedName
	// blind, if set, hides from the planner what it has to go by: a bug that is planted.
	blind func(*World)
	// bad is a model whose flag makes Stargate exit.
	bad string
	// failures are the revisions that failed, with the retry value of the time: what I5 forbids to try again.
	failures map[string]string
	// preflights are throwaway pods; how they fare beside what starts() says.
	preflights []*pod
	preflight  preflightWeather
	// traffic is what is counted of a sampling; nil: nothing. followed are those that the last plan asked for, and
	// since when; a restart of the operator forgets them.
	traffic  func(Sampling) analysis.Figures
	followed map[string]followed
	// endless: no deadline passes and no interval ends by time alone, as where everything is explored.
	endless bool
	// wave that was given last, where everything is explored and waves are judged.
	wave waveGiven
	// frozen is a workload of which nothing gets any further: it has no quota, say.
	frozen *workload
	// oneDrain: a workload ends no further pod while one of its pods is terminating.
	oneDrain bool
	// watch, if set, is shown every plan before it is carried out.
	watch func(*Plan)
	// drains tells whether a terminating pod may go now; nil lets all go.
	drains func() bool
}

// workload is a Deployment with a surge of one, or a StatefulSet that replaces one pod at a time.
type workload struct {
	kind, name string
	missing    bool
	replicas   int
	managed    bool
	hold       string
	template   template
	number     int // of the template, counted up with each change
	completed  int // number of the template that was completely rolled out last
	applied    int // number of the template that the operator made last
	version    int // of the object
	rollouts   int
	pods       []*pod
	names      int
}

// template is what a pod is made from.
type template struct {
	image    string
	revision string
	path     string            // of Stargate's argument
	chart    map[string]string // variables that the chart sets
	foreign  string            // anything else
}

func (t template) same(as template) bool {
	return t.image == as.image && t.revision == as.revision && t.path == as.path && t.foreign == as.foreign && maps.Equal(t.chart, as.chart)
}

type pod struct {
	name        string
	template    template
	number      int
	ready       bool
	readySince  time.Time
	created     time.Time
	terminating bool
	restarts    int32
	exited      time.Time
	stuck       bool // in termination
}

const configPath = "/etc/routing-operator/lb-config.json"

var table = func() release.Table {
	t, err := release.ParseTable(map[string]string{"V0": "0.10.0", "V1": "0.18.0", "V2": "0.20.0", "V3": "0.22.0"})
	if err != nil {
		panic(err)
	}
	return t
}()

// releases of the images that were looked at: the table parses the name each time.
var releases sync.Map

func releaseOf(image string) release.Release {
	known, ok := releases.Load(image)
	if !ok {
		known, _ = releases.LoadOrStore(image, table.OfImage(image, nil))
	}
	return known.(release.Release)
}

// read are the files that were read, and whether the generation accepts them: there are few, and pods start often.
var read sync.Map

func readable(file string, by release.Generation) bool {
	type look struct {
		file string
		by   release.Generation
	}
	known, ok := read.Load(look{file, by})
	if !ok {
		_, err := lbconfig.Read([]byte(file), by)
		known, _ = read.LoadOrStore(look{file, by}, err == nil)
	}
	return known.(bool)
}

func newSite(models ...v1alpha1.Model) *site {
	s := &site{
		now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
		plane: Plane{
			Namespace: "nvcf", Name: "llm", Generation: 1,
			QuietPeriod: 5 * time.Second, GatewayWarmup: 10 * time.Minute, WaveInterval: 5 * time.Minute,
			Waves:            []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("100%")},
			ProgressDeadline: 15 * time.Minute, HistoryLimit: 10,
			ConfigPath: configPath, ConfigPathCheck: v1alpha1.ConfigPathCheckArguments, DeletionPolicy: v1alpha1.DeletionUnwind,
		},
		stargate: &workload{kind: v1alpha1.KindDeployment, name: "llm-request-router", replicas: 3,
			template: template{image: "router:0.22.0", path: configPath}},
		gateways:  []*workload{{kind: v1alpha1.KindDeployment, name: "llm-api-gateway", replicas: 3, template: template{image: "gateway:1.0.0"}}},
		revisions: map[string]Revision{},
		failures:  map[string]string{},
	}
	s.configure(models...)
	for _, w := range s.workloads() {
		w.number, w.version = 1, 1
		for range w.replicas {
			s.start(w).ready = true
		}
	}
	// A Stargate whose arguments name a file that nobody mounts is the fresh install: no pod starts.
	for _, p := range s.stargate.pods {
		p.ready = false
	}
	return s
}

func (s *site) configure(models ...v1alpha1.Model) {
	s.config = render.Config{DefaultAlgorithm: v1alpha1.PowerOfN, Models: models}
	s.changed = s.now
	s.burst = s.now
}

func (s *site) workloads() []*workload { return append([]*workload{s.stargate}, s.gateways...) }

func (s *site) start(w *workload) *pod {
	w.names++
	p := &pod{name: fmt.Sprintf("%s-%d", w.name, w.names), template: w.template, number: w.number, created: s.now, readySince: s.now}
	w.pods = append(w.pods, p)
	return p
}

// change rolls a new template out, if it is one.
func (w *workload) change(to func(*template)) {
	w.version++
	was := w.template
	to(&w.template)
	if was.same(w.template) {
		return
	}
	w.number++
	w.rollouts++
}

// memory of a gateway made from the template.
func (s *site) memory(t template) Memory {
	variables := maps.Clone(t.chart)
	if r, ok := s.revisions[t.revision]; ok {
		variables = maps.Clone(r.Data)
	}
	return Memory{On: variables[render.VariableEnabled] == "true", Unverified: true, Variables: variables}
}

// starts tells whether a pod of the template gets as far as being ready.
func (s *site) starts(w *workload, t template) bool {
	if w == s.stargate && s.mountFails && t.revision != "" {
		return false
	}
	if w != s.stargate || t.path != configPath {
		return true
	}
	revision, ok := s.revisions[t.revision]
	if !ok {
		return false
	}
	if s.refuses != nil && s.refuses(revision) || revision.Flags.Has(render.Flag{Model: s.bad}) {
		return false
	}
	return readable(revision.Data[render.LBConfigKey], releaseOf(t.image).Generation)
}

// moves are the next steps that the workload's controller and its pods can take.
func (s *site) moves(w *workload) (moves []func()) {
	if w.missing || w == s.frozen {
		return nil
	}
	if w == s.stargate {
		moves = s.preflightMoves()
	}
	live, updated, unready := 0, 0, 0
	for _, p := range w.pods {
		if p.terminating {
			if !p.stuck && (s.drains == nil || s.drains()) {
				moves = append(moves, func() { w.pods = slices.DeleteFunc(w.pods, func(o *pod) bool { return o == p }) })
			}
			continue
		}
		live++
		if p.number == w.number {
			updated++
		}
		if !p.ready {
			unready++
			if s.starts(w, p.template) {
				moves = append(moves, func() { p.ready, p.readySince, p.restarts = true, s.now, 0 })
			} else if _, exists := s.revisions[p.template.revision]; (exists || p.template.revision == "") && (p.restarts < crashLoop || s.exitedBefore(w, p)) {
				moves = append(moves, func() { p.restarts, p.exited = crashLoop, s.now })
			}
		}
	}
	surge := 1
	if w.kind == v1alpha1.KindStatefulSet {
		surge = 0
	}
	if live < w.replicas || w.hold == "" && updated < w.replicas && live < w.replicas+surge {
		moves = append(moves, func() { s.start(w) })
	}
	if victim := w.victim(live, updated, unready, surge); victim != nil && (!s.oneDrain || live == len(w.pods)) {
		moves = append(moves, func() { victim.terminating, victim.ready = true, false })
	}
	return moves
}

// exitedBefore tells whether the pod's last exit was before its revision was last tried, or in that second: it will exit
// once more.
func (s *site) exitedBefore(w *workload, p *pod) bool {
	return p.exited.Truncate(time.Second).Before(s.revisions[p.template.revision].Records[w.kind+"/"+w.name].Applied)
}

// victim is the pod that the controller would end next.
func (w *workload) victim(live, updated, unready, surge int) *pod {
	for _, p := range w.pods {
		switch {
		case p.terminating:
		case live > w.replicas && p.number != w.number && (!p.ready || unready == 0), live > w.replicas && (w.hold != "" || updated > w.replicas):
			return p
		case surge == 0 && w.hold == "" && p.number != w.number && unready == 0:
			return p
		}
	}
	return nil
}

// world is what the planner sees.
func (s *site) world() *World {
	s.complete()
	w := &World{Now: s.now, Figures: s.figures(), Plane: s.plane, Config: s.config, Owners: s.owners, Appeared: s.appeared, ConfigChanged: s.changed, ConfigChanging: s.burst,
		Stargate: s.observe(s.stargate), Revisions: maps.Clone(s.revisions)}
	for _, g := range s.gateways {
		w.Gateways = append(w.Gateways, s.observe(g))
	}
	w.Preflight = s.observePreflights()
	if s.blind != nil {
		s.blind(w)
	}
	return w
}

func (s *site) observe(w *workload) Workload {
	o := Workload{Kind: w.kind, Name: w.name, Found: !w.missing, Hold: w.hold, Managed: w.managed, Replicas: int32(w.replicas),
		ResourceVersion: strconv.Itoa(w.version), Generation: int64(w.number), ObservedGeneration: int64(w.number), Template: s.read(w, w.template)}
	if w.missing {
		return o
	}
	o.Template.Foreign = w.template.image + w.template.path + w.template.foreign
	old := map[string]Template{}
	live, good := 0, 0
	for _, p := range w.pods {
		seen := Pod{Name: p.name, UID: p.name, Template: s.read(w, p.template), Updated: p.number == w.number, Ready: p.ready,
			ReadySince: p.readySince, Created: p.created, Terminating: p.terminating, Started: p.ready || p.restarts > 0}
		if p.restarts > 0 && !p.ready {
			seen.Crash = &Crash{Container: "router", Restarts: p.restarts, At: p.exited.Truncate(time.Second), Message: "bad file"}
		}
		o.Pods = append(o.Pods, seen)
		if !p.terminating {
			live++
			if p.number != w.number {
				old[strconv.Itoa(p.number)] = seen.Template
			} else if p.ready {
				good++
			}
		}
	}
	for _, number := range slices.Sorted(maps.Keys(old)) {
		o.OtherTemplates = append(o.OtherTemplates, old[number])
	}
	o.RolledOut = good == w.replicas && live == w.replicas
	return o
}

func (s *site) read(w *workload, t template) Template {
	seen := Template{Image: t.image, Release: releaseOf(t.image), Revision: t.revision, Touched: t.revision != ""}
	if w == s.stargate {
		seen.ReadsFile = t.path == configPath
		return seen
	}
	seen.Memory = s.memory(t)
	return seen
}

// do carries the plan out.
func (s *site) do(t testing.TB, plan *Plan) {
	s.plane.Status.Conditions, s.plane.Status.Records = plan.Conditions, plan.Records
	s.follow(plan.Sampling)
	for _, step := range plan.Steps {
		s.log = append(s.log, step.Why)
		var w *workload
		for _, candidate := range s.workloads() {
			if step.Workload != nil && candidate.kind+"/"+candidate.name == step.Workload.Key() {
				w = candidate
			}
		}
		if w != nil && step.Workload.ResourceVersion != "" && step.Workload.ResourceVersion != strconv.Itoa(w.version) {
			return // planned from what is no more: the API server would answer with a conflict
		}
		was := s.stargate.template.revision
		switch step.Kind {
		case StepEnsureRevision:
			s.ensure(t, step)
		case StepApply:
			if _, ok := s.revisions[step.Revision]; !ok {
				t.Fatalf("applies revision %s, which does not exist", step.Revision)
			}
			w.managed = true
			before := w.number
			if w.change(func(to *template) { to.revision = step.Revision }); w.number != before {
				w.applied = w.number
			}
		case StepLetGo:
			w.managed = w.template.revision != "" // until the template without the fields is rolled out
			before := w.number
			if w.change(func(to *template) { to.revision = "" }); w.number != before {
				w.applied = w.number
			}
		case StepDisown:
			w.managed = false
		case StepRecord:
			s.note(step)
			if !step.Record.Failed.IsZero() {
				s.failures[step.Revision+" on "+step.Workload.Key()] = step.Record.Retry
			}
		case StepDeletePod:
			for _, p := range w.pods {
				if p.name == step.Pod.Name {
					p.terminating, p.ready = true, false
				}
			}
		case StepPreflight:
			s.startPreflight(t, step)
		case StepDeletePreflight:
			for _, p := range s.preflights {
				p.terminating = p.terminating || p.name == step.Pod.Name
			}
		case StepDeleteRevision:
			for _, w := range s.workloads() {
				for _, p := range w.pods {
					if p.template.revision == step.Revision || w.template.revision == step.Revision {
						t.Fatalf("deletes revision %s, which %s uses", step.Revision, w.name)
					}
				}
			}
			delete(s.revisions, step.Revision)
		case StepRemoveFinalizer:
			s.planeGone = true
		}
		s.noteWave(step, was)
	}
}

func (s *site) ensure(t testing.TB, step Step) {
	r, ok := s.revisions[step.Revision]
	if ok && r.Intact {
		r.Wave = step.Wave
		s.revisions[step.Revision] = r
		s.note(step)
		return
	}
	r = Revision{Name: step.Revision, Created: s.now, Artefact: step.Artefact, Data: step.Data, Wave: step.Wave, Intact: true}
	if step.Artefact == render.ArtefactStargate {
		file, err := lbconfig.Read([]byte(step.Data[render.LBConfigKey]), release.Newest)
		if err != nil {
			t.Fatalf("rendered a file that no Stargate reads: %v", err)
		}
		r.File, r.Flags = file, render.Flags{}.Insert(file.Flags()...)
	}
	s.revisions[step.Revision] = r
	s.note(step)
}

// note writes the step's record onto its revision.
func (s *site) note(step Step) {
	r := s.revisions[step.Revision]
	records := map[string]Record{step.Workload.Key(): step.Record}
	for key, record := range r.Records {
		if key != step.Workload.Key() {
			records[key] = record
		}
	}
	r.Records = records
	s.revisions[step.Revision] = r
}

// pass lets the operator have one look and act. Every invariant is checked against what it does.
func (s *site) pass(t testing.TB) *Plan {
	t.Helper()
	if s.planeGone {
		return nil
	}
	world := s.world()
	plan, err := Make(world)
	if err != nil {
		t.Fatal(err)
	}
	s.check(t, plan)
	if s.watch != nil {
		s.watch(plan)
	}
	s.do(t, plan)
	return plan
}

// check asserts I1 to I5 on what the plan is about to do, from the site and not from the planner's own gates.
func (s *site) check(t testing.TB, plan *Plan) {
	t.Helper()
	created := map[string]Step{}
	rolled := map[string]bool{}
	judged := *s // with the verdicts that the plan itself comes to
	for _, step := range plan.Steps {
		switch step.Kind {
		case StepEnsureRevision:
			created[step.Revision] = step
		case StepApply, StepLetGo:
			rolled[step.Workload.Key()] = true
			for _, w := range s.workloads() {
				if w.kind+"/"+w.name != step.Workload.Key() && s.operatorRolls(w) {
					t.Fatalf("I3: rolls %s while its own change to %s is being rolled out\n%s", step.Workload.Key(), w.name, s.describe())
				}
			}
		}
		if step.Kind != StepApply || step.Workload.Key() != s.stargate.kind+"/"+s.stargate.name {
			judged.checkGate(t, step, nil)
		}
		if step.Verdict != "" {
			judged.wave.verdict = step.Verdict
		}
		if step.Kind != StepApply {
			continue
		}
		if retry, failed := s.failures[step.Revision+" on "+step.Workload.Key()]; failed && retry == s.plane.Retry {
			t.Fatalf("I5: gives %s revision %s again, which failed on it\n%s", step.Workload.Key(), step.Revision, s.describe())
		}
		data := s.revisions[step.Revision].Data
		if c, ok := created[step.Revision]; ok {
			data = c.Data
		}
		if step.Workload.Key() != s.stargate.kind+"/"+s.stargate.name {
			if data[render.VariableEnabled] == "true" && !s.everyStargate(func(t template) bool { return releaseOf(t.image).Generation >= release.V3 }) {
				t.Fatalf("I2: switches the memory on while some Stargate does not know the header\n%s", s.describe())
			}
			continue
		}
		file, err := lbconfig.Read([]byte(data[render.LBConfigKey]), releaseOf(s.stargate.template.image).Generation)
		if err != nil {
			t.Fatalf("I4: gives %s a file that it refuses: %v\n%s", s.stargate.template.image, err, s.describe())
		}
		on := render.Flags{}.Insert(file.Flags()...)
		if added := on.Difference(s.revisions[s.stargate.template.revision].Flags); added.Len() > 0 && !s.everyGateway() {
			t.Fatalf("I1: switches %v on while some gateway has no memory\n%s", render.SortFlags(added), s.describe())
		}
		judged.checkGate(t, step, file)
		s.checkPreflight(t, step, on)
	}
	if len(rolled) > 1 {
		t.Fatalf("I3: rolls %v in one pass", slices.Sorted(maps.Keys(rolled)))
	}
}

// operatorRolls tells whether a change of the operator's to the workload was not complete at any time since.
func (s *site) operatorRolls(w *workload) bool {
	return !w.missing && w.managed && w.completed < w.applied
}

// complete notes which workloads are completely rolled out, whether or not anybody looked.
func (s *site) complete() {
	for _, w := range s.workloads() {
		good, old := 0, false
		for _, p := range w.pods {
			old = old || !p.terminating && p.number != w.number
			if !p.terminating && p.number == w.number && p.ready {
				good++
			}
		}
		if !old && good >= w.replicas {
			w.completed = w.number
		}
	}
}

func (s *site) everyStargate(ok func(template) bool) bool {
	for _, p := range s.stargate.pods {
		if !ok(p.template) {
			return false
		}
	}
	return ok(s.stargate.template)
}

func (s *site) everyGateway() bool {
	for _, g := range s.gateways {
		if g.missing || !s.memory(g.template).On {
			return false
		}
		for _, p := range g.pods {
			if !s.memory(p.template).On {
				return false
			}
		}
	}
	return len(s.gateways) > 0
}

// settle lets everything run, passes and moves in turn and time where nothing else moves, until nothing is
// left to do, and returns the last plan.
func (s *site) settle(t testing.TB) *Plan {
	t.Helper()
	for range 2000 {
		plan := s.pass(t)
		if plan == nil {
			return nil
		}
		moved := len(plan.Steps) > 0
		for _, w := range s.workloads() {
			for _, move := range s.moves(w) {
				move()
				moved = true
				break
			}
		}
		if moved {
			s.now = s.now.Add(time.Second)
			continue
		}
		if plan.Requeue.IsZero() || !plan.Requeue.After(s.now) {
			return plan
		}
		s.now = plan.Requeue
	}
	t.Fatalf("does not settle\n%s", s.describe())
	return nil
}

// wander takes random steps: passes, moves of the controllers and pods, time, and what people do.
func (s *site) wander(t testing.TB, random *rand.Rand, steps int, people []func(*rand.Rand)) {
	t.Helper()
	for range steps {
		switch choice := random.IntN(20); {
		case choice < 8:
			s.pass(t)
		case choice < 16:
			var moves []func()
			for _, w := range s.workloads() {
				moves = append(moves, s.moves(w)...)
			}
			if len(moves) > 0 {
				moves[random.IntN(len(moves))]()
			}
		case choice < 19:
			s.now = s.now.Add(time.Duration(random.Int64N(int64(4 * time.Minute))))
		case len(people) > 0:
			people[random.IntN(len(people))](random)
		}
	}
}

func (s *site) describe() string {
	var b strings.Builder
	for _, w := range s.workloads() {
		fmt.Fprintf(&b, "%s %s x%d template %d %s rev=%q managed=%v missing=%v\n", w.kind, w.name, w.replicas, w.number, w.template.image, w.template.revision, w.managed, w.missing)
		for _, p := range w.pods {
			fmt.Fprintf(&b, "  %s template %d %s rev=%q ready=%v terminating=%v restarts=%d\n", p.name, p.number, p.template.image, p.template.revision, p.ready, p.terminating, p.restarts)
		}
	}
	for i := max(0, len(s.log)-15); i < len(s.log); i++ {
		fmt.Fprintf(&b, "log: %s\n", s.log[i])
	}
	return b.String()
}
