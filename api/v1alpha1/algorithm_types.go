package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// Algorithm is the canonical name of a Stargate load-balancing algorithm:
// power-of-n, wait-and-widen, round-robin, random, pulsar or
// pulsar-wait-and-widen. Stargate's legacy aliases (power-of-two,
// groq-multiregion, ...) are refused here; the message names the canonical
// spelling.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self in ['power-of-n', 'pulsar', 'pulsar-wait-and-widen', 'random', 'round-robin', 'wait-and-widen']",messageExpression="self in ['power-of-two', 'powerOf2', 'powerof2', 'powerOfN', 'powerofn'] ? 'this is a legacy alias; write its canonical name: power-of-n' : self == 'groq-multiregion' ? 'this is a legacy alias; write its canonical name: wait-and-widen' : self == 'pulsar-multiregion' ? 'this is a legacy alias; write its canonical name: pulsar-wait-and-widen' : 'no such algorithm; there are: power-of-n, pulsar, pulsar-wait-and-widen, random, round-robin, wait-and-widen'"
type Algorithm string

// The algorithms that Stargate has.
const (
	PowerOfN           Algorithm = "power-of-n"
	WaitAndWiden       Algorithm = "wait-and-widen"
	RoundRobin         Algorithm = "round-robin"
	Random             Algorithm = "random"
	Pulsar             Algorithm = "pulsar"
	PulsarWaitAndWiden Algorithm = "pulsar-wait-and-widen"
)

// Decimal is a number written as a string, in exactly the grammar of a JSON
// number ("0.1", "2", "1e-3"; not ".5", "00.5", "+1" or "NaN"), and finite as
// a 64-bit floating-point number.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$') && double(self) <= 1.7976931348623157e308 && double(self) >= -1.7976931348623157e308",message="must be a number as JSON writes it and within a 64-bit floating-point number, in quotes: '0.25', '2', '1e-3'"
type Decimal string

