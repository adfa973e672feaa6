package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

const (
	patience = time.Minute // for one thing to come about
	interval = 50 * time.Millisecond
)

// until polls for something to come about; seen says how far it is, for the error.
func until(ctx context.Context, what string, look func(context.Context) (done bool, seen string, err error)) error {
	var last string
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(context.Context) (bool, error) {
		done, seen, err := look(ctx) // not until the end of our patience, which would be all that is seen
		last = seen
		return done, err
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case wait.Interrupted(err):
		return fmt.Errorf("waited %s for %s; last seen: %s", patience, what, last)
	default:
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
}

// planeWatch sees every state that the plane goes through.
type planeWatch struct {
	entered func(v1alpha1.Stage) // called with each stage as it is entered

	mu     sync.Mutex
	latest *v1alpha1.RoutingPlane // nil while there is none
	stages []v1alpha1.Stage       // since the last call of take
}

// watchPlane watches until the context ends.
func watchPlane(ctx context.Context, c client.WithWatch, entered func(v1alpha1.Stage)) (*planeWatch, error) {
	watcher, err := c.Watch(ctx, &v1alpha1.RoutingPlaneList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("watching planes: %w", err)
	}
	w := &planeWatch{entered: entered}
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			if plane, ok := event.Object.(*v1alpha1.RoutingPlane); ok {
				w.see(event.Type, plane)
			}
		}
	}()
	return w, nil
}

func (w *planeWatch) see(event watch.EventType, plane *v1alpha1.RoutingPlane) {
	w.mu.Lock()
	before := w.stage()
	w.latest = plane
	if event == watch.Deleted {
		w.latest = nil
	}
	stage := w.stage()
	entered := stage != "" && stage != before
	if entered {
		w.stages = append(w.stages, stage)
	}
	w.mu.Unlock()
	if entered {
		w.entered(stage)
	}
}

func (w *planeWatch) stage() v1alpha1.Stage {
	if w.latest == nil {
		return ""
	}
	return w.latest.Status.Stage
}

// plane as it was last seen; nil where there is none.
func (w *planeWatch) plane() *v1alpha1.RoutingPlane {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// take returns the stages entered since the last call.
func (w *planeWatch) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, stage := range w.stages {
		names = append(names, string(stage))
	}
	w.stages = nil
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " → ")
}

// ready tells whether the conditions are about this generation, and Ready.
func ready(conditions []metav1.Condition, generation int64) bool {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == "True" && c.ObservedGeneration == generation
}

// settled waits until the plane and all policies are Ready. The plane is asked of the watch, so that no stage on the
// way is missed, when that has caught up.
func (s *story) settled(ctx context.Context) error {
	return until(ctx, "the plane and its policies to be Ready", func(ctx context.Context) (bool, string, error) {
		var policies v1alpha1.RoutingPolicyList
		if err := s.site.client.List(ctx, &policies, client.InNamespace(namespace)); err != nil {
			return false, "", err
		}
		for _, p := range policies.Items {
			if !ready(p.Status.Conditions, p.Generation) {
				return false, "policy " + p.Name + ": " + readyMessage(p.Status.Conditions), nil
			}
		}
		plane := &v1alpha1.RoutingPlane{}
		if err := s.site.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: planeName}, plane); err != nil {
			return false, "", err
		}
		seen := s.watch.plane()
		return seen != nil && seen.ResourceVersion == plane.ResourceVersion && ready(plane.Status.Conditions, plane.Generation),
			"plane: " + readyMessage(plane.Status.Conditions), nil
	})
}

// quiet waits until the last replaced pod has ended and the status and the events have said all that there is to say.
func (s *story) quiet(ctx context.Context) error {
	return until(ctx, "the last pod to end, and to be told of", func(ctx context.Context) (bool, string, error) {
		var events eventsv1.EventList
		if err := s.site.client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return false, "", err
		}
		plane := s.watch.plane()
		told := slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Regarding.UID == plane.UID && e.Reason == "StageChanged" && strings.HasPrefix(e.Note, "stage Settled") &&
				strings.HasSuffix(e.Note, plane.Status.Stargate.Revision)
		})
		counts := plane.Status.Stargate.Pods
		for i := range plane.Status.Gateways {
			counts = slices.Concat(counts, plane.Status.Gateways[i].Pods)
		}
		return told && !slices.ContainsFunc(counts, func(c v1alpha1.PodCount) bool { return c.Terminating > 0 }),
			fmt.Sprintf("pods %v, event seen: %t", counts, told), nil
	})
}

func readyMessage(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil {
		return fmt.Sprintf("Ready is %s, %s: %s", c.Status, c.Reason, c.Message)
	}
	return "no condition Ready"
}

// rollouts counts by the Deployments' own revision numbers, which their controller raises with each new template.
type rollouts struct{ stargate, gateway int }

func (r rollouts) String() string {
	return fmt.Sprintf("Stargate %d, gateway %d", r.stargate, r.gateway)
}

func (r rollouts) since(before rollouts) rollouts {
	return rollouts{r.stargate - before.stargate, r.gateway - before.gateway}
}

