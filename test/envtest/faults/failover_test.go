package faults

import (
	"context"
	"net/http"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/routing-operator/routing-operator/test/fixtures"
)

var _ = Describe("Two operators at once", func() {
	It("roll nothing out twice while both believe that they lead and one of them sees everything late", func(ctx SpecContext) {
		var walks errgroup.Group
		for _, c := range courses() {
			walks.Go(func() error { return c.byTwo(ctx, foggy(seed, 400*time.Millisecond)) })
		}
		Expect(walks.Wait()).To(Succeed())
	})

	It("roll nothing out twice when one wakes up that had been held up until the other took over", func(ctx SpecContext) {
		s, err := newSite(ctx, fixtures.Stargate{}, 1)
		Expect(err).NotTo(HaveOccurred())
		leader, err := startProcess(ctx, s.namespace)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error {
			_ = syscall.Kill(leader.PID(), syscall.SIGCONT) // where it is still held up
			return leader.Stop()
		})
		Expect(install.act(ctx, s)).To(Succeed())
		Expect(forward.ended(ctx, s, 0)).To(Succeed(), "there is one that leads")
		standby, err := startProcess(ctx, s.namespace)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(standby.Stop)

		s.stuckIn(ctx, rollouts["the first flag"]) // so that it is held up before it has done everything
		Expect(syscall.Kill(leader.PID(), syscall.SIGSTOP)).To(Succeed())
		s.repair()
		Expect(forward.ended(ctx, s, 1)).To(Succeed(), "the other takes over")
		Expect(syscall.Kill(leader.PID(), syscall.SIGCONT)).To(Succeed())
		Expect(withdraw.act(ctx, s)).To(Succeed())
		Expect(forward.ended(ctx, s, 2)).To(Succeed())
		Eventually(func() error { return syscall.Kill(leader.PID(), 0) }).Should(MatchError(syscall.ESRCH), "it has found out, and ended")
		Expect(standby.Stop()).To(Succeed())
		Expect(forward.sameRollouts(ctx, s, 2)).To(Succeed())
	})
})

// byTwo goes through the walk with two operators, one of them in the weather. They may overwrite what the other one says
// in the status, and nothing else.
func (c *course) byTwo(ctx context.Context, w *weather) error {
	s, err := newSite(ctx, fixtures.Stargate{}, 1)
	if err != nil {
		return err
	}
	for _, wrap := range []func(http.RoundTripper) http.RoundTripper{unchanged, w.wrap} {
		m, err := startManager(wrap, s.namespace)
		if err != nil {
			return err
		}
		defer m.cancel()
	}
	for i := range c.walk {
		if err := c.do(ctx, s, i, func() error { return s.settle(ctx, c.walk[i].done) }); err != nil {
			return err
		}
	}
	return c.sameRollouts(ctx, s, len(c.walk)-1)
}
