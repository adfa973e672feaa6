package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/routing-operator/routing-operator/test/envtest/operator"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

// longestLife of a process from what people ask for to its end.
const longestLife = 2 * time.Second

// starting processes is done one by one.
var starting sync.Mutex

// startProcess runs cmd/manager for one namespace.
func startProcess(ctx context.Context, namespace string, more ...string) (*operator.Manager, error) {
	starting.Lock()
	defer starting.Unlock()
	return installed.Start(ctx, append([]string{"--webhook-port=-1", "--namespaces=" + namespace}, more...)...)
}

var _ = Describe("A process of the operator that is killed at any moment", func() {
	It("comes to the same end by the same rollouts when it is started again", func(ctx SpecContext) {
		begun := time.Now()
		var walks errgroup.Group
		killed := 0
		for i, c := range courses() {
			killed += len(c.walk)
			walks.Go(func() error {
				if err := c.killAtRandom(ctx, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
					return fmt.Errorf("FAULTS_SEED=%d, walk %d: %w", seed, i, err)
				}
				return nil
			})
		}
		Expect(walks.Wait()).To(Succeed())
		report("seed", "%d", seed)
		report("processes killed", "%d in %s", killed, time.Since(begun).Round(time.Second))
	})
})

// killAtRandom goes through the walk with real processes, and kills one in every scenario.
func (c *course) killAtRandom(ctx context.Context, draw *rand.Rand) error {
	s, err := newSite(ctx, fixtures.Stargate{}, 1)
	if err != nil {
		return err
	}
	m, err := startProcess(ctx, s.namespace, "--leader-elect=false")
	if err != nil {
		return err
	}
	for i := range c.walk {
		err := c.do(ctx, s, i, func() error {
			time.Sleep(time.Duration(draw.Int64N(int64(longestLife)))) // the moment is what is drawn
			if err := syscall.Kill(m.PID(), syscall.SIGKILL); err != nil {
				return fmt.Errorf("killing the operator: %w", err)
			}
			if m, err = startProcess(ctx, s.namespace, "--leader-elect=false"); err != nil {
				return err
			}
			return c.ended(ctx, s, i)
		})
		if err != nil {
			return err
		}
	}
	if err := m.Stop(); err != nil {
		return err
	}
	return c.sameRollouts(ctx, s, len(c.walk)-1)
}