// AlgorithmSettings is one algorithm and its settings. Every field is the
// camelCase of the field of Stargate's lb-config.json. A field that is left
// out is left out of the file too, so that Stargate's default applies: unset,
// false and 0 are three different things. A field set for an algorithm that
// does not take it is refused even when its value is the default, as Stargate
// refuses it.
//
// A field that the running Stargate release does not know yet is left out of
// the file, and the status of policy and plane says so; such fields name below
// the generation of Stargate that brought them: V0 from release 0.10.0 on, V1
// from 0.18.0 on, V2 and V3 as the administrator states for the site's builds.
//
// +kubebuilder:validation:XValidation:fieldPath=".comparator",rule="!has(self.comparator) || !(self.algorithm in ['pulsar', 'pulsar-wait-and-widen', 'random', 'round-robin'])",messageExpression="'comparator is not supported by algorithm ' + self.algorithm + '; supported by: power-of-n, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".sampleCount",rule="!has(self.sampleCount) || !(self.algorithm in ['pulsar', 'pulsar-wait-and-widen', 'random', 'round-robin', 'wait-and-widen'])",messageExpression="'sampleCount is not supported by algorithm ' + self.algorithm + '; supported by: power-of-n; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".seed",rule="!has(self.seed) || !(self.algorithm in ['power-of-n', 'random', 'round-robin'])",messageExpression="'seed is not supported by algorithm ' + self.algorithm + '; supported by: pulsar, pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".considerKvFreeTokens",rule="!has(self.considerKvFreeTokens) || !(self.algorithm in ['power-of-n', 'random', 'round-robin', 'wait-and-widen'])",messageExpression="'considerKvFreeTokens is not supported by algorithm ' + self.algorithm + '; supported by: pulsar, pulsar-wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".rendezvousWeight",rule="!has(self.rendezvousWeight) || !(self.algorithm in ['power-of-n', 'random', 'round-robin', 'wait-and-widen'])",messageExpression="'rendezvousWeight is not supported by algorithm ' + self.algorithm + '; supported by: pulsar, pulsar-wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".cacheAffinityVirtualNodes",rule="!has(self.cacheAffinityVirtualNodes) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'cacheAffinityVirtualNodes is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".cacheAffinityBackendSelectionCount",rule="!has(self.cacheAffinityBackendSelectionCount) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'cacheAffinityBackendSelectionCount is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".cacheAffinityWaitMs",rule="!has(self.cacheAffinityWaitMs) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'cacheAffinityWaitMs is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".cacheAffinityInputTokensScale",rule="!has(self.cacheAffinityInputTokensScale) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'cacheAffinityInputTokensScale is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".bandWidenIntervalMs",rule="!has(self.bandWidenIntervalMs) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin', 'wait-and-widen'])",messageExpression="'bandWidenIntervalMs is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".fallbackMaxQueued",rule="!has(self.fallbackMaxQueued) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin', 'wait-and-widen'])",messageExpression="'fallbackMaxQueued is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".maxQueueTimeFloorMs",rule="!has(self.maxQueueTimeFloorMs) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'maxQueueTimeFloorMs is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".maxQueueTimeCeilMs",rule="!has(self.maxQueueTimeCeilMs) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'maxQueueTimeCeilMs is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".ttftBucketSizeMs",rule="!has(self.ttftBucketSizeMs) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'ttftBucketSizeMs is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".nextBucketUnlockFactor",rule="!has(self.nextBucketUnlockFactor) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'nextBucketUnlockFactor is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".n",rule="!has(self.n) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'n is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".maxQueued",rule="!has(self.maxQueued) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'maxQueued is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".ignoreQueueTime",rule="!has(self.ignoreQueueTime) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'ignoreQueueTime is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".ignoreInputProcessingTime",rule="!has(self.ignoreInputProcessingTime) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'ignoreInputProcessingTime is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
// +kubebuilder:validation:XValidation:fieldPath=".lastClusterAffinity",rule="!has(self.lastClusterAffinity) || !(self.algorithm in ['power-of-n', 'pulsar', 'random', 'round-robin'])",messageExpression="'lastClusterAffinity is not supported by algorithm ' + self.algorithm + '; supported by: pulsar-wait-and-widen, wait-and-widen; remove the field or change the algorithm'"
type AlgorithmSettings struct {
	// algorithm is the load-balancing algorithm that the settings are for, by its
	// canonical name: power-of-n, wait-and-widen, round-robin, random, pulsar or
	// pulsar-wait-and-widen.
	// +required
	Algorithm Algorithm `json:"algorithm"`

	// requireCacheAffinityKey makes Stargate answer 400 to a request without the
	// header x-cache-affinity-key. Default false. For all algorithms.
	// +optional
	RequireCacheAffinityKey *bool `json:"requireCacheAffinityKey,omitempty"`

	// requireInputTokens asks for the header x-input-tokens. Default false. It
	// changes nothing in practice: Stargate's proxy always requires that header.
	// For all algorithms.
	// +optional
	RequireInputTokens *bool `json:"requireInputTokens,omitempty"`

	// maxInputWorkSeconds is an admission limit in seconds of input work: a
	// request that would exceed it is rejected (503, newer builds 529). A number
	// in quotes. Default unset: no limit. Not range-checked by Stargate: "0"
	// admits only requests without input work and a negative number admits none.
	// When no cluster reports a valid throughput, every request is rejected. For
	// all algorithms.
	// +optional
	MaxInputWorkSeconds *Decimal `json:"maxInputWorkSeconds,omitempty"`

	// comparator scores the sampled candidates; the lowest score wins: ttft,
	// queue-time, input-work-seconds, utilization or num-requests-queued. Default
	// ttft. For power-of-n and wait-and-widen; pulsar-wait-and-widen has a fixed
	// comparison and refuses it.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self in ['ttft', 'queue-time', 'input-work-seconds', 'utilization', 'num-requests-queued']",message="comparator must be one of: ttft, queue-time, input-work-seconds, utilization, num-requests-queued"
	// +optional
	Comparator *string `json:"comparator,omitempty"`

	// sampleCount is the number of candidates sampled per decision, 1 to 64.
	// Default 2. For power-of-n.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 64",message="sampleCount must be from 1 to 64"
	// +optional
	SampleCount *int64 `json:"sampleCount,omitempty"`

	// seed is mixed into the hashes that order the clusters of an affinity key.
	// Changing it remaps every session. Default empty; two planes with the same
	// models and no seed rank alike. For wait-and-widen, pulsar and
	// pulsar-wait-and-widen.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Seed *string `json:"seed,omitempty"`

	// considerKvFreeTokens skips a cluster that has fewer free KV-cache tokens
	// than the request has input tokens. A cluster that reports no KV statistics
	// is then never eligible. Default false. For pulsar and pulsar-wait-and-widen.
	// +optional
	ConsiderKvFreeTokens *bool `json:"considerKvFreeTokens,omitempty"`

	// rendezvousWeight is the throughput that weights the ranking of clusters:
	// max-input-tps or last-mean-input-tps. Default max-input-tps; a cluster whose
	// workers are too old to report a maximum is then not ranked at all. For
	// pulsar and pulsar-wait-and-widen. Since generation V2 (a Stargate after
	// 0.18.0).
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self in ['max-input-tps', 'last-mean-input-tps']",message="rendezvousWeight must be one of: max-input-tps, last-mean-input-tps"
	// +optional
	RendezvousWeight *string `json:"rendezvousWeight,omitempty"`

	// cacheAffinityVirtualNodes is the number of points per cluster on the hash
	// ring. Default 150; 0 counts as 1. For wait-and-widen; pulsar-wait-and-widen
	// accepts and ignores it.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="cacheAffinityVirtualNodes must be 0 or more"
	// +optional
	CacheAffinityVirtualNodes *int64 `json:"cacheAffinityVirtualNodes,omitempty"`

	// cacheAffinityBackendSelectionCount is k, the number of clusters in a key's
	// affinity group. Default: no group on wait-and-widen, where 0 means the same;
	// 1 on pulsar-wait-and-widen, where 0 counts as 1. For wait-and-widen and
	// pulsar-wait-and-widen (generation V0 accepts and ignores it there).
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="cacheAffinityBackendSelectionCount must be 0 or more"
	// +optional
	CacheAffinityBackendSelectionCount *int64 `json:"cacheAffinityBackendSelectionCount,omitempty"`

	// cacheAffinityWaitMs is X, the time in milliseconds that a request waits for
	// its affinity group before it overflows to other clusters. Default 0. For
	// wait-and-widen, where it has no effect without
	// cacheAffinityBackendSelectionCount, and pulsar-wait-and-widen, which ignores
	// it before V2. Since generation V1 (Stargate 0.18.0).
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="cacheAffinityWaitMs must be 0 or more"
	// +optional
	CacheAffinityWaitMs *int64 `json:"cacheAffinityWaitMs,omitempty"`

	// cacheAffinityInputTokensScale is s, the share of the request's input tokens
	// that is counted as prefill work on the affinity group, a number in quotes
	// from "0" to "1". Default "1". For wait-and-widen, where it has no effect
	// without cacheAffinityBackendSelectionCount, and pulsar-wait-and-widen, which
	// ignores it before V2. Since generation V1 (Stargate 0.18.0).
	// +kubebuilder:validation:XValidation:rule="!self.matches('^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$') || (double(self) >= 0.0 && double(self) <= 1.0)",message="cacheAffinityInputTokensScale must be from 0 to 1"
	// +optional
	CacheAffinityInputTokensScale *Decimal `json:"cacheAffinityInputTokensScale,omitempty"`

	// bandWidenIntervalMs is the time in milliseconds between two bands of
	// clusters that open after the affinity wait. Default: the affinity wait; 0
	// opens all at once. For pulsar-wait-and-widen. Since generation V2 (a
	// Stargate after 0.18.0).
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="bandWidenIntervalMs must be 0 or more"
	// +optional
	BandWidenIntervalMs *int64 `json:"bandWidenIntervalMs,omitempty"`

	// fallbackMaxQueued is the number of queued requests, beyond its slots, up to
	// which a cluster outside the affinity group is selectable. Default 0. For
	// pulsar-wait-and-widen. Since generation V2 (a Stargate after 0.18.0).
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="fallbackMaxQueued must be 0 or more"
	// +optional
	FallbackMaxQueued *int64 `json:"fallbackMaxQueued,omitempty"`

	// maxQueueTimeFloorMs is the queue delay in milliseconds that is acceptable to
	// a request that has just arrived. It has no effect without
	// maxQueueTimeCeilMs. Default unset. For wait-and-widen and
	// pulsar-wait-and-widen.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="maxQueueTimeFloorMs must be 0 or more"
	// +optional
	MaxQueueTimeFloorMs *int64 `json:"maxQueueTimeFloorMs,omitempty"`

	// maxQueueTimeCeilMs is the queue delay in milliseconds that is acceptable to
	// a request that has used up its time. It has no effect without
	// maxQueueTimeFloorMs; a floor above the ceiling is not reordered and makes
	// the limit shrink as the request ages. Default unset. For wait-and-widen and
	// pulsar-wait-and-widen.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="maxQueueTimeCeilMs must be 0 or more"
	// +optional
	MaxQueueTimeCeilMs *int64 `json:"maxQueueTimeCeilMs,omitempty"`

	// ttftBucketSizeMs is the width in milliseconds of the buckets of time to
	// first token within which clusters count as equally fast. Default 20. For
	// wait-and-widen and pulsar-wait-and-widen.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="ttftBucketSizeMs must be 0 or more"
	// +optional
	TtftBucketSizeMs *int64 `json:"ttftBucketSizeMs,omitempty"`

	// nextBucketUnlockFactor is the share of the gap between two buckets that a
	// request waits before the slower one is considered, a number in quotes.
	// Default "0.25". Not range-checked by Stargate; outside 0 to 1 is legal and
	// surprising. For wait-and-widen and pulsar-wait-and-widen.
	// +optional
	NextBucketUnlockFactor *Decimal `json:"nextBucketUnlockFactor,omitempty"`

	// n is the number of candidates sampled from the unlocked buckets. Default 2;
	// 0 counts as 1. In YAML write the name in quotes: "n": 3. A bare n is false
	// to many YAML readers, kubectl among them. For wait-and-widen and
	// pulsar-wait-and-widen.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="n must be 0 or more"
	// +optional
	N *int64 `json:"n,omitempty"`

	// maxQueued is the number of queued requests, beyond its slots, up to which a
	// cluster is selectable. Default 0. For wait-and-widen and
	// pulsar-wait-and-widen.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="maxQueued must be 0 or more"
	// +optional
	MaxQueued *int64 `json:"maxQueued,omitempty"`

	// ignoreQueueTime leaves the queue delay out of the estimate that places a
	// cluster in a bucket. Default false. For wait-and-widen and
	// pulsar-wait-and-widen.
	// +optional
	IgnoreQueueTime *bool `json:"ignoreQueueTime,omitempty"`

	// ignoreInputProcessingTime leaves the prefill time out of the estimate that
	// places a cluster in a bucket. Default false. For wait-and-widen and
	// pulsar-wait-and-widen.
	// +optional
	IgnoreInputProcessingTime *bool `json:"ignoreInputProcessingTime,omitempty"`

	// lastClusterAffinity sends a returning session back to the cluster that
	// served its last request, and spares a new session the affinity wait. Default
	// false. The operator switches it on only when every gateway of the plane
	// remembers the last cluster and every Stargate pod knows the flag. For
	// wait-and-widen (with cacheAffinityBackendSelectionCount above 0) and
	// pulsar-wait-and-widen. Since generation V3 (a Stargate with session
	// affinity).
	// +optional
	LastClusterAffinity *bool `json:"lastClusterAffinity,omitempty"`
}

// RequestAlgorithm is an algorithm that a request may select with the header
// x-routing-method. Its settings follow the rules of a model's.
//
// +kubebuilder:validation:XValidation:fieldPath=".requestAlgorithms",rule="!has(self.requestAlgorithms) || self.requestAlgorithms.size() == 0",message="a request algorithm has no requestAlgorithms of its own (Stargate would drop them in silence); list them beside it"
type RequestAlgorithm struct {
	AlgorithmSettings `json:",inline"`

	// requestAlgorithms is refused: request algorithms do not nest. The field
	// exists so that a nested list is refused with a clear message instead of
	// being dropped.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XPreserveUnknownFields
	// +optional
	RequestAlgorithms []runtime.RawExtension `json:"requestAlgorithms,omitempty"`
}