// rollouts so far, once the controller has seen the templates as they are.
func (s *story) rollouts(ctx context.Context) (count rollouts, err error) {
	for name, n := range map[string]*int{fixtures.Router: &count.stargate, fixtures.Gateway: &count.gateway} {
		if *n, err = s.revision(ctx, name); err != nil {
			return rollouts{}, err
		}
	}
	return count, nil
}

func (s *story) revision(ctx context.Context, name string) (n int, err error) {
	err = until(ctx, "Deployment "+name+" to be observed", func(ctx context.Context) (bool, string, error) {
		d := &appsv1.Deployment{}
		if err := s.site.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
			return false, "", err
		}
		n, _ = strconv.Atoi(d.Annotations["deployment.kubernetes.io/revision"])
		return n > 0 && d.Status.ObservedGeneration == d.Generation, fmt.Sprintf("generation %d, observed %d", d.Generation, d.Status.ObservedGeneration), nil
	})
	return n, err
}

// measure notes how many rollouts something takes, and through which stages the plane goes.
func (s *story) measure(ctx context.Context, step string, expected rollouts, stages string, do func(context.Context) error) error {
	before, err := s.rollouts(ctx)
	if err != nil {
		return err
	}
	s.watch.take()
	if err := do(ctx); err != nil {
		return err
	}
	after, err := s.rollouts(ctx)
	if err != nil {
		return err
	}
	s.checks.note(step+": rollouts", expected, after.since(before))
	s.checks.note(step+": stages", stages, s.watch.take())
	return nil
}

// truth shows what pods run as the stand-in knows it, and counts Stargate's pods by revision as the status does.
func (s *story) truth(ctx context.Context) (byRevision map[string]int32, err error) {
	var revisions corev1.ConfigMapList
	err = s.site.client.List(ctx, &revisions, client.InNamespace(namespace), client.MatchingLabels{"routing.nvcf.io/artefact": render.ArtefactStargate})
	if err != nil {
		return nil, fmt.Errorf("listing revisions: %w", err)
	}
	rows := [][]string{{"POD", "READ AT START", "SO IT HAS ON"}}
	byRevision = map[string]int32{}
	for _, pod := range s.site.kubelet.Pods(namespace) {
		switch {
		case pod.Terminating:
			continue
		case pod.Owner == "Deployment/"+fixtures.Gateway:
			rows = append(rows, []string{pod.Name, "variables", memoryOf(pod)})
		case pod.Owner == "Deployment/"+fixtures.Router:
			name := revisionOf(pod, revisions.Items)
			byRevision[name]++
			var flags []string
			for _, flag := range pod.Flags {
				flags = append(flags, flag.Model)
			}
			slices.Sort(flags)
			rows = append(rows, []string{pod.Name, name, cmp.Or(strings.Join(flags, ", "), "no flag")})
		}
	}
	s.screen.print("\n" + aligned(rows))
	return byRevision, nil
}

// revisionOf finds the revision whose bytes the pod has read.
func revisionOf(pod standin.Snapshot, revisions []corev1.ConfigMap) string {
	i := slices.IndexFunc(revisions, func(cm corev1.ConfigMap) bool {
		return pod.Running && cm.Data[render.LBConfigKey] == string(pod.File)
	})
	if i < 0 {
		return "nothing known"
	}
	return revisions[i].Name
}

func memoryOf(gateway standin.Snapshot) string {
	if !gateway.Memory {
		return "nothing"
	}
	return "its memory, for " + gateway.Env["STARGATE_LAST_CLUSTER_TTL"]
}

// forbidden counts the states in which a Stargate pod ran with a flag on beside a gateway pod that does not
// remember: every session would be taken for a new one.
func forbidden(states [][]standin.Snapshot) (n int) {
	for _, pods := range states {
		flagged := slices.ContainsFunc(pods, func(p standin.Snapshot) bool { return p.Running && len(p.Flags) > 0 })
		forgetful := slices.ContainsFunc(pods, func(p standin.Snapshot) bool {
			return p.Running && p.Kind == standin.Gateway && !p.Memory
		})
		if flagged && forgetful {
			n++
		}
	}
	return n
}

// writes of the operator since a mark, the leader's lease apart, and how many of them it had no right to.
func (s *story) writes(since testenv.Mark) (all, denied int, err error) {
	writes, err := s.site.env.Writes(since, "")
	for _, w := range writes {
		if w.User != operatorUser || w.ToLease() {
			continue
		}
		all++
		if w.Code == 403 {
			denied++
		}
	}
	return all, denied, err
}

// gone waits until the plane is.
func (s *story) gone(ctx context.Context) error {
	return until(ctx, "the plane to be gone", func(context.Context) (bool, string, error) {
		plane := s.watch.plane()
		if plane == nil {
			return true, "", nil
		}
		return false, readyMessage(plane.Status.Conditions), nil
	})
}

// answers waits until the API server reaches the webhook and trusts it: planes are refused as long as it does not.
func (s *story) answers(ctx context.Context) error {
	return until(ctx, "the webhook to answer", func(ctx context.Context) (bool, string, error) {
		probe := &v1alpha1.RoutingPlane{}
		probe.Namespace, probe.Name = "default", "probe"
		probe.Spec.Stargate.WorkloadRef = v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: "probe"}
		err := s.site.client.Create(ctx, probe, client.DryRunAll)
		return err == nil, fmt.Sprint(err), nil
	})
}
