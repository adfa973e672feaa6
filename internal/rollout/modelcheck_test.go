package rollout

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

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
			was := s.gateways[0].template.revision
			s.gateways[0].change(func(to *template) { to.revision = "" })
			return was != ""
		},
		func(*site) bool { return false }},
	{"a policy withdraws its flag",
		func(s *site) bool { return s.setModels(affine("a"), plain("b")) },
		func(s *site) bool { return s.setModels(affine("a"), affine("b")) }},
	{"the plane is paused",
		func(s *site) bool { was := s.plane.Paused; s.plane.Paused = true; return !was },
		func(s *site) bool { was := s.plane.Paused; s.plane.Paused = false; return was }},
	{"Stargate's Deployment is paused",
		func(s *site) bool { was := s.stargate.hold; s.stargate.hold = "is paused"; return was == "" },
		func(s *site) bool { was := s.stargate.hold; s.stargate.hold = ""; return was != "" }},
	{"somebody else restarts the gateway",
		func(s *site) bool {
			s.gateways[0].change(func(to *template) { to.foreign += "x" })
			return len(s.gateways[0].template.foreign) < 2
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
			was := len(s.plane.Status.Records)
			s.plane.Status = v1alpha1.RoutingPlaneStatus{}
			return was > 0
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
			s.plane.Retry = map[string]string{"": "again", "again": "anew", "anew": "again"}[s.plane.Retry]
			return true
		}},
}

func (s *site) setImage(image string) bool {
	was := s.stargate.template.image
	s.stargate.change(func(to *template) { to.image = image })
	return was != image
}

func (s *site) setModels(models ...v1alpha1.Model) bool {
	same := render.Desired(s.config).Equal(render.Desired(render.Config{Models: models}))
	s.config = render.Config{DefaultAlgorithm: v1alpha1.PowerOfN, Models: models}
	return !same
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

// key identifies the state up to names and to times, of which only the order counts.
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
	fmt.Fprintf(&b, "%v %v %d %s|", s.plane.Paused, s.planeGone, len(render.Desired(s.config)), s.bad+s.plane.Retry)
	for _, w := range s.workloads() {
		fmt.Fprintf(&b, "%v%v%v%s %s %s %s;", w.missing, w.managed, w.completed < w.applied, w.hold, w.template.image, name(w.template.revision), w.template.foreign)
		var pods []string
		for _, p := range w.pods {
			restarts := p.restarts
			if p.terminating {
				restarts = 0
			}
			pods = append(pods, fmt.Sprint(p.number == w.number, p.template.image, name(p.template.revision), p.template.foreign, p.ready, p.terminating, restarts, restarts > 0 && s.exitedBefore(w, p)))
		}
		slices.Sort(pods)
		b.WriteString(strings.Join(pods, ","))
	}
	b.WriteString(s.preflightKey(name))
	var completions []time.Time
	for _, r := range s.revisions {
		for _, record := range r.Records {
			completions = append(completions, record.Completed)
		}
	}
	slices.SortFunc(completions, time.Time.Compare)
	completions = slices.Compact(completions)
	for _, name := range slices.Sorted(maps.Keys(s.revisions)) {
		r := s.revisions[name]
		fmt.Fprintf(&b, "|%s w%d", short[name], r.Wave)
		for _, key := range slices.Sorted(maps.Keys(r.Records)) {
			record := r.Records[key]
			rank, _ := slices.BinarySearchFunc(completions, record.Completed, time.Time.Compare)
			fmt.Fprint(&b, key[:3], record.complete(), rank, record.Failed.IsZero(), record.Retry, record.Template)
		}
	}
	b.WriteString("|")
	for _, r := range s.plane.Status.Records {
		fmt.Fprint(&b, r.Workload[:3], name(r.Revision), r.CompletedAt != nil, r.FailedAt != nil, r.Retry, ",")
	}
	return b.String()
}

// explored is what the exploration has found.
type explored struct {
	states, transitions int
}

// explore visits, breadth first, every state that the site can get into: by passes of the operator, cut short
// after each of its writes as by a crash, by moves of controllers and pods, by up to budget outages and their
// ends. In every state it asserts the invariants on what the operator does, and afterwards that from every state
// the desired end is reached without a further outage.
func explore(t testing.TB, start *site, budget int, goal func(*site, *Plan) bool) explored {
	t.Helper()
	type node struct {
		site *site
		left int
		key  string
	}
	index := map[string]int{}
	var queue []node
	var backwards [][]int32 // edges that are no outage, reversed
	var goals []int32
	found := explored{}
	visit := func(s *site, left int, from int, outage bool) {
		key := fmt.Sprint(left, s.key())
		id, seen := index[key]
		if !seen {
			id = len(index)
			index[key] = id
			queue = append(queue, node{s, left, key})
			backwards = append(backwards, nil)
		}
		if from >= 0 {
			found.transitions++
			if !outage {
				backwards[id] = append(backwards[id], int32(from))
			}
		}
	}
	visit(start, budget, -1, false)
	for id := 0; id < len(queue); id++ { //nolint:intrange // the queue grows meanwhile
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
		if goal(at.site, plan) {
			goals = append(goals, int32(id))
		}
		for cut := range len(plan.Steps) {
			after, some := at.site.clone(), *plan
			some.Steps = plan.Steps[:cut+1]
			if cut+1 < len(plan.Steps) { // killed before it wrote the status
				some.Conditions, some.Records = at.site.plane.Status.Conditions, at.site.plane.Status.Records
			}
			after.do(t, &some)
			visit(after, at.left, id, false)
			if cut+1 == len(plan.Steps) && fmt.Sprint(at.left, after.key()) == at.key {
				t.Fatalf("I6: writes and changes nothing by it: %s\n%s", plan.Steps[cut].Why, at.site.describe())
			}
		}
		if len(plan.Steps) == 0 && !at.site.planeGone {
			after := at.site.clone()
			after.do(t, plan)
			visit(after, at.left, id, false)
		}
		for i, w := range at.site.workloads() {
			for j := range at.site.moves(w) {
				after := at.site.clone()
				after.moves(after.workloads()[i])[j]()
				visit(after, at.left, id, false)
			}
		}
		for _, o := range outages {
			if after := at.site.clone(); o.heals(after) {
				visit(after, at.left, id, false)
			}
			if after := at.site.clone(); at.left > 0 && o.strikes(after) {
				visit(after, at.left-1, id, true)
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
		for key, id := range index {
			if id == dead {
				t.Fatalf("state %d of %d has no way to the desired end:\n%s", dead, len(queue), strings.ReplaceAll(key, "|", "\n"))
			}
		}
	}
	return found
}

// small is the site that is explored: two models that have just got their flags, two pods of Stargate, two of the
// gateway, of each at most one in termination at a time.
func small(t testing.TB, kind string) *site {
	s := newSite(plain("a"), plain("b"))
	s.changed, s.burst = time.Time{}, time.Time{}
	s.stargate.kind = kind
	s.plane.QuietPeriod, s.plane.GatewayWarmup, s.plane.WaveInterval = 0, 0, 0
	s.plane.ProgressDeadline = 1000 * time.Hour // time is no part of what is explored
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
	for _, end := range slices.Sorted(maps.Keys(ends)) {
		for _, kind := range []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
			t.Run(end+", "+kind, func(t *testing.T) {
				found := explore(t, ends[end].start(t, kind), ends[end].budget, ends[end].goal)
				t.Logf("explored %d states and %d transitions with up to %d outages", found.states, found.transitions, ends[end].budget)
			})
		}
	}
}
