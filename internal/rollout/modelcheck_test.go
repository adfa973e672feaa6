package rollout

import (
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// outage is something that goes wrong with a site, and how it is put right again.
type outage struct {
	name    string
	strikes func(*site) bool // false where it cannot strike now
	heals   func(*site) bool // false where there is nothing to put right
}

// outages that the exhaustive exploration lets strike, at any moment, as often as its budget allows.
var outages = []outage{
	{"Helm puts an older Stargate in",
		func(s *site) bool { return s.setImage("router:0.18.0") },
		func(s *site) bool { return s.setImage("router:0.22.0") }},
	{"the gateway's variables are taken out",
		func(s *site) bool {
			if s.gateways[0].template.revision == "" {
				return false
			}
			s.gateways[0].change(func(to *template) { to.revision = "" })
			return true
		},
		func(*site) bool { return false }},
	{"a policy withdraws its flag",
		func(s *site) bool { return s.wants(affine("a"), plain("b")) },
		func(s *site) bool { return s.wants(affine("a"), affine("b")) }},
	{"the plane is paused",
		func(s *site) bool { was := s.plane.Paused; s.plane.Paused = true; return !was },
		func(s *site) bool { was := s.plane.Paused; s.plane.Paused = false; return was }},
	{"Stargate's Deployment is paused",
		func(s *site) bool { was := s.stargate.hold; s.stargate.hold = "is paused"; return was == "" },
		func(s *site) bool { was := s.stargate.hold; s.stargate.hold = ""; return was != "" }},
	{"somebody else restarts the gateway",
		func(s *site) bool {
			s.gateways[0].change(func(to *template) { to.foreign += "x" })
			return true
		},
		func(*site) bool { return false }},
	{"a revision is deleted",
		func(s *site) bool {
			name := s.stargate.template.revision
			_, there := s.revisions[name]
			delete(s.revisions, name)
			return there
		},
		func(*site) bool { return false }},
	{"the status is lost",
		func(s *site) bool {
			if len(s.plane.Status.Records) == 0 {
				return false
			}
			s.plane.Status = v1alpha1.RoutingPlaneStatus{}
			return true
		},
		func(*site) bool { return false }},
	{"a flagged Stargate exits",
		func(s *site) bool { was := s.bad; s.bad = "b"; return was == "" },
		func(s *site) bool {
			was := s.bad
			s.bad = ""
			if !slices.Contains(slices.Collect(maps.Values(s.failures)), s.plane.Retry) {
				return was != ""
			}
			s.plane.Retry += "again " // no value comes twice
			s.wave.retried(s.stargate.template.revision)
			return true
		}},
}

func (s *site) setImage(image string) bool {
	if s.stargate.template.image == image {
		return false
	}
	s.stargate.change(func(to *template) { to.image = image })
	return true
}

func (s *site) setModels(models ...v1alpha1.Model) {
	s.config = render.Config{DefaultAlgorithm: v1alpha1.PowerOfN, Models: models}
}

// wants changes the models to ones that ask for other flags.
func (s *site) wants(models ...v1alpha1.Model) bool {
	if render.Desired(s.config).Equal(render.Desired(render.Config{Models: models})) {
		return false
	}
	s.setModels(models...)
	return true
}

// clone is a deep copy of what changes.
func (s *site) clone() *site {
	c := *s
	c.stargate = s.stargate.clone()
	c.gateways = nil
	for _, g := range s.gateways {
		c.gateways = append(c.gateways, g.clone())
	}
	c.preflights = clonePods(s.preflights)
	c.revisions = maps.Clone(s.revisions)
	c.failures = maps.Clone(s.failures)
	c.followed = maps.Clone(s.followed)
	c.log = nil
	return &c
}

func (w *workload) clone() *workload {
	c := *w
	c.pods = clonePods(w.pods)
	return &c
}

func clonePods(pods []*pod) (clones []*pod) {
	for _, p := range pods {
		q := *p
		clones = append(clones, &q)
	}
	return clones
}

// key identifies the state up to what makes no difference to anything that comes after: names, of pods and revisions;
// times, of which only the order counts, and of completions only that of the same workload; of a terminating pod
// everything but its image and its revision; and what somebody else put into a template, of which only counts
// whether a record is of the present one, since nothing of it ever comes back.
func (s *site) key() string {
	s.complete()
	var b strings.Builder
	short := map[string]string{"": "-"}
	for name := range s.revisions {
		short[name] = name[len(name)-4:]
	}
	name := func(revision string) string {
		if known, ok := short[revision]; ok {
			return known
		}
		return "?" + revision[len(revision)-4:]
	}
	fmt.Fprintf(&b, "%v %v %d %s|", s.plane.Paused, s.planeGone, len(render.Desired(s.config)), s.bad)
	foreign := map[string]string{}
	completions := map[string][]time.Time{}
	for _, w := range s.workloads() {
		foreign[w.kind+"/"+w.name] = w.template.image + w.template.path + w.template.foreign
		fmt.Fprintf(&b, "%v%v%v%s %s %s;", w.missing, w.managed, w.completed < w.applied, w.hold, w.template.image, name(w.template.revision))
		var pods []string
		for _, p := range w.pods {
			if p.terminating {
				pods = append(pods, fmt.Sprint("ends ", p.template.image, name(p.template.revision)))
				continue
			}
			pods = append(pods, fmt.Sprint(p.number == w.number, p.template.image, name(p.template.revision), p.ready, p.restarts, p.restarts > 0 && s.exitedBefore(w, p)))
		}
		slices.Sort(pods)
		b.WriteString(strings.Join(pods, ","))
	}
	b.WriteString("|")
	b.WriteString(s.preflightKey(name))
	for _, r := range s.revisions {
		for key, record := range r.Records {
			completions[key] = append(completions[key], record.Completed)
		}
	}
	for _, r := range s.plane.Status.Records {
		if r.CompletedAt != nil {
			completions[r.Workload] = append(completions[r.Workload], r.CompletedAt.Time)
		}
	}
	for key, times := range completions {
		slices.SortFunc(times, time.Time.Compare)
		completions[key] = slices.Compact(times)
	}
	rank := func(workload string, completed time.Time) int {
		n, _ := slices.BinarySearchFunc(completions[workload], completed, time.Time.Compare)
		return n
	}
	template := func(workload, recorded string) string {
		if recorded == foreign[workload] {
			return "present"
		}
		return recorded
	}
	for _, revision := range slices.Sorted(maps.Keys(s.revisions)) {
		r := s.revisions[revision]
		fmt.Fprintf(&b, "|%s w%d", name(revision), r.Wave)
		for _, key := range slices.Sorted(maps.Keys(r.Records)) {
			record := r.Records[key]
			fmt.Fprint(&b, key[:3], record.complete(), rank(key, record.Completed), !record.Failed.IsZero(), record.Retry == s.plane.Retry, template(key, record.Template), gateKey(record.Gate, name))
		}
	}
	b.WriteString("|")
	for _, r := range s.plane.Status.Records {
		fmt.Fprint(&b, r.Workload[:3], name(r.Revision), r.FailedAt != nil, r.Retry == s.plane.Retry, gateKey(r.Gate, name))
		if r.CompletedAt != nil {
			fmt.Fprint(&b, rank(r.Workload, r.CompletedAt.Time), template(r.Workload, r.Template))
		}
		b.WriteString(",")
	}
	b.WriteString("|")
	for _, tried := range slices.Sorted(maps.Keys(s.failures)) {
		if s.failures[tried] == s.plane.Retry {
			b.WriteString(tried[strings.Index(tried, " ")-4:])
		}
	}
	b.WriteString(s.metricsKey(name))
	return b.String()
}

// explored is what the exploration has found.
type explored struct {
	states, transitions int
	plans               sets.Set[string] // what the operator did or stood at, in all states
}

// explore visits, breadth first, every state that the site can get into: by passes of the operator, whole or cut
// short between any two of its writes as by a crash, by moves of controllers and pods, by metrics, by up to budget outages
// and their ends. That the operator is killed after the last write, before it has written the status, is one of the
// outages. In every state it asserts the invariants on what the operator does, and afterwards that from every state
// the desired end is reached without a further outage. What makes no difference is left out: see matters and key.
func explore(t testing.TB, start *site, budget int, goal func(*site, *Plan) bool) explored {
	t.Helper()
	return exploration{budget: budget, goal: goal}.of(t, start)
}

type exploration struct {
	budget int
	goal   func(*site, *Plan) bool
	// spared are outages that neither strike nor end, by name.
	spared []string
	// everything: also what makes no difference.
	everything bool
}

func (e exploration) of(t testing.TB, start *site) explored {
	t.Helper()
	type node struct {
		site *site
		left int
		key  string
		from int // the state before, and what happened in it
		by   string
	}
	index := map[string]int{}
	var queue []node
	var backwards [][]int32 // edges that are no outage, reversed
	var goals []int32
	found := explored{plans: sets.New[string]()}
	visit := func(s *site, left int, from int, by string, outage bool) {
		key := fmt.Sprint(left, s.key())
		id, seen := index[key]
		if !seen {
			id = len(index)
			index[key] = id
			queue = append(queue, node{s, left, key, from, by})
			backwards = append(backwards, nil)
		}
		if from >= 0 {
			found.transitions++
			if !outage {
				backwards[id] = append(backwards[id], int32(from))
			}
		}
	}
	wayTo := func(id int) (way string) {
		for ; id >= 0; id = queue[id].from {
			way = queue[id].by + "\n" + way
		}
		return way
	}
	visit(start, e.budget, -1, "", false)
	id := 0
	defer func() {
		if id < len(queue) { // ended by what it found
			t.Logf("the way there:%s", wayTo(id))
		}
	}()
	for ; id < len(queue); id++ {
		at := queue[id]
		queue[id].site = nil
		at.site.now = at.site.now.Add(time.Second)

		plan := &Plan{}
		if !at.site.planeGone {
			var err error
			if plan, err = Make(at.site.world()); err != nil {
				t.Fatal(err)
			}
			at.site.check(t, plan)
		}
		found.plans.Insert(plan.acts())
		if e.goal(at.site, plan) {
			goals = append(goals, int32(id))
		}
		for done, step := range plan.Steps { // killed before the next step, or, as an outage, before it wrote the status
			rest, left := plan.Steps[done+1:], at.left
			if len(rest) > 0 && !e.everything && at.site.deletesLoaded(rest[0]) {
				continue
			}
			if !slices.ContainsFunc(rest, func(step Step) bool { return !at.site.deletesLoaded(step) }) {
				if left--; left < 0 {
					continue
				}
			}
			after, some := at.site.clone(), *plan
			some.Steps = plan.Steps[:done+1]
			some.Conditions, some.Records = at.site.plane.Status.Conditions, at.site.plane.Status.Records
			after.do(t, &some)
			visit(after, left, id, "killed after: "+step.Why, left < at.left)
		}
		if !at.site.planeGone {
			after := at.site.clone()
			after.do(t, plan)
			visit(after, at.left, id, "a whole pass", false)
			if len(plan.Steps) > 0 && fmt.Sprint(at.left, after.key()) == at.key {
				t.Fatalf("I6: writes and changes nothing by it: %s\n%s", plan.Steps[0].Why, at.site.describe())
			}
		}
		matters := at.site.matters(t, plan)
		for i, w := range at.site.workloads() {
			for j := range at.site.moves(w) {
				after := at.site.clone()
				after.moves(after.workloads()[i])[j]()
				if gone := at.site.ending().Difference(after.ending()); gone.Len() > 0 && !e.everything && !matters.HasAny(gone.UnsortedList()...) {
					continue
				}
				visit(after, at.left, id, "a pod of "+w.name, false)
			}
		}
		for _, move := range at.site.metricMoves() {
			after := at.site.clone()
			move.to(after)
			visit(after, at.left, id, move.name, false)
		}
		if len(at.site.followed) > 0 {
			after := at.site.clone()
			after.followed = nil
			visit(after, at.left, id, "the operator is killed while it waits", true)
		}
		spare := at.site.clone() // until an outage changes it
		for _, o := range outages {
			if slices.Contains(e.spared, o.name) {
				continue
			}
			if o.heals(spare) { // help that nobody should need where nothing went wrong
				visit(spare, at.left, id, "no more: "+o.name, at.left == e.budget)
				spare = at.site.clone()
			}
			if at.left > 0 && o.strikes(spare) {
				visit(spare, at.left-1, id, o.name, true)
				spare = at.site.clone()
			}
		}
	}
	found.states = len(queue)

	reached := make([]bool, len(queue))
	for len(goals) > 0 {
		id := goals[len(goals)-1]
		goals = goals[:len(goals)-1]
		if reached[id] {
			continue
		}
		reached[id] = true
		goals = append(goals, backwards[id]...)
	}
	if dead := slices.Index(reached, false); dead >= 0 {
		t.Fatalf("state %d of %d has no way to the desired end:\n%s\nthe way there:%s", dead, len(queue), strings.ReplaceAll(queue[dead].key, "|", "\n"), wayTo(dead))
	}
	return found
}

// matters are the pods in termination of which it makes a difference now that they go, alone or as the last: to what
// the operator plans, or to what the controllers can do. That another goes is put off until it does: it changes nothing
// that anybody acts on and is possible at any time, so that whatever comes before it may as well come before. That one
// goes is enough to look at beside all, since pods in termination hold things up each by itself.
func (s *site) matters(t testing.TB, plan *Plan) sets.Set[string] {
	t.Helper()
	ending := s.ending()
	if ending.Len() == 0 || s.planeGone {
		return nil
	}
	with := func(stay sets.Set[string]) string {
		left := s.without(func(p *pod) bool { return p.terminating && !stay.Has(p.name) })
		plan, err := Make(left.world())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(left.others(), plan.acts())
	}
	all, none := fmt.Sprint(s.others(), plan.acts()), with(nil)
	if none == all {
		return nil
	}
	matters := sets.New[string]()
	for name := range ending {
		if ending.Len() == 1 || with(ending.Difference(sets.New(name))) != all || with(sets.New(name)) != none {
			matters.Insert(name)
		}
	}
	return matters
}

// without is the site, to look at only, without some of its pods.
func (s *site) without(gone func(*pod) bool) *site {
	left := *s
	left.gateways = nil
	for _, w := range s.workloads() {
		w := *w
		left.gateways = append(left.gateways, &w)
	}
	left.stargate, left.gateways = left.gateways[0], left.gateways[1:]
	for _, pods := range left.pods() {
		*pods = slices.DeleteFunc(slices.Clone(*pods), gone)
	}
	return &left
}

// deletesLoaded tells whether the step deletes a preflight pod that has loaded its file: what it has loaded counts whether
// it is terminating or not, so that nothing depends on whether the operator is killed before this step or after.
func (s *site) deletesLoaded(step Step) bool {
	return step.Kind == StepDeletePreflight && slices.ContainsFunc(s.preflights, func(p *pod) bool { return p.name == step.Pod.Name && p.ready })
}

// ending are the names of the pods in termination.
func (s *site) ending() sets.Set[string] {
	names := sets.New[string]()
	for _, pods := range s.pods() {
		for _, p := range *pods {
			if p.terminating {
				names.Insert(p.name)
			}
		}
	}
	return names
}

// others counts the moves that are none of a pod in termination.
func (s *site) others() (n int) {
	for _, w := range s.workloads() {
		n += len(s.moves(w))
	}
	return n - s.ending().Len()
}

// acts are what the plan does and where it stands, names of pods apart, and apart from the deletion of preflight pods that
// have loaded their file.
func (plan *Plan) acts() string {
	var b strings.Builder
	fmt.Fprint(&b, plan.Stage, plan.Flags.On, plan.Waiting == nil)
	for _, step := range plan.Steps {
		if step.Kind == StepDeletePreflight && step.Pod.Started && step.Pod.Crash == nil {
			continue
		}
		fmt.Fprint(&b, "|", step.Kind, step.Revision, step.Wave, step.Verdict, step.Record.complete(), step.Record.Failed.IsZero(), step.Record.Retry)
		if step.Pod != nil {
			b.WriteString(step.Pod.Revision)
		}
	}
	for _, sampling := range plan.Sampling {
		b.WriteString("|follows " + sampling.Revision)
	}
	return b.String()
}

// pods of all kinds.
func (s *site) pods() []*[]*pod {
	all := []*[]*pod{&s.preflights}
	for _, w := range s.workloads() {
		all = append(all, &w.pods)
	}
	return all
}

// small is the site that is explored: two models that have just got their flags, two pods of Stargate, two of the
// gateway, of each at most one in termination at a time.
func small(t testing.TB, kind string) *site {
	s := newSite(plain("a"), plain("b"))
	s.changed, s.burst = time.Time{}, time.Time{}
	s.stargate.kind = kind
	s.plane.QuietPeriod, s.plane.GatewayWarmup, s.plane.WaveInterval = 0, 0, 0
	s.plane.ProgressDeadline, s.endless = 1000*time.Hour, true // time is no part of what is explored
	s.plane.HistoryLimit = 0
	s.plane.Waves = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("100%")}
	s.oneDrain = true
	for _, w := range s.workloads() {
		w.replicas = 2
		w.pods = w.pods[:2]
	}
	s.settle(t)
	s.setModels(affine("a"), affine("b"))
	return s
}

