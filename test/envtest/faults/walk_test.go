package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

// scenario is something that people ask of a site, from where the one before it ended.
type scenario struct {
	name string
	act  func(context.Context, *site) error
	// done tells what is missing until nobody waits for anything any more.
	done func([]client.Object) string
}

var settled = has("Ready=True", "Ready=True")

// The scenarios.
var (
	install = scenario{"install", func(ctx context.Context, s *site) error {
		return admin.Create(ctx, s.plane(v1alpha1.KindDeployment))
	}, settled}
	enable = scenario{"enable", func(ctx context.Context, s *site) error {
		return admin.Create(ctx, s.policy(models(true, 4)...))
	}, settled}
	withdraw = scenario{"withdraw", func(ctx context.Context, s *site) error {
		return s.repolicy(ctx, models(false, 4))
	}, settled}
	failRevision = scenario{"failed revision", func(ctx context.Context, s *site) error {
		if err := s.breakNewFiles(ctx); err != nil {
			return err
		}
		return s.repolicy(ctx, models(true, 5))
	}, func(objects []client.Object) string {
		return strings.TrimSpace(has("Stalled=True", "Programmed=False")(objects) + " " + workloadsComplete(objects))
	}}
	tune = scenario{"tune", func(ctx context.Context, s *site) error {
		s.repair()
		return s.repolicy(ctx, models(true, 6))
	}, settled}
	remove = scenario{"delete", func(ctx context.Context, s *site) error {
		return admin.Delete(ctx, s.plane(v1alpha1.KindDeployment))
	}, func(objects []client.Object) string {
		for _, o := range objects {
			if plane, ok := o.(*v1alpha1.RoutingPlane); ok {
				return "the plane is there: " + plane.Name
			}
		}
		return has("", "Accepted=False")(objects)
	}}
)

// walk is the life of a site: each scenario begins where the one before it ended.
type walk []scenario

// Flags come and go again, and a plane goes through failure to its end.
var (
	thereAndBack = walk{install, enable, withdraw}
	toTheEnd     = walk{install, enable, failRevision, tune, remove}
)

// rolls waits until a workload does.
func rolls(objects []client.Object) string {
	if workloadsComplete(objects) == "" {
		return "nothing rolls"
	}
	return ""
}

func workloadsComplete(objects []client.Object) string {
	for _, o := range objects {
		if d, ok := o.(*appsv1.Deployment); ok && !fixtures.RolledOut(d) {
			return d.Name + " rolls"
		}
	}
	return ""
}

// course is what a walk without any fault was like.
type course struct {
	walk walk
	// writes of each scenario, states after it, and what had been given to workloads by then.
	writes [][]string
	states []state
	given  [][]string
}

// undisturbed goes through the walk once, to count.
func undisturbed(ctx context.Context, walk walk) (*course, error) {
	s, err := newSite(ctx, fixtures.Stargate{}, 1)
	if err != nil {
		return nil, err
	}
	d := newDeath()
	m, err := startManager(d.wrap, s.namespace)
	if err != nil {
		return nil, err
	}
	defer m.cancel()
	c := &course{walk: walk}
	for i := range walk {
		d.arm(nil, false)
		if err := c.do(ctx, s, i, func() error { return s.settle(ctx, walk[i].done) }); err != nil {
			return nil, err
		}
		if err := quiet(ctx, s, d); err != nil {
			return nil, err
		}
		if err := recorded.catchUp(ctx, s.namespace); err != nil {
			return nil, err
		}
		objects, _ := recorded.objects(s.namespace)
		c.writes = append(c.writes, d.written())
		c.states = append(c.states, stateOf(objects))
		c.given = append(c.given, judged(recorded.changes(s.namespace)).given)
	}
	if err := m.stop(); err != nil {
		return nil, err
	}
	_, err = s.close(ctx)
	return c, err
}

// do the scenario and wait for its end. Where that does not come, the error also says what was broken on the way.
func (c *course) do(ctx context.Context, s *site, scenario int, wait func() error) error {
	err := c.walk[scenario].act(ctx, s)
	if err == nil {
		err = wait()
	}
	if err == nil {
		return nil
	}
	_, broken := s.close(context.WithoutCancel(ctx))
	return errors.Join(fmt.Errorf("%s: %w", c.walk[scenario].name, err), broken)
}

// ended waits until the site is as an undisturbed one is after the scenario.
func (c *course) ended(ctx context.Context, s *site, scenario int) error {
	return s.await(ctx, func(objects []client.Object) string { return stateOf(objects).differs(c.states[scenario]) })
}

// sameRollouts judges the site and closes it: no invariant was broken, and what was given to workloads up to the scenario
// is what an undisturbed operator gives.
func (c *course) sameRollouts(ctx context.Context, s *site, scenario int) error {
	j, err := s.close(ctx)
	if err == nil && !slices.Equal(j.given, c.given[scenario]) {
		err = fmt.Errorf("namespace %s: the rollouts were\n%v and not\n%v", s.namespace, j.given, c.given[scenario])
	}
	return err
}

// quiet waits until nothing is ending and, look by look, nothing was written for a while: longer than any interval of the
// site's plane, on however busy a machine.
func quiet(ctx context.Context, s *site, d *death) error {
	const looks = 70
	written, calm, objection := 0, 0, ""
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		objects, _ := recorded.objects(s.namespace)
		calm, objection = calm+1, ending(objects)
		if now := len(d.written()); now != written || objection != "" {
			written, calm = now, 0
		}
		return calm == looks, nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s: waiting until nothing is written any more: %w: %d writes; %s", s.namespace, err, written, objection)
	}
	return nil
}

// ending tells what is, or is still in the plane's status.
func ending(objects []client.Object) string {
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Pod:
			if o.DeletionTimestamp != nil {
				return o.Name + " is ending"
			}
		case *v1alpha1.RoutingPlane:
			workloads := o.Status.Gateways
			if o.Status.Stargate != nil {
				workloads = append(slices.Clone(workloads), *o.Status.Stargate)
			}
			for i := range workloads {
				if slices.ContainsFunc(workloads[i].Pods, func(c v1alpha1.PodCount) bool { return c.Terminating > 0 }) {
					return "the plane's status tells of ending pods of " + workloads[i].Name
				}
			}
		}
	}
	return ""
}
