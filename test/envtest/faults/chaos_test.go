package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/routing-operator/routing-operator/test/fixtures"
)

const (
	stormyWalks = 6
	// storm is how long requests fail in each scenario, unless it comes to its end before.
	storm = 4 * time.Second
)

var _ = Describe("An operator whose requests fail at random", func() {
	It("comes to the same end by the same rollouts once they succeed", func(ctx SpecContext) {
		begun := time.Now()
		var walks errgroup.Group
		walks.SetLimit(sideBySide)
		var mutex sync.Mutex
		happened, ended := map[string]int{}, 0
		for i := range uint64(stormyWalks) {
			walks.Go(func() error {
				w := newWeather(seed+i, 0.1, 200*time.Millisecond)
				inStorm, err := courses()[i%2].walkThrough(ctx, w)
				if err != nil {
					return fmt.Errorf("FAULTS_SEED=%d, walk %d: %w", seed, i, err)
				}
				mutex.Lock()
				defer mutex.Unlock()
				for what, n := range w.happened {
					happened[what] += n
				}
				ended += inStorm
				return nil
			})
		}
		Expect(walks.Wait()).To(Succeed())
		report("seed", "%d", seed)
		total := 0
		for _, what := range slices.Sorted(maps.Keys(happened)) {
			report(what, "%d times", happened[what])
			total += happened[what]
		}
		report("faults", "%d in %d walks in %s; %d scenarios came to their end before the faults did",
			total, stormyWalks, time.Since(begun).Round(time.Second), ended)
		Expect(len(happened)).To(BeNumerically(">", len(misfortunes)), "faults of every kind, and watches that end")
	})
})

// walkThrough goes through the walk with the weather bad at the beginning of every scenario, and returns in how many the
// end was reached while it was.
func (c *course) walkThrough(ctx context.Context, w *weather) (inStorm int, err error) {
	s, err := newSite(ctx, fixtures.Stargate{}, 1)
	if err != nil {
		return 0, err
	}
	w.clear.Store(true) // a process that cannot start is started again
	m, err := startManager(w.wrap, s.namespace)
	if err != nil {
		return 0, err
	}
	defer m.cancel()
	for i := range c.walk {
		w.clear.Store(false)
		err := c.do(ctx, s, i, func() error {
			stormy, cancel := context.WithTimeout(ctx, storm)
			defer cancel()
			if c.ended(stormy, s, i) == nil {
				inStorm++
			}
			w.clear.Store(true)
			return c.ended(ctx, s, i)
		})
		if err != nil {
			return 0, err
		}
	}
	if err := m.stop(); err != nil {
		return 0, err
	}
	return inStorm, c.sameRollouts(ctx, s, len(c.walk)-1)
}
