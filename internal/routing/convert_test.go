package routing

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
)

func settingsOf(t *testing.T, text string) *v1alpha1.AlgorithmSettings {
	t.Helper()
	var s v1alpha1.AlgorithmSettings
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// refusals is what makes a policy with the model unacceptable.
func refusals(m v1alpha1.Model) string {
	spec := &v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: "plane"}, Models: []v1alpha1.Model{m}}
	var lines []string
	for _, err := range validate.Policy(spec, field.NewPath("spec")) {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

func TestSettingsBecomeAConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		settings string
		want     Config
	}{
		"nothing set is the default": {`{"algorithm":"wait-and-widen"}`, DefaultConfig(v1alpha1.WaitAndWiden)},
		"all of power-of-n": {`{"algorithm":"power-of-n","requireCacheAffinityKey":true,"requireInputTokens":true,"maxInputWorkSeconds":"-1.5e0",
			"comparator":"num-requests-queued","sampleCount":64}`,
			edited(v1alpha1.PowerOfN, func(c *Config) {
				c.RequireAffinityKey, c.MaxInputWork, c.Comparator, c.SampleCount = true, -1.5, CompareQueued, 64
			})},
		"all of wait-and-widen": {`{"algorithm":"wait-and-widen","comparator":"utilization","seed":"s","cacheAffinityVirtualNodes":0,
			"cacheAffinityBackendSelectionCount":3,"cacheAffinityWaitMs":300,"cacheAffinityInputTokensScale":"0.1","maxQueueTimeFloorMs":1,
			"maxQueueTimeCeilMs":2,"ttftBucketSizeMs":0,"nextBucketUnlockFactor":"-2","n":0,"maxQueued":4,"ignoreQueueTime":true,
			"ignoreInputProcessingTime":true,"lastClusterAffinity":true}`,
			edited(v1alpha1.WaitAndWiden, func(c *Config) {
				c.Comparator, c.Seed, c.VirtualNodes, c.GroupSize, c.AffinityWait, c.AffinityScale = CompareUtilization, "s", 0, 3, 300*ms, 0.1
				c.QueueSLO, c.QueueTimeFloor, c.QueueTimeCeil, c.BucketSize, c.UnlockFactor, c.SampleN = true, ms, 2*ms, 0, -2, 0
				c.MaxQueued, c.IgnoreQueueTime, c.IgnoreInputTime, c.LastClusterAffinity = 4, true, true, true
			})},
		"all of pulsar": {`{"algorithm":"pulsar","seed":"","considerKvFreeTokens":true,"rendezvousWeight":"last-mean-input-tps"}`,
			edited(v1alpha1.Pulsar, func(c *Config) { c.ConsiderKVFree, c.Weight = true, WeightLastMeanInputTPS })},
		"what pulsar-wait-and-widen has beyond": {`{"algorithm":"pulsar-wait-and-widen","cacheAffinityVirtualNodes":7,"bandWidenIntervalMs":0,"fallbackMaxQueued":9}`,
			edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.VirtualNodes, c.BandWidenInterval, c.FallbackMaxQueued = 7, 0, 9 })},
		"one bound of the queue SLO is none": {`{"algorithm":"wait-and-widen","maxQueueTimeFloorMs":5}`,
			edited(v1alpha1.WaitAndWiden, func(c *Config) { c.QueueTimeFloor = 5 * ms })},
		"more milliseconds than a duration holds": {`{"algorithm":"wait-and-widen","cacheAffinityWaitMs":9223372036854775807}`,
			edited(v1alpha1.WaitAndWiden, func(c *Config) { c.AffinityWait = math.MaxInt64 / time.Millisecond * time.Millisecond })},
	} {
		t.Run(name, func(t *testing.T) {
			settings := settingsOf(t, test.settings)
			if got := ConfigFrom(settings); got != test.want {
				t.Errorf("the configuration is\n%+v, want\n%+v", got, test.want)
			}
			if errs := refusals(v1alpha1.Model{Name: model, AlgorithmSettings: *settings}); errs != "" {
				t.Errorf("the settings are no valid ones: %s", errs)
			}
		})
	}
}

func TestDefaultsAreStargates(t *testing.T) {
	want := Config{Algorithm: v1alpha1.PulsarWaitAndWiden, MaxInputWork: inf, Comparator: "ttft", SampleCount: 2, Weight: "max-input-tps", VirtualNodes: 150,
		GroupSize: 1, AffinityScale: 1, BandWidenInterval: FollowAffinityWait, BucketSize: 20 * ms, UnlockFactor: 0.25, SampleN: 2}
	if got := DefaultConfig(v1alpha1.PulsarWaitAndWiden); got != want {
		t.Errorf("the defaults are %+v, want %+v", got, want)
	}
	if got := DefaultConfig(v1alpha1.WaitAndWiden); got.GroupSize != 0 {
		t.Error("wait-and-widen has an affinity group by default")
	}
}

// The configuration half of the request's criteria on compatibility.
func TestTheFlagIsRefusedByFieldAndAlgorithmWhereThereIsNoSessionAwareMode(t *testing.T) {
	for _, algorithm := range validate.Algorithms() {
		for _, value := range []bool{true, false} {
			got := refusals(v1alpha1.Model{Name: model, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: algorithm, LastClusterAffinity: &value}})
			if slices.Contains(sessionAlgorithms, algorithm) {
				if got != "" {
					t.Errorf("%s, %v: the policy is refused: %s", algorithm, value, got)
				}
				continue
			}
			if want := fmt.Sprintf("lastClusterAffinity is not supported by algorithm %s;", algorithm); !strings.Contains(got, want) {
				t.Errorf("%s, %v: the refusal is %q, want it to say %q", algorithm, value, got, want)
			}
		}
	}
}

func TestAPlaneFromTheAPI(t *testing.T) {
	var stargate v1alpha1.StargateSpec
	if err := json.Unmarshal([]byte(`{"defaultAlgorithm":"random","requestAlgorithms":[{"algorithm":"pulsar","seed":"plane"}]}`), &stargate); err != nil {
		t.Fatal(err)
	}
	var models []v1alpha1.Model
	if err := json.Unmarshal([]byte(`[{"name":"meta/Llama","algorithm":"pulsar","seed":"own","requestAlgorithms":[{"algorithm":"round-robin"},{"algorithm":"power-of-n","sampleCount":3}]},
		{"name":"other","algorithm":"wait-and-widen"}]`), &models); err != nil {
		t.Fatal(err)
	}
	r, err := NewRouter(PlaneFrom(&stargate, models), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		model, method string
		want          Config
	}{
		{"meta/Llama", "", edited(v1alpha1.Pulsar, func(c *Config) { c.Seed = "own" })},
		{"meta/Llama", "power-of-n", edited(v1alpha1.PowerOfN, func(c *Config) { c.SampleCount = 3 })},
		{"other", "", DefaultConfig(v1alpha1.WaitAndWiden)},
		{"other", "pulsar", edited(v1alpha1.Pulsar, func(c *Config) { c.Seed = "plane" })},
		{"unlisted", "", DefaultConfig(v1alpha1.Random)},
	} {
		if got := callOf(t, r, Request{Model: test.model, Method: test.method}).Config(); got != test.want {
			t.Errorf("%s with method %q runs %+v, want %+v", test.model, test.method, got, test.want)
		}
	}
}
