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
			got, errs := ConfigFrom(settingsOf(t, test.settings), field.NewPath("spec"))
			if len(errs) > 0 || got != test.want {
				t.Errorf("the configuration is\n%+v, want\n%+v; errors %v", got, test.want, errs)
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

func TestTheFlagIsRefusedByNameOnAlgorithmsWithoutTheMode(t *testing.T) {
	for _, algorithm := range allAlgorithms {
		for _, value := range []bool{true, false} {
			_, errs := ConfigFrom(&v1alpha1.AlgorithmSettings{Algorithm: algorithm, LastClusterAffinity: &value}, field.NewPath("spec", "models").Index(0))
			var want string
			if !slices.Contains(sessionAlgorithms, algorithm) {
				want = fmt.Sprintf("spec.models[0].lastClusterAffinity: Invalid value: %v: lastClusterAffinity is not supported by algorithm %s; supported: wait-and-widen, pulsar-wait-and-widen", value, algorithm)
			}
			if got := join(errs); got != want {
				t.Errorf("%s, %v: the errors are %q, want %q", algorithm, value, got, want)
			}
		}
	}
}

func TestSettingsThatStargateRefuses(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"an alias":               {`{"algorithm":"powerOf2"}`, `m.algorithm: Unsupported value: "powerOf2": supported values: "power-of-n", "wait-and-widen", "round-robin", "random", "pulsar", "pulsar-wait-and-widen"`},
		"a comparator on PWW":    {`{"algorithm":"pulsar-wait-and-widen","comparator":"ttft"}`, `m.comparator: Invalid value: "ttft": comparator is not supported by algorithm pulsar-wait-and-widen; supported: power-of-n, wait-and-widen`},
		"an unknown comparator":  {`{"algorithm":"power-of-n","comparator":"TTFT"}`, `m.comparator: Unsupported value: "TTFT": supported values: "ttft", "queue-time", "input-work-seconds", "utilization", "num-requests-queued"`},
		"an unknown weight":      {`{"algorithm":"pulsar","rendezvousWeight":"tps"}`, `m.rendezvousWeight: Unsupported value: "tps": supported values: "max-input-tps", "last-mean-input-tps"`},
		"bands on WW, even of 0": {`{"algorithm":"wait-and-widen","bandWidenIntervalMs":0}`, `m.bandWidenIntervalMs: Invalid value: 0: bandWidenIntervalMs is not supported by algorithm wait-and-widen; supported: pulsar-wait-and-widen`},
		"a sample of none":       {`{"algorithm":"power-of-n","sampleCount":0}`, `m.sampleCount: Invalid value: 0: must be 1 to 64`},
		"a sample of 65":         {`{"algorithm":"power-of-n","sampleCount":65}`, `m.sampleCount: Invalid value: 65: must be 1 to 64`},
		"a negative wait":        {`{"algorithm":"wait-and-widen","cacheAffinityWaitMs":-1}`, `m.cacheAffinityWaitMs: Invalid value: -1: must be 0 to 9223372036854775807`},
		"a discount above 1":     {`{"algorithm":"wait-and-widen","cacheAffinityInputTokensScale":"1.01"}`, `m.cacheAffinityInputTokensScale: Invalid value: "1.01": must be 0 to 1`},
		"a number of no JSON":    {`{"algorithm":"wait-and-widen","nextBucketUnlockFactor":"00.5"}`, `m.nextBucketUnlockFactor: Invalid value: "00.5": must be a finite number as JSON writes it, such as "0.1"`},
		"null for a number":      {`{"algorithm":"wait-and-widen","nextBucketUnlockFactor":"null"}`, `m.nextBucketUnlockFactor: Invalid value: "null": must be a finite number as JSON writes it, such as "0.1"`},
		"an infinite number":     {`{"algorithm":"random","maxInputWorkSeconds":"1e999"}`, `m.maxInputWorkSeconds: Invalid value: "1e999": must be a finite number as JSON writes it, such as "0.1"`},
		"a ring beyond measure":  {`{"algorithm":"wait-and-widen","cacheAffinityVirtualNodes":65537}`, `m.cacheAffinityVirtualNodes: Invalid value: 65537: must be 0 to 65536`},
		"two faults are both said": {`{"algorithm":"random","seed":"s","maxInputWorkSeconds":"x"}`,
			`m.maxInputWorkSeconds: Invalid value: "x": must be a finite number as JSON writes it, such as "0.1"` + "\n" + `m.seed: Invalid value: "s": seed is not supported by algorithm random; supported: wait-and-widen, pulsar, pulsar-wait-and-widen`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, errs := ConfigFrom(settingsOf(t, test.settings), field.NewPath("m")); join(errs) != test.want {
				t.Errorf("the errors are\n%s, want\n%s", join(errs), test.want)
			}
		})
	}
}

func join(errs field.ErrorList) string {
	lines := make([]string, len(errs))
	for i, err := range errs {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

func TestAModelWithRequestAlgorithms(t *testing.T) {
	var m v1alpha1.Model
	if err := json.Unmarshal([]byte(`{"name":"m","algorithm":"pulsar","seed":"s","requestAlgorithms":[{"algorithm":"round-robin"},{"algorithm":"power-of-n","sampleCount":3}]}`), &m); err != nil {
		t.Fatal(err)
	}
	got, errs := ModelFrom(&m, field.NewPath("m"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got.Algorithm != v1alpha1.Pulsar || got.Seed != "s" || len(got.RequestAlgorithms) != 2 || got.RequestAlgorithms[v1alpha1.PowerOfN].SampleCount != 3 {
		t.Errorf("the model is %+v", got)
	}

	var faulty v1alpha1.Model
	if err := json.Unmarshal([]byte(`{"algorithm":"pulsar","n":1,"requestAlgorithms":[{"algorithm":"random","seed":"s"},{"algorithm":"random","requestAlgorithms":[{}]}]}`), &faulty); err != nil {
		t.Fatal(err)
	}
	_, errs = ModelFrom(&faulty, field.NewPath("m"))
	want := `m.n: Invalid value: 1: n is not supported by algorithm pulsar; supported: wait-and-widen, pulsar-wait-and-widen
m.requestAlgorithms[0].seed: Invalid value: "s": seed is not supported by algorithm random; supported: wait-and-widen, pulsar, pulsar-wait-and-widen
m.requestAlgorithms[1].requestAlgorithms: Forbidden: request algorithms do not nest; list them in the model's or the plane's requestAlgorithms
m.requestAlgorithms[1].algorithm: Duplicate value: "random"`
	if join(errs) != want {
		t.Errorf("the errors are\n%s, want\n%s", join(errs), want)
	}
}
