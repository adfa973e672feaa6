package simulate

import "testing"

// BenchmarkMillion simulates about a million requests over 16 clusters, at two thirds of their slots.
func BenchmarkMillion(b *testing.B) {
	site := siteOf(b, `{replicas: 3, clusters: [{name: c, count: 16, slots: 64, kvTokens: 2000000, prefillTokensPerSecond: 50000}]}`)
	workload := workloadOf(b, `{duration: 2h, traffic: [{sessionsPerSecond: 17.5}]}`)
	for _, algorithm := range []string{"wait-and-widen", "pulsar-wait-and-widen"} {
		variants := variantsOf(b, policyOf("algorithm: "+algorithm+`, cacheAffinityBackendSelectionCount: 1, cacheAffinityWaitMs: 300, cacheAffinityInputTokensScale: "0.1", maxQueued: 4, lastClusterAffinity: true`))
		for _, v := range variants {
			b.Run(v.Name()+"/"+algorithm, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r := run(b, Setup{Site: site, Workload: workload, Variant: v, Seed: 1})
					b.ReportMetric(float64(r.Models[0].Requests), "requests")
				}
			})
		}
	}
}
