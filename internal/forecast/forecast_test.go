package forecast_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/forecast"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const (
	router  = "Deployment/router"
	gateway = "Deployment/gateway"
)

func plane(change ...func(*v1alpha1.RoutingPlaneSpec)) *v1alpha1.RoutingPlane {
	p := &v1alpha1.RoutingPlane{}
	p.Name, p.Namespace = "llm", "nvcf"
	p.Spec.Stargate.WorkloadRef = v1alpha1.WorkloadReference{Kind: "Deployment", Name: "router"}
	p.Spec.Gateways = []v1alpha1.GatewaySpec{{WorkloadRef: v1alpha1.WorkloadReference{Kind: "Deployment", Name: "gateway"}}}
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}

func of(g release.Generation) release.Release {
	return release.Release{Version: g.String(), Generation: g}
}

// config of models, each with a flag where its name ends in "+".
func config(models ...string) render.Config {
	c := render.Config{DefaultAlgorithm: v1alpha1.PowerOfN}
	for _, model := range models {
		m := v1alpha1.Model{Name: strings.TrimSuffix(model, "+"), AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.PulsarWaitAndWiden}}
		if strings.HasSuffix(model, "+") {
			m.LastClusterAffinity = new(true)
		}
		c.Models = append(c.Models, m)
	}
	return c
}

