package rollout

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// cutOff fails every write after the first n, as for a process that died there.
type cutOff struct {
	next http.RoundTripper
	left atomic.Int64
}

func (c *cutOff) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		c.next = next
		return c
	})
}

func (c *cutOff) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && c.left.Add(-1) < 0 {
		return nil, errors.New("cut off by the test")
	}
	return c.next.RoundTrip(request)
}

var _ = Describe("The operator", Serial, func() {
	It("goes on after a restart wherever it was stopped, without a rollout too many", func(ctx SpecContext) {
		operator.stop()
		DeferCleanup(func(ctx SpecContext) { operator = startManager(ctx, userAgent) })
		s := newSite(ctx, layout{})
		s.plane()
		policy := s.policy("llama", flagged("a"), flagged("b"))
		for n := int64(1); ; n += 2 {
			cut := &cutOff{}
			cut.left.Store(n)
			m := startManager(ctx, fmt.Sprintf("routing-operator-cut-%d", n), cut.wrap)
			done := func() bool {
				if cut.left.Load() < 0 {
					return true
				}
				if err := admin.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
					return false
				}
				plane := s.stored()
				return admin.Get(ctx, client.ObjectKeyFromObject(plane), plane) == nil && isReady(plane.Status.Conditions) && isReady(policy.Status.Conditions)
			}
			Eventually(done).Should(BeTrue())
			m.stop()
			if cut.left.Load() >= 0 {
				break
			}
		}
		Expect(s.flagsOn()).To(Equal([]string{"a", "b"}))
		Expect(s.counts()[1]).To(Equal(2), "one rollout of the gateway")
		Expect(s.counts()[0]).To(BeNumerically("<=", 4), "the router without a file, with the base (which may have been rolled out before the policy was accepted), with flags")
	})

	It("does not roll out twice while two of it are at work", func(ctx SpecContext) {
		other := startManager(ctx, "routing-operator-second")
		defer other.stop()
		s := newSite(ctx, layout{})
		s.plane()
		s.settled()
		before := s.counts()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{2, 1}))
	})
})

func isReady(conditions []metav1.Condition) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue
	})
}
