package scale

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/test/envtest/operator"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

var _ = Describe("From a complete rollout", func() {
	It("the next step follows", func(ctx SpecContext) {
		reports := watchCompletions(ctx)
		before := mark()
		namespace, err := env.Namespace(ctx, "latency")
		Expect(err).NotTo(HaveOccurred())
		var models []v1alpha1.Model
		for i := range scale.waves {
			models = append(models, model(fmt.Sprintf("model-%d", i), true))
		}
		Expect(admin.Create(ctx, policy(namespace, "latency", "waves", models...))).To(Succeed()) // before the plane: no quiet period
		makePlane(ctx, namespace, "latency", func(p *v1alpha1.RoutingPlane) {
			p.Spec.Rollout.Waves = []intstr.IntOrString{intstr.FromInt32(1)}
		})
		Eventually(unsettled(ctx)).Should(Equal(allSettled))

		delays, err := reports.delays(changesIn(namespace, before))
		Expect(err).NotTo(HaveOccurred())
		Expect(len(delays)).To(BeNumerically(">=", scale.waves))
		slices.Sort(delays)
		report("from a complete rollout to the next", "%d steps: p50 %s, p90 %s, p99 %s, longest %s",
			len(delays), percentile(delays, 50), percentile(delays, 90), percentile(delays, 99), percentile(delays, 100))
	})
})

// completion is a generation of a Deployment that Kubernetes reports to be rolled out.
type completion struct {
	namespace, name string
	generation      int64
}

// completions watches Deployments beside the operator, and notes when each report arrives first.
type completions struct {
	mutex sync.Mutex
	seen  map[completion]time.Time
}

func watchCompletions(ctx context.Context) *completions {
	GinkgoHelper()
	c := &completions{seen: map[completion]time.Time{}}
	watching, err := admin.Watch(ctx, &appsv1.DeploymentList{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watching.Stop)
	go func() {
		for event := range watching.ResultChan() {
			arrived := time.Now()
			if d, ok := event.Object.(*appsv1.Deployment); ok && fixtures.RolledOut(d) {
				c.note(completion{d.Namespace, d.Name, d.Generation}, arrived)
			}
		}
	}()
	return c
}

func (c *completions) note(key completion, at time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, known := c.seen[key]; !known {
		c.seen[key] = at
	}
}

// delays are, for every change of a Deployment but the first, the time from the report that the one before was complete
// until the API server received the change.
func (c *completions) delays(changes []testenv.Write) ([]time.Duration, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	generations := map[string]int64{}
	var before completion
	var delays []time.Duration
	for i, change := range changes {
		if i > 0 {
			reported, ok := c.seen[before]
			if !ok {
				return nil, fmt.Errorf("%s came before %v was reported complete", change, before)
			}
			delays = append(delays, change.At.Sub(reported))
		}
		generations[change.Name]++
		before = completion{change.Namespace, change.Name, 1 + generations[change.Name]} // 1 is without the operator
	}
	return delays, nil
}

// changesIn are the operator's changes of Deployments in a namespace.
func changesIn(namespace string, since testenv.Mark) []testenv.Write {
	GinkgoHelper()
	writes, err := env.Writes(since, operator.UserAgent)
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(writes, func(w testenv.Write) bool {
		return w.Resource != "deployments" || w.Code != 200 || w.Namespace != namespace
	})
}

func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)].Round(time.Millisecond)
}