func done(_ *site, plan *Plan) bool {
	return len(plan.Steps) == 0 && plan.Stage == v1alpha1.StageSettled && plan.Flags.On == 2 && plan.Waiting == nil
}

// TestMain lets the garbage collector take its time: an exploration makes much garbage and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// outageBudget is how many outages strike on a path of the exploration.
func outageBudget(t *testing.T) int {
	if env := os.Getenv("ROLLOUT_OUTAGES"); env != "" {
		budget, err := strconv.Atoi(env)
		if err != nil {
			t.Fatalf("ROLLOUT_OUTAGES: %v", err)
		}
		return budget
	}
	if testing.Short() {
		return 0
	}
	return 1
}

func TestEveryReachableStateKeepsTheInvariantsAndReachesTheEnd(t *testing.T) {
	budget := outageBudget(t)
	ends := map[string]struct {
		start  func(testing.TB, string) *site
		budget int
		goal   func(*site, *Plan) bool
	}{
		"flags come on": {small, budget, done},
		"one of two changes fails": {
			func(t testing.TB, kind string) *site {
				s := small(t, kind)
				s.setModels(fleet(2, 1)...)
				s.settle(t)
				s.refuses = poisoned(2, "b")
				s.setModels(fleet(2, 2)...)
				return s
			},
			0, // an outage would end with other policies
			func(s *site, plan *Plan) bool {
				return done(s, plan) && len(plan.Held) == 1 && maps.Equal(s.runs(), map[string]uint64{"a": 2, "b": 1})
			},
		},
		"the plane goes": {
			func(t testing.TB, kind string) *site {
				s := small(t, kind)
				s.settle(t)
				s.plane.Deleted = s.now
				return s
			},
			budget,
			func(s *site, _ *Plan) bool { return s.planeGone },
		},
	}
	t.Parallel()
	for _, end := range slices.Sorted(maps.Keys(ends)) {
		t.Run(end, func(t *testing.T) {
			kinds(t, func(t *testing.T, kind string) {
				t.Parallel()
				found := explore(t, ends[end].start(t, kind), ends[end].budget, ends[end].goal)
				t.Logf("explored %d states and %d transitions with up to %d outages", found.states, found.transitions, ends[end].budget)
			})
		})
	}
}

// What is left out of the explorations makes no difference: with it, the operator does and stands at just the same.
func TestWhatIsNotExploredMakesNoDifference(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, string) *site{
		"flags come on": small,
		"a preflight that fails": func(t testing.TB, kind string) *site {
			s := preflightedSmall(t, kind)
			s.bad = "b"
			return s
		},
		"waves that are judged": func(t testing.TB, kind string) *site { return judgedSmall(t, kind, true) },
	} {
		t.Run(name, func(t *testing.T) {
			kinds(t, func(t *testing.T, kind string) {
				t.Parallel()
				anywhere := func(*site, *Plan) bool { return true }
				less := explore(t, start(t, kind), 0, anywhere)
				all := exploration{goal: anywhere, everything: true}.of(t, start(t, kind))
				if less.states >= all.states || !less.plans.Equal(all.plans) {
					t.Errorf("of %d plans in %d states, %d in %d states were explored; left out are %q", all.plans.Len(), all.states, less.plans.Len(), less.states, sets.List(all.plans.Difference(less.plans)))
				}
				t.Logf("explored %d of %d states, and all %d plans", less.states, all.states, all.plans.Len())
			})
		})
	}
}
