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
type sweep struct {
	*course
	// from is the first scenario of the course in which it is killed.
	from int

	mutex sync.Mutex
	// struck are the writes before and after which it was killed, by scenario, and kills how often it was.
	struck []sets.Set[string]
	kills  []int
}

func newSweep(c *course, from int) *sweep {
	s := &sweep{course: c, from: from, kills: make([]int, len(c.walk))}
	for range c.walk {
		s.struck = append(s.struck, sets.New[string]())
	}
	return s
}

var _ = Describe("An operator that is killed at any of its writes", func() {
	It("comes to the same end by the same rollouts when it is started again", func(ctx SpecContext) {
		begun := time.Now()
		sweeps := []*sweep{newSweep(forward, 0), newSweep(onward, 2)} // both begin with the same
		sites, running := errgroup.WithContext(ctx)
		sites.SetLimit(sideBySide)
		for _, s := range sweeps {
			for n := 1; n <= stride; n++ {
				for _, after := range []bool{false, true} {
					sites.Go(func() error {
						if err := s.strike(running, n, after); err != nil {
							return fmt.Errorf("killed at write %d and every %d further on (which were sent: %t): %w", n, stride, after, err)
						}
						return nil
					})
				}
			}
		}
		Expect(sites.Wait()).To(Succeed())
		kills, struck, writes := 0, sets.New[string](), sets.New[string]()
		for _, s := range sweeps {
			for i := s.from; i < len(s.walk); i++ {
				kills += s.kills[i]
				report(s.walk[i].name, "%d writes, killed %d times", len(s.writes[i]), s.kills[i])
				struck, writes = struck.Union(s.struck[i]), writes.Insert(s.writes[i]...)
			}
		}
		// What the controllers write side by side comes in no order, so that a write may be hit in one way only.
		for write := range writes {
			Expect(struck).To(Or(HaveKey("before "+write), HaveKey("after "+write)))
		}
		report("killed", "%d times in %d walks, %s", kills, 2*stride*len(sweeps), time.Since(begun).Round(time.Second))
	})
})

func (s *sweep) count(scenario int, after bool, write string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.kills[scenario]++
	s.struck[scenario].Insert(map[bool]string{false: "before ", true: "after "}[after] + write)
}

// strike goes through the walk once, and kills the operator at its nth write of every scenario and from there on.
func (s *sweep) strike(ctx context.Context, n int, after bool) error {
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
	again := stride
	if !after {
		again++ // the write that was not sent comes first
	}
	for i := range s.walk {
		if i >= s.from {
			d.arm(n, after)
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
				m.kill()
				d = newDeath()
				d.arm(again, after)
				if m, err = startManager(d.wrap, at.namespace); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return s.sameRollouts(ctx, at, len(s.walk)-1)
}

// report a figure, whatever the verbosity.
func report(name, format string, args ...any) {
	AddReportEntry(name, fmt.Sprintf(format, args...), ReportEntryVisibilityAlways)
}