func site(t *testing.T, p *v1alpha1.RoutingPlane, running render.Config, g release.Generation) *rollout.World {
	t.Helper()
	w, err := forecast.Site(p, running, of(g), now)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func forecastOf(t *testing.T, w *rollout.World) *forecast.Forecast {
	t.Helper()
	f, err := forecast.Make(w, forecast.ByAssumption)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// story tells the events as "after takes workload" or "after takes: wait".
func story(f *forecast.Forecast) []string {
	var lines []string
	for _, e := range f.Events {
		if e.Workload == "" {
			lines = append(lines, fmt.Sprintf("%s %s: %s", e.After, e.Takes, e.Why))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", e.After, e.Takes, e.Workload))
	}
	return lines
}

func TestAForecastTellsEveryRolloutInItsOrder(t *testing.T) {
	for name, test := range map[string]struct {
		plane    *v1alpha1.RoutingPlane
		from, to render.Config
		release  release.Generation
		want     []string
		blocked  string
		stage    v1alpha1.Stage
	}{
		"nothing where nothing changes": {plane(), config("a", "b+"), config("a", "b+"), release.V3, nil, "", v1alpha1.StageSettled},
		"one rollout for all changes of the base": {
			plane(), config("a"), config("b", "c"), release.V1, []string{"0s 4m30s " + router}, "", v1alpha1.StageSettled},
		"the whole way to a first flag": {
			plane(), config("a", "b", "c"), config("a+", "b+", "c+", "d"), release.V3,
			[]string{
				"0s 4m30s " + router, "4m30s 4m30s " + gateway, "9m0s 10m0s: the gateways' memory to fill",
				"19m0s 4m30s " + router, "23m30s 5m0s: spec.rollout.waveInterval since wave 1 (then: wave 2: lastClusterAffinity of b, c)", "28m30s 4m30s " + router,
			}, "", v1alpha1.StageSettled},
		"waves and waits as the plane has them": {
			plane(func(s *v1alpha1.RoutingPlaneSpec) {
				s.LastCluster.TTL = &metav1.Duration{Duration: time.Minute}
			}), config("a+"), config("a+", "b+"), release.V3,
			[]string{"0s 4m30s " + router, "4m30s 5m0s: spec.rollout.waveInterval since wave 1 (then: wave 2: lastClusterAffinity of b)", "9m30s 4m30s " + router}, "", v1alpha1.StageSettled},
		"flags go before the memory goes": {
			plane(), config("a+"), config("a"), release.V3, []string{"0s 4m30s " + router, "4m30s 4m30s " + gateway}, "", v1alpha1.StageSettled},
		"no flag where the release does not know it": {
			plane(), config("a"), config("a+"), release.V2, nil, "", v1alpha1.StageSettled},
		"no flag without a gateway": {
			plane(func(s *v1alpha1.RoutingPlaneSpec) { s.Gateways = nil }), config("a"), config("a+"), release.V3, nil, "", v1alpha1.StageSettled},
		"what a paused plane would do": {
			plane(func(s *v1alpha1.RoutingPlaneSpec) { s.Rollout.Paused = true }), config("a"), config("b"), release.V1, []string{"0s 4m30s " + router}, "", v1alpha1.StageSettled},
	} {
		t.Run(name, func(t *testing.T) {
			w := site(t, test.plane, test.from, test.release)
			w.Config = test.to
			f := forecastOf(t, w)
			if got := story(f); !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if f.Blocked != test.blocked || f.Stage != test.stage {
				t.Errorf("ends in %s, blocked by %q", f.Stage, f.Blocked)
			}
		})
	}
}

func TestAForecastChangesNothingOfTheWorld(t *testing.T) {
	w := site(t, plane(), config("a"), release.V3)
	w.Config = config("a+")
	first, again := forecastOf(t, w), forecastOf(t, w)
	if !slices.Equal(story(first), story(again)) || len(first.Events) == 0 {
		t.Errorf("first\n%s\nthen\n%s", strings.Join(story(first), "\n"), strings.Join(story(again), "\n"))
	}
}

func TestAForecastSaysWhatOnlyAPersonBrings(t *testing.T) {
	w := site(t, plane(), config("a"), release.V3)
	w.Stargate.Template.ReadsFile = false
	w.Stargate.Template.Unread.Path = "/etc/llm-request-router/lb-config.json"
	w.Config = config("a+")
	f := forecastOf(t, w)
	if !strings.Contains(f.Blocked, "points at /etc/llm-request-router/lb-config.json") {
		t.Errorf("blocked by %q", f.Blocked)
	}
	w.Stargate.Hold = "is paused (spec.paused)"
	w.Config = config("b")
	if f := forecastOf(t, w); !strings.Contains(f.Blocked, "is paused (spec.paused)") || len(f.Events) > 0 {
		t.Errorf("blocked by %q after %v", f.Blocked, story(f))
	}
}

func TestARolloutThatIsUnderWayIsFinishedFirst(t *testing.T) {
	w := site(t, plane(), config("a"), release.V1)
	w.Stargate.RolledOut = false
	w.Config = config("b")
	f := forecastOf(t, w)
	if want := []string{"0s 4m30s " + router, "4m30s 4m30s " + router}; !slices.Equal(story(f), want) {
		t.Errorf("got %q", story(f))
	}
	if got := f.Restarts(); got[router] != 2 || len(got) != 1 || f.Total != 9*time.Minute {
		t.Errorf("restarts %v in %s", got, f.Total)
	}
}

func TestAPlaneThatIsNewGetsItsFirstConfiguration(t *testing.T) {
	w := site(t, plane(), config(), release.V3)
	w.Stargate.Template.Revision, w.Stargate.Template.Touched, w.Stargate.Managed = "", false, false
	w.Revisions = nil
	w.Config = config("a")
	f := forecastOf(t, w)
	if len(f.Events) != 1 || !strings.HasPrefix(f.Events[0].Why, "first configuration") || f.Events[0].Pods != 3 {
		t.Errorf("got %+v", f.Events)
	}
}

func TestTheEstimateIsFromTheWorkloadsOwnPods(t *testing.T) {
	w := site(t, plane(), config("a"), release.V3)
	for i, took := range []time.Duration{70 * time.Second, 20 * time.Second, 90 * time.Second} {
		w.Stargate.Pods[i].Created, w.Stargate.Pods[i].ReadySince = now.Add(-time.Hour), now.Add(-time.Hour+took)
	}
	w.Gateways[0].Pods = nil
	takes := forecast.ByHistory(w)
	if got := takes(&w.Stargate); got != 3*70*time.Second {
		t.Errorf("the median of three pods, three times: got %s", got)
	}
	if got := takes(&w.Gateways[0]); got != 3*forecast.Assumed {
		t.Errorf("without a pod: got %s", got)
	}
}

func TestAForecastHasThePreflightsBeforeTheRollouts(t *testing.T) {
	w := site(t, plane(func(s *v1alpha1.RoutingPlaneSpec) { s.Rollout.Preflight = true }), config("a"), release.V1)
	w.Config = config("b")
	told := func() (whys []string) {
		for _, e := range forecastOf(t, w).Events {
			whys = append(whys, strings.SplitN(e.Why, ":", 2)[0]+" "+e.Workload)
		}
		return whys
	}
	want := []string{"preflight ", "new configuration " + router}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// One that is under way already, and exits so far.
	plan, err := rollout.Make(w)
	if err != nil {
		t.Fatal(err)
	}
	w.Preflight.Pods = []rollout.PreflightPod{{Pod: rollout.Pod{Name: "pod", Template: rollout.Template{Revision: plan.Steps[1].Revision}, Crash: &rollout.Crash{Restarts: 5}}}}
	if got := told(); !slices.Equal(got, want[1:]) {
		t.Errorf("with a pod that is there already: got %q, want %q", got, want[1:])
	}
}

func TestGatesPassInAForecastAndTakeTheirTime(t *testing.T) {
	p := plane(func(s *v1alpha1.RoutingPlaneSpec) {
		s.Rollout.WaveInterval = &metav1.Duration{}
		s.Rollout.Analysis = &v1alpha1.RolloutAnalysis{Interval: &metav1.Duration{Duration: 7 * time.Minute}, TooFewSamples: v1alpha1.TooFewSamplesHold}
	})
	w := site(t, p, config("a", "b"), release.V3)
	w.Config = config("a+", "b+")
	f := forecastOf(t, w)
	waits := 0
	for _, event := range f.Events {
		if event.Workload == "" && event.Takes == 7*time.Minute && strings.Contains(event.Why, "the metrics of wave") {
			waits++
		}
	}
	if waits != 2 || f.Blocked != "" || f.Stage != v1alpha1.StageSettled {
		t.Errorf("stage %s, blocked by %q, %d gates:\n%s", f.Stage, f.Blocked, waits, strings.Join(story(f), "\n"))
	}
}
