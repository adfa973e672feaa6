package render_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

// realistic is a plane of models as sites have them.
func realistic(models int) render.Config {
	c := render.Config{
		DefaultAlgorithm:  v1alpha1.PowerOfN,
		RequestAlgorithms: []v1alpha1.RequestAlgorithm{{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.RoundRobin}}},
	}
	for i := range models {
		name := fmt.Sprintf("meta/llama-3.1-%05d-instruct", i)
		c.Models = append(c.Models, v1alpha1.Model{
			Name: name,
			AlgorithmSettings: v1alpha1.AlgorithmSettings{
				Algorithm:                          v1alpha1.PulsarWaitAndWiden,
				Seed:                               new(name + "-v1"),
				RequireCacheAffinityKey:            new(true),
				CacheAffinityBackendSelectionCount: new(int64(1)),
				CacheAffinityWaitMs:                new(int64(300)),
				CacheAffinityInputTokensScale:      new(v1alpha1.Decimal("0.10")),
				MaxQueued:                          new(int64(4)),
				LastClusterAffinity:                new(true),
			},
			RequestAlgorithms: c.RequestAlgorithms,
		})
	}
	return c
}

// BenchmarkTenThousandModels compares rendering with what encoding/json takes to write the same data: the
// configuration as the API has it, the file as a struct made for just these fields, and the file as it would be
// decoded. What encoding/json gets is prepared outside of the measurement; rendering selects and spells within it.
// The models are sorted, as the merge of policies leaves them, and once they are not.
func BenchmarkTenThousandModels(b *testing.B) {
	c := realistic(10_000)
	on := render.Desired(c)
	rendered, err := render.LBConfig(c, on, release.V3)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("render", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(rendered.Data)))
		for b.Loop() {
			if _, err := render.LBConfig(c, on, release.V3); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("render-unsorted", func(b *testing.B) {
		unsorted := c
		unsorted.Models = slices.Clone(c.Models)
		random := rand.New(rand.NewPCG(1, 2))
		random.Shuffle(len(unsorted.Models), reflect.Swapper(unsorted.Models))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := render.LBConfig(unsorted, on, release.V3); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json-api", func(b *testing.B) { benchmarkMarshal(b, c) })
	b.Run("encoding-json-struct", func(b *testing.B) {
		type entry struct {
			Algorithm  string            `json:"algorithm"`
			Seed       *string           `json:"seed,omitempty"`
			Require    *bool             `json:"require_cache_affinity_key,omitempty"`
			K          *int64            `json:"cache_affinity_backend_selection_count,omitempty"`
			Wait       *int64            `json:"cache_affinity_wait_ms,omitempty"`
			Scale      json.Number       `json:"cache_affinity_input_tokens_scale,omitempty"`
			MaxQueued  *int64            `json:"max_queued,omitempty"`
			Flag       *bool             `json:"last_cluster_affinity,omitempty"`
			Algorithms map[string]string `json:"request_algorithms,omitempty"`
		}
		models := map[string]entry{}
		for _, m := range c.Models {
			models[m.Name] = entry{string(m.Algorithm), m.Seed, m.RequireCacheAffinityKey, m.CacheAffinityBackendSelectionCount,
				m.CacheAffinityWaitMs, json.Number(*m.CacheAffinityInputTokensScale), m.MaxQueued, m.LastClusterAffinity,
				map[string]string{"round-robin": "round-robin"}}
		}
		file := map[string]any{"default": c.DefaultAlgorithm, "request_algorithms": map[string]string{"round-robin": "round-robin"}, "models": models}
		benchmarkMarshal(b, file)
	})
	b.Run("encoding-json-generic", func(b *testing.B) {
		var file map[string]any
		if err := json.Unmarshal(rendered.Data, &file); err != nil {
			b.Fatal(err)
		}
		benchmarkMarshal(b, file)
	})
	b.Run("largest-size", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			render.LargestSize(c)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := lbconfig.Read(rendered.Data, release.V3); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchmarkMarshal(b *testing.B, file any) {
	text, err := json.Marshal(file)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := json.Marshal(file); err != nil {
			b.Fatal(err)
		}
	}
}
