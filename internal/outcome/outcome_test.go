package outcome_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/outcome"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

func model(queued int64, flag bool) v1alpha1.Model {
	m := v1alpha1.Model{Name: "a", AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.PulsarWaitAndWiden, MaxQueued: &queued}}
	if flag {
		m.LastClusterAffinity = new(true)
	}
	return m
}

// file as it is rendered for the generation, with its flags on or off.
func file(t *testing.T, m v1alpha1.Model, on bool, g release.Generation) *lbconfig.File {
	t.Helper()
	c := render.Config{Models: []v1alpha1.Model{m}}
	flags := render.Flags{}
	if on {
		flags = render.Desired(c)
	}
	rendered, err := render.LBConfig(c, flags, g)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := lbconfig.Read(rendered.Data, release.Newest)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestAModelIsWhatEveryPodRuns(t *testing.T) {
	pods := func(revisions ...string) []rollout.Pod {
		var list []rollout.Pod
		for _, r := range revisions {
			list = append(list, rollout.Pod{Template: rollout.Template{Revision: r, ReadsFile: true}})
		}
		return list
	}
	for name, test := range map[string]struct {
		wanted     v1alpha1.Model
		generation release.Generation
		template   string
		pods       []rollout.Pod
		unread     bool
		held       *v1alpha1.Model

		state     v1alpha1.ModelState
		effective bool
	}{
		"all pods run it":                                 {wanted: model(1, false), template: "one", pods: pods("one", "one"), state: v1alpha1.ModelProgrammed},
		"one pod runs another":                            {wanted: model(1, false), template: "one", pods: pods("one", "two"), state: v1alpha1.ModelPending},
		"one pod has none of the operator's":              {wanted: model(1, false), template: "one", pods: pods("one", ""), state: v1alpha1.ModelPending},
		"one pod's revision is gone":                      {wanted: model(1, false), template: "one", pods: pods("one", "gone"), state: v1alpha1.ModelPending},
		"a terminating pod runs another":                  {wanted: model(1, false), template: "one", pods: append(pods("one"), rollout.Pod{Terminating: true, Template: rollout.Template{Revision: "two", ReadsFile: true}}), state: v1alpha1.ModelProgrammed},
		"without a pod the template counts":               {wanted: model(1, false), template: "one", state: v1alpha1.ModelProgrammed},
		"a new template, and no pod of it":                {wanted: model(1, false), template: "two", pods: pods("one"), state: v1alpha1.ModelPending},
		"the file is not read":                            {wanted: model(1, false), template: "one", pods: pods("one"), unread: true, state: v1alpha1.ModelPending},
		"the flag is on in all":                           {wanted: model(1, true), template: "flagged", pods: pods("flagged"), state: v1alpha1.ModelProgrammed, effective: true},
		"the flag is on in some":                          {wanted: model(1, true), template: "flagged", pods: pods("flagged", "one"), state: v1alpha1.ModelFlagHeld},
		"the flag is on in none":                          {wanted: model(1, true), template: "one", pods: pods("one"), state: v1alpha1.ModelFlagHeld},
		"the flag is on and not wanted":                   {wanted: model(1, false), template: "flagged", pods: pods("flagged"), state: v1alpha1.ModelPending},
		"the flag is on and the entry another":            {wanted: model(2, true), template: "flagged", pods: pods("flagged"), state: v1alpha1.ModelPending, effective: true},
		"the release does not know the flag":              {wanted: model(1, true), generation: release.V2, template: "one", pods: pods("one"), state: v1alpha1.ModelLimited},
		"something else is being rolled out":              {wanted: model(2, false), held: new(model(1, false)), template: "one", pods: pods("one"), state: v1alpha1.ModelHeld},
		"something else, with this model as it is wanted": {wanted: model(1, false), held: new(model(1, false)), template: "one", pods: pods("one"), state: v1alpha1.ModelProgrammed},
		"something else, without the wanted flag":         {wanted: model(1, true), held: new(model(1, false)), template: "one", pods: pods("one"), state: v1alpha1.ModelFlagHeld},
	} {
		t.Run(name, func(t *testing.T) {
			generation := test.generation
			if generation == release.V0 {
				generation = release.V3
			}
			world := &rollout.World{
				Config: render.Config{Models: []v1alpha1.Model{test.wanted}},
				Revisions: map[string]rollout.Revision{
					"one":     {File: file(t, model(1, true), false, release.V3)},
					"two":     {File: file(t, model(2, true), false, release.V3)},
					"flagged": {File: file(t, model(1, true), true, release.V3)},
				},
			}
			world.Stargate.Template = rollout.Template{Revision: test.template, ReadsFile: !test.unread, Release: release.Release{Generation: generation}}
			world.Stargate.Pods = test.pods
			plan := &rollout.Plan{Config: world.Config, Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionFlagsReady, Status: metav1.ConditionFalse, Reason: "Warmup"},
				{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Message: "it failed"},
			}}
			if test.held != nil {
				plan.Config = render.Config{Models: []v1alpha1.Model{*test.held}}
			}
			judge, err := outcome.New(world, plan)
			if err != nil {
				t.Fatal(err)
			}
			got := judge.Model("a")
			if got.State != test.state || got.EffectiveLastClusterAffinity != test.effective {
				t.Errorf("got %+v", got)
			}
			if got.LastClusterAffinity != (test.wanted.LastClusterAffinity != nil) {
				t.Errorf("the flag that is asked for: %v", got.LastClusterAffinity)
			}
			if (got.Message == "") != (got.State == v1alpha1.ModelProgrammed) {
				t.Errorf("message %q in state %s", got.Message, got.State)
			}
		})
	}
}

func TestAFlagOfARequestAlgorithmCountsLikeTheModelsOwn(t *testing.T) {
	m := model(1, false)
	m.RequestAlgorithms = []v1alpha1.RequestAlgorithm{{AlgorithmSettings: v1alpha1.AlgorithmSettings{
		Algorithm: v1alpha1.WaitAndWiden, CacheAffinityBackendSelectionCount: ptr.To[int64](1), LastClusterAffinity: new(true)}}}
	world := &rollout.World{
		Config:    render.Config{Models: []v1alpha1.Model{m}},
		Revisions: map[string]rollout.Revision{"off": {File: file(t, m, false, release.V3)}, "on": {File: file(t, m, true, release.V3)}},
	}
	for revision, state := range map[string]v1alpha1.ModelState{"off": v1alpha1.ModelFlagHeld, "on": v1alpha1.ModelProgrammed} {
		world.Stargate.Template = rollout.Template{Revision: revision, ReadsFile: true, Release: release.Release{Generation: release.V3}}
		judge, err := outcome.New(world, &rollout.Plan{Config: world.Config})
		if err != nil {
			t.Fatal(err)
		}
		if got := judge.Model("a"); got.State != state || !got.LastClusterAffinity || got.EffectiveLastClusterAffinity != (revision == "on") {
			t.Errorf("%s: got %+v", revision, got)
		}
	}
}
