package faults

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/test/fixtures"
)

// sideBySide is how many sites are gone through at once: what they mostly do is wait.
const sideBySide = 8

// stride is how many writes further on the operator is killed again.
const stride = 8

// sweep kills the operator at each of its writes in a course: a walk kills it at one of the first writes of every scenario,
// and from there on after every stride, until the scenario ends all the same. As many walks begin one write later each.
// What the controllers write side by side comes in no order: what all of these missed, the last two walks hit by name.
type sweep struct {
	*course
	// from is the first scenario of the course in which it is killed.
	from int

	mutex sync.Mutex
	// struck are the writes at which it was killed, by whether they were sent, and kills is how often, by scenario.
	struck map[bool]sets.Set[string]
	kills  []int
}

func newSweep(c *course, from int) *sweep {
	return &sweep{course: c, from: from, struck: map[bool]sets.Set[string]{false: {}, true: {}}, kills: make([]int, len(c.walk))}
}

var _ = Describe("An operator that is killed at any of its writes", func() {
	It("comes to the same end by the same rollouts when it is started again", func(ctx SpecContext) {
		begun := time.Now()
		sweeps := []*sweep{newSweep(forward, 0), newSweep(onward, 2)} // both begin with the same
		sites, running := errgroup.WithContext(ctx)
		sites.SetLimit(sideBySide)
		for _, s := range sweeps {
			for n := 1; n <= stride; n++ {
				sites.Go(func() error { return s.strike(running, nth(n), nth(stride+1), false) }) // the write that was not sent comes first
				sites.Go(func() error { return s.strike(running, nth(n), nth(stride), true) })
			}
		}
		Expect(sites.Wait()).To(Succeed())
		sites, running = errgroup.WithContext(ctx)
		for _, s := range sweeps {
			for after := range s.struck {
				if missed := s.missed(after); len(missed) > 0 {
					report(s.walk[s.from].name, "and later, not killed by number at %q (which were sent: %t)", sets.List(missed), after)
					at := each(missed)
					sites.Go(func() error { return s.strike(running, at, at, after) })
				}
			}
		}
		Expect(sites.Wait()).To(Succeed())
		kills := 0
		for _, s := range sweeps {
			for i := s.from; i < len(s.walk); i++ {
				kills += s.kills[i]
				report(s.walk[i].name, "%d writes, killed %d times", len(s.writes[i]), s.kills[i])
			}
			Expect(s.missed(false)).To(BeEmpty(), "never killed before these")
			Expect(s.missed(true)).To(BeEmpty(), "never killed after these")
		}
		report("killed", "%d times in %d walks or more, %s", kills, 2*stride*len(sweeps), time.Since(begun).Round(time.Second))
	})
})

// missed are the writes in the scenarios in which it is killed, at which it was not.
func (s *sweep) missed(after bool) sets.Set[string] {
	all := sets.New[string]()
	for _, writes := range s.writes[s.from:] {
		all.Insert(writes...)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return all.Difference(s.struck[after])
}

func (s *sweep) count(scenario int, after bool, write string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.kills[scenario]++
	s.struck[after].Insert(write)
}

// strike goes through the walk once, and kills the operator at a first write of every scenario, and again once it was
// started anew, where that comes to pass.
func (s *sweep) strike(ctx context.Context, first, again trigger, after bool) error {
	at, err := newSite(ctx, fixtures.Stargate{}, 1)
	if err != nil {
		return err
	}
	d := newDeath()
	m, err := startManager(d.wrap, at.namespace)
	if err != nil {
		return err
	}
	defer func() { m.kill() }()
	var killed []string
	for i := range s.walk {
		if i >= s.from {
			d.arm(first, after)
		}
		err := s.do(ctx, at, i, func() error {
			reached := make(chan error, 1)
			go func() { reached <- s.ended(ctx, at, i) }()
			for {
				select {
				case err := <-reached:
					return err
				case <-d.dead:
				}
				s.count(i, after, d.fatal)
				killed = append(killed, d.fatal)
				m.kill()
				d = newDeath()
				d.arm(again, after)
				if m, err = startManager(d.wrap, at.namespace); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return fmt.Errorf("killed at %q (which were sent: %t): %w", killed, after, err)
		}
	}
	return s.sameRollouts(ctx, at, len(s.walk)-1)
}

// report a figure, whatever the verbosity.
func report(name, format string, args ...any) {
	AddReportEntry(name, fmt.Sprintf(format, args...), ReportEntryVisibilityAlways)
}
