package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/routing-operator/routing-operator/internal/rollout"
)

func TestAQuietPeriodBeginsWithTheLastChangeThatWasSeen(t *testing.T) {
	const period = 5 * time.Second
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type sight struct {
		after       time.Duration
		fingerprint string
		isNew       bool
	}
	for name, test := range map[string]struct {
		sights            []sight
		changed, changing time.Duration
		never             bool
	}{
		"a process that starts knows of no change":    {sights: []sight{{0, "a", false}, {time.Second, "a", false}}, never: true},
		"a plane that is new has just changed":        {sights: []sight{{time.Second, "a", true}, {2 * time.Second, "a", true}}, changed: time.Second, changing: time.Second},
		"a change":                                    {sights: []sight{{0, "a", false}, {time.Second, "b", false}, {time.Minute, "b", false}}, changed: time.Second, changing: time.Second},
		"changes in a row are one burst":              {sights: []sight{{0, "a", false}, {time.Second, "b", false}, {5 * time.Second, "c", false}, {9 * time.Second, "d", false}}, changed: 9 * time.Second, changing: time.Second},
		"a change after quiet begins another":         {sights: []sight{{0, "a", false}, {time.Second, "b", false}, {7 * time.Second, "c", false}}, changed: 7 * time.Second, changing: 7 * time.Second},
		"a change back to what was is a change":       {sights: []sight{{0, "a", false}, {time.Second, "b", false}, {2 * time.Second, "a", false}}, changed: 2 * time.Second, changing: time.Second},
		"policies that come with a new plane are one": {sights: []sight{{0, "", true}, {time.Second, "a", false}}, changed: time.Second, changing: 0},
	} {
		t.Run(name, func(t *testing.T) {
			var q quiet
			for _, s := range test.sights {
				q.observe(s.fingerprint, start.Add(s.after), s.isNew, period)
			}
			if test.never {
				if !q.changed.IsZero() || !q.changing.IsZero() {
					t.Errorf("got %+v", q)
				}
				return
			}
			if q.changed.Sub(start) != test.changed || q.changing.Sub(start) != test.changing {
				t.Errorf("changed %s, changing %s", q.changed.Sub(start), q.changing.Sub(start))
			}
		})
	}
}

func TestTakingsAreCountedInARow(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	given := func(from, to string) []rollout.Step {
		return []rollout.Step{{Kind: rollout.StepApply, Revision: to,
			Workload: &rollout.Workload{Kind: "Deployment", Name: "w", Template: rollout.Template{Revision: from}}}}
	}
	m := &memory{given: map[string]string{}, taken: map[string]taking{}}
	for _, step := range []struct {
		what  string
		after time.Duration
		done  []rollout.Step
		times int
	}{
		{"the first revision is no taking", 0, given("", "a"), 0},
		{"nor is the next", time.Minute, given("a", "b"), 0},
		{"somebody took it out", time.Hour, given("", "b"), 1},
		{"and put another in", 2 * time.Hour, given("x", "b"), 2},
		{"a change of the operator's own in between", 3 * time.Hour, given("b", "c"), 2},
		{"long after", 5 * time.Hour, given("", "c"), 1},
		{"what was let go of is nobody's", 5 * time.Hour, []rollout.Step{{Kind: rollout.StepLetGo, Workload: given("", "")[0].Workload}}, 0},
		{"and begins anew", 6 * time.Hour, given("", "c"), 0},
	} {
		now, retry := start.Add(step.after), step.what
		m.remember(step.done, now, retry)
		got := m.taken["Deployment/w"]
		if got.times != step.times || got.last.Equal(now) && got.retry != retry {
			t.Errorf("%s: %+v, want %d", step.what, got, step.times)
		}
	}
}

func TestAnAnswerThatWasLostIsNoTaking(t *testing.T) {
	router := &rollout.Workload{Kind: "Deployment", Name: "w", Template: rollout.Template{Revision: "b"}}
	for name, test := range map[string]struct {
		failed error
		times  int
	}{
		"an answer that was lost":    {context.DeadlineExceeded, 0},
		"a conflict is an answer":    {errStale, 1},
		"so is what a webhook says":  {&refusedError{"WriteForbidden", errors.New("no")}, 1},
		"a server that has an error": {apierrors.NewInternalError(errors.New("etcd")), 0},
	} {
		m := &memory{given: map[string]string{"Deployment/w": "a"}, taken: map[string]taking{}}
		m.doubt(&rollout.Step{Kind: rollout.StepApply, Revision: "b", Workload: router}, test.failed)
		m.remember([]rollout.Step{{Kind: rollout.StepApply, Revision: "c", Workload: router}}, time.Unix(1, 0), "")
		if got := m.taken["Deployment/w"].times; got != test.times {
			t.Errorf("%s: %d takings, want %d", name, got, test.times)
		}
	}
}

func TestPoliciesThatNobodyLookedAtAreWaitedForWithABound(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	unknown := []types.NamespacedName{{Namespace: "nvcf", Name: "llama"}}
	m := &memory{}
	for _, pass := range []struct {
		after   time.Duration
		unknown []types.NamespacedName
		waits   bool
	}{
		{0, nil, false},
		{time.Minute, unknown, true},
		{time.Minute + policiesLongest - 1, unknown, true},
		{time.Minute + policiesLongest, unknown, false},
		{time.Hour, unknown, false},
		{time.Hour + 1, nil, false},
		{time.Hour + 2, unknown, true},
	} {
		if waits := m.awaits(pass.unknown, start.Add(pass.after)); waits != pass.waits {
			t.Errorf("after %s with %d unknown: got %t", pass.after, len(pass.unknown), waits)
		}
	}
}
