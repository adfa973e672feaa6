package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RoutingPlaneSpec names one Stargate workload and the API gateways in front
// of it, all in the plane's own namespace, and says how a change is rolled out
// to them.
//
// +kubebuilder:validation:XValidation:fieldPath=".gateways",rule="!has(self.gateways) || !self.gateways.exists(g, g.workloadRef.kind == self.stargate.workloadRef.kind && g.workloadRef.name == self.stargate.workloadRef.name)",messageExpression="self.stargate.workloadRef.kind + ' ' + self.stargate.workloadRef.name + ' is the plane\\'s Stargate workload and cannot be a gateway too; name the gateway\\'s own workload'"
type RoutingPlaneSpec struct {
	// stargate is the request router.
	// +required
	Stargate StargateSpec `json:"stargate"`

	// gateways are the API gateways in front of the router. Without any, no
	// lastClusterAffinity flag is switched on.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(g, self.exists_one(h, h.workloadRef.kind == g.workloadRef.kind && h.workloadRef.name == g.workloadRef.name))",message="two entries name one workload; keep one entry for each workload"
	// +optional
	Gateways []GatewaySpec `json:"gateways,omitempty"`

	// lastCluster configures the gateways' memory of each session's last cluster.
	// +kubebuilder:default={}
	// +optional
	LastCluster LastClusterSpec `json:"lastCluster,omitzero"`

	// rollout says how changes reach the workloads.
	// +kubebuilder:default={}
	// +optional
	Rollout RolloutSpec `json:"rollout,omitzero"`

	// allowedPolicies says from which namespaces policies are taken.
	// +kubebuilder:default={}
	// +optional
	AllowedPolicies AllowedPolicies `json:"allowedPolicies,omitzero"`

	// revisionHistoryLimit is the number of unused revisions that are kept for
	// each artefact. Default 10.
	// +kubebuilder:default=10
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 100",message="revisionHistoryLimit must be from 0 to 100"
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// deletionPolicy says what deleting the plane does to the workloads: Unwind
	// switches the flags off, then the gateways' memory, and lets go of every
	// field; Retain changes no pod. Default Unwind.
	// +kubebuilder:default=Unwind
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self in ['Unwind', 'Retain']",message="must be one of: Unwind, Retain"
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// DeletionPolicy says what deleting a plane does to the workloads.
type DeletionPolicy string

// The deletion policies.
const (
	DeletionUnwind DeletionPolicy = "Unwind"
	DeletionRetain DeletionPolicy = "Retain"
)

// WorkloadReference names a workload in the plane's namespace.
type WorkloadReference struct {
	// kind of the workload: Deployment or StatefulSet for Stargate, Deployment for
	// a gateway.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`

	// name of the workload.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be a name in lower case: letters, digits, '-' and '.', with a letter or digit at both ends"
	// +required
	Name string `json:"name"`
}

// The kinds of workload.
const (
	KindDeployment  = "Deployment"
	KindStatefulSet = "StatefulSet"
)

// ReleaseOverride states the Stargate or gateway release of an image whose tag
// is no release.
type ReleaseOverride struct {
	// image as the container names it, whole: "llm-request-router:latest".
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self != ''",message="image must be as the container names it, whole: 'llm-request-router:latest'"
	// +required
	Image string `json:"image"`

	// version is the release of the image, "0.22.0", or its generation, "V0" to
	// "V3".
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^(V[0-3]|v?(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)([.](0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?([+][0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?)$')",message="version must be a release such as 0.22.0 or a generation from V0 to V3"
	// +required
	Version string `json:"version"`
}

// StargateSpec names the router's workload and how it is configured.
//
// +kubebuilder:validation:XValidation:fieldPath=".workloadRef.kind",rule="self.workloadRef.kind in ['Deployment', 'StatefulSet']",message="must be one of: Deployment, StatefulSet"
type StargateSpec struct {
	// workloadRef names the Deployment or StatefulSet that runs Stargate.
	// +required
	WorkloadRef WorkloadReference `json:"workloadRef"`

	// container is the name of the container that runs Stargate. It may be left
	// out where the pod template has one container.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || !format.dns1123Label().validate(self).hasValue()",message="must be a name in lower case: letters, digits and '-', with a letter or digit at both ends"
	// +optional
	Container string `json:"container,omitempty"`

	// configPath is the file that Stargate's argument --lb-config-path names. The
	// operator mounts its file there; the directory must hold no other mount. It
	// cannot be changed: the file would go from where Stargate reads it. Default
	// /etc/routing-operator/lb-config.json.
	// +kubebuilder:default="/etc/routing-operator/lb-config.json"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[.]?[A-Za-z0-9_-][A-Za-z0-9._-]*){3,}$')",message="configPath must be the absolute path of a file at least two directories deep, in letters, digits, '.', '_' and '-' and without '..', for example /etc/routing-operator/lb-config.json: the operator mounts over the file's directory"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/(dev|proc|run|sys|var/run)/')",message="configPath must not lie in /dev, /proc, /run, /sys or /var/run: the operator mounts over the file's directory"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="configPath cannot be changed: the file would go from the old path, which Stargate's arguments may still name, and no new pod would start; to move, have the arguments name a file of the chart's, delete the plane and create it anew with the other path"
	// +optional
	ConfigPath string `json:"configPath,omitempty"`

	// configPathCheck says how it is known that Stargate reads configPath:
	// Arguments reads the container's arguments to see whether Stargate reads
	// configPath, and switches no flag on while it does not; Skip is for sites
	// that pass the path in another way and know that Stargate reads it. Default
	// Arguments.
	// +kubebuilder:default=Arguments
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self in ['Arguments', 'Skip']",message="must be one of: Arguments, Skip"
	// +optional
	ConfigPathCheck ConfigPathCheck `json:"configPathCheck,omitempty"`

	// releases states the release of images whose tag is none, such as "latest", a
	// branch or a digest.
	// +listType=map
	// +listMapKey=image
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Releases []ReleaseOverride `json:"releases,omitempty"`

	// defaultAlgorithm is the algorithm of models that no policy lists, by its
	// canonical name; its settings are the algorithm's defaults. Default
	// power-of-n.
	// +kubebuilder:default="power-of-n"
	// +optional
	DefaultAlgorithm Algorithm `json:"defaultAlgorithm,omitempty"`

	// requestAlgorithms are those that a request may select for any model with the
	// header x-routing-method. At most one entry per algorithm.
	// +listType=map
	// +listMapKey=algorithm
	// +kubebuilder:validation:MaxItems=16
	// +optional
	RequestAlgorithms []RequestAlgorithm `json:"requestAlgorithms,omitempty"`

	// metrics says where Stargate's metrics are.
	// +kubebuilder:default={}
	// +optional
	Metrics StargateMetrics `json:"metrics,omitzero"`
}

// ConfigPathCheck says how the operator finds out whether Stargate reads
// configPath.
type ConfigPathCheck string

// The ways to check the configuration path.
const (
	ConfigPathCheckArguments ConfigPathCheck = "Arguments"
	ConfigPathCheckSkip      ConfigPathCheck = "Skip"
)

// StargateMetrics says where Stargate's metrics are.
type StargateMetrics struct {
	// port of the metrics endpoint on the pod. Default 9090.
	// +kubebuilder:default=9090
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 65535",message="port must be from 1 to 65535"
	// +optional
	Port int32 `json:"port,omitempty"`

	// prefix of every metric's name. Default "stargate_".
	// +kubebuilder:default="stargate_"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z_:][A-Za-z0-9_:]*)?$')",message="prefix must be the beginning of a metric's name, such as stargate_: letters, digits, '_' and ':', not beginning with a digit"
	// +optional
	Prefix string `json:"prefix,omitempty"`
}

// GatewaySpec names an API gateway's workload.
//
// +kubebuilder:validation:XValidation:fieldPath=".workloadRef.kind",rule="self.workloadRef.kind in ['Deployment']",message="must be one of: Deployment"
type GatewaySpec struct {
	// workloadRef names the Deployment that runs the gateway.
	// +required
	WorkloadRef WorkloadReference `json:"workloadRef"`

	// container is the name of the container that runs the gateway. It may be left
	// out where the pod template has one container.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || !format.dns1123Label().validate(self).hasValue()",message="must be a name in lower case: letters, digits and '-', with a letter or digit at both ends"
	// +optional
	Container string `json:"container,omitempty"`

	// releases states the release of images whose tag is none. "V3" says that the
	// image has the memory of the last cluster, an older generation that it has
	// not. Where nothing is stated the status calls the gateway unverified.
	// +listType=map
	// +listMapKey=image
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Releases []ReleaseOverride `json:"releases,omitempty"`

	// metrics says where the gateway's metrics are.
	// +kubebuilder:default={}
	// +optional
	Metrics GatewayMetrics `json:"metrics,omitzero"`
}

// GatewayMetrics says where the gateway's metrics are.
type GatewayMetrics struct {
	// port of the metrics endpoint on the pod, for people and what scrapes: the
	// operator itself reads the metrics of Stargate's pods only. Default 9464.
	// +kubebuilder:default=9464
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 65535",message="port must be from 1 to 65535"
	// +optional
	Port int32 `json:"port,omitempty"`
}

// LastClusterSpec configures the gateways' memory of each session's last
// cluster. Whether the memory is on is the operator's business: it is on while
// a policy asks for lastClusterAffinity.
type LastClusterSpec struct {
	// ttl is the time after which a session that made no request is forgotten
	// (STARGATE_LAST_CLUSTER_TTL). Above 0. Default 10m.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) > duration('0s') && duration(self) <= duration('8760h')",message="ttl must be above 0 and at most 8760h, such as 10m, 1h30m or 20ms"
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// lookupTimeout is the time after which a request goes on without the hint
	// (STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT). Above 0. Default 20ms.
	// +kubebuilder:default="20ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) > duration('0s') && duration(self) <= duration('8760h')",message="lookupTimeout must be above 0 and at most 8760h, such as 10m, 1h30m or 20ms"
	// +optional
	LookupTimeout *metav1.Duration `json:"lookupTimeout,omitempty"`

	// localMaxEntries is the number of sessions that a gateway pod remembers where
	// its shared store is off (STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES). Above 0.
	// Default 100000.
	// +kubebuilder:default=100000
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="localMaxEntries must be 1 or more"
	// +optional
	LocalMaxEntries *int64 `json:"localMaxEntries,omitempty"`
}

// RolloutSpec says how changes reach the workloads.
type RolloutSpec struct {
	// paused stops every change to the workloads, going back included; the status
	// says what would happen. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// quietPeriod is the time that must pass without a further change before a
	// rollout starts, so that a burst of changes is one rollout. It is waited for
	// at most six times over. Default 5s.
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s') && duration(self) <= duration('8760h')",message="quietPeriod must be from 0s to 8760h, such as 10m, 1h30m or 20ms"
	// +optional
	QuietPeriod *metav1.Duration `json:"quietPeriod,omitempty"`

	// minInterval is the least time between two rollouts of Stargate's
	// configuration; failures and withdrawals do not wait for it. Default 0s.
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s') && duration(self) <= duration('8760h')",message="minInterval must be from 0s to 8760h, such as 10m, 1h30m or 20ms"
	// +optional
	MinInterval *metav1.Duration `json:"minInterval,omitempty"`

	// gatewayWarmup is the time that the gateways' memory gets to fill before the
	// first flag is switched on. Default: lastCluster.ttl, after which no session
	// that is still remembered can have been missed.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s') && duration(self) <= duration('8760h')",message="gatewayWarmup must be from 0s to 8760h, such as 10m, 1h30m or 20ms"
	// +optional
	GatewayWarmup *metav1.Duration `json:"gatewayWarmup,omitempty"`

	// waves are the steps in which models get their flag: numbers of models, or
	// percentages of those still pending (rounded up); the last entry repeats.
	// Default [1, "100%"].
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="list at least one wave, or leave waves out for the default"
	// +kubebuilder:validation:items:XIntOrString
	// +kubebuilder:validation:items:MaxLength=16
	// +kubebuilder:validation:items:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^([1-9][0-9]?|100)%$')",message="a wave must be a number of models, 1 or more, or a percentage from 1% to 100%"
	// +optional
	Waves []intstr.IntOrString `json:"waves,omitempty"`

	// waveInterval is the time from the completion of a wave to the start of the
	// next. Default 5m.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s') && duration(self) <= duration('8760h')",message="waveInterval must be from 0s to 8760h, such as 10m, 1h30m or 20ms"
	// +optional
	WaveInterval *metav1.Duration `json:"waveInterval,omitempty"`

	// progressDeadline is the time that a rollout may go without any progress, not
	// in all, before it counts as stuck. Default 15m.
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) > duration('0s') && duration(self) <= duration('8760h')",message="progressDeadline must be above 0 and at most 8760h, such as 10m, 1h30m or 20ms"
	// +optional
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`

	// preflight lets one throwaway pod of Stargate's own template and image load
	// a new file before any serving pod is replaced, so that a file that Stargate
	// refuses costs no replica. The pod is no endpoint of any Service. Where it
	// gives no answer within progressDeadline, or cannot be made of the template,
	// the rollout goes on without. The operator has to be given the right to make
	// pods: kubectl apply -k config/preflight. Default false.
	// +optional
	Preflight bool `json:"preflight,omitempty"`

	// analysis judges each wave of flags by Stargate's own metrics, before the
	// next one and before the plane is Ready. A wave that fails is withdrawn as
	// one rollout. Off where it is left out; "analysis: {}" takes the defaults.
	// +optional
	Analysis *RolloutAnalysis `json:"analysis,omitempty"`

	// pin holds the named Stargate revision whatever the policies say, until it is
	// emptied. It is the way to roll back where Git is the source of the policies.
	// A flag of the pinned revision still needs the gateways' memory.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || !format.dns1123Subdomain().validate(self).hasValue()",message="must be a name in lower case: letters, digits, '-' and '.', with a letter or digit at both ends"
	// +optional
	Pin string `json:"pin,omitempty"`
}

// RolloutAnalysis is the metric gate: how a wave of flags is judged by what
// every Stargate pod counts at /metrics of spec.stargate.metrics.port. The
// operator must be able to reach that port of the pods. Only the models of the
// wave count, all of them together.
type RolloutAnalysis struct {
	// interval is the time over which a wave is judged, from its completion on.
	// Before a wave, server errors are counted for as long. Above 0. Default 5m.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) > duration('0s') && duration(self) <= duration('8760h')",message="interval must be above 0 and at most 8760h, such as 10m, 1h30m or 20ms"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`

	// minSamples is the least number of sessions, or requests, that a share is
	// judged by. Default 100.
	// +kubebuilder:default=100
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="minSamples must be 1 or more"
	// +optional
	MinSamples *int64 `json:"minSamples,omitempty"`

	// tooFewSamples says what happens at the end of the interval if a share has
	// fewer samples than minSamples: Continue goes on with the next wave; Hold
	// holds it, and Ready, until there are enough. Metrics that cannot be read
	// count as too few samples. Default Continue.
	// +kubebuilder:default=Continue
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self in ['Continue', 'Hold']",message="must be one of: Continue, Hold"
	// +optional
	TooFewSamples TooFewSamples `json:"tooFewSamples,omitempty"`

	// maxNewShare is the largest share of new and stale sessions among those that
	// Stargate classified, a number in quotes from "0" to "1". A share near 1
	// means that the gateways' hints do not arrive, and that every request loses
	// its affinity wait. "1" switches this off, for models whose sessions rarely
	// make a second request. Default "0.95".
	// +kubebuilder:default="0.95"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$') || (double(self) >= 0.0 && double(self) <= 1.0)",message="maxNewShare must be from 0 to 1"
	// +optional
	MaxNewShare *Decimal `json:"maxNewShare,omitempty"`

	// minReturningPrimaryShare is the smallest share of returning sessions that
	// reach their last cluster, a number in quotes from "0" to "1". A small one
	// means that the last clusters have no room within the affinity wait. "0"
	// switches this off. Default "0.5".
	// +kubebuilder:default="0.5"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$') || (double(self) >= 0.0 && double(self) <= 1.0)",message="minReturningPrimaryShare must be from 0 to 1"
	// +optional
	MinReturningPrimaryShare *Decimal `json:"minReturningPrimaryShare,omitempty"`

	// maxServerErrorIncrease is by how much the share of requests that end in a
	// 5xx status may be above the one before the wave, a number in quotes from "0"
	// to "1": "0.01" lets 0.2 % become 1.2 %. "1" switches this off, and the wait
	// before the wave with it. Default "0.01".
	// +kubebuilder:default="0.01"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$') || (double(self) >= 0.0 && double(self) <= 1.0)",message="maxServerErrorIncrease must be from 0 to 1"
	// +optional
	MaxServerErrorIncrease *Decimal `json:"maxServerErrorIncrease,omitempty"`
}

// TooFewSamples says what becomes of a wave that has too few samples.
type TooFewSamples string

// What becomes of a wave that has too few samples.
const (
	TooFewSamplesContinue TooFewSamples = "Continue"
	TooFewSamplesHold     TooFewSamples = "Hold"
)

// AllowedPolicies says from which namespaces policies are taken.
type AllowedPolicies struct {
	// namespaces are those from which policies are taken.
	// +kubebuilder:default={}
	// +optional
	Namespaces AllowedNamespaces `json:"namespaces,omitzero"`
}

// FromNamespaces says which namespaces are meant.
type FromNamespaces string

// The ways to select namespaces.
const (
	NamespacesFromSame     FromNamespaces = "Same"
	NamespacesFromAll      FromNamespaces = "All"
	NamespacesFromSelector FromNamespaces = "Selector"
)

// AllowedNamespaces selects namespaces.
//
// +kubebuilder:validation:XValidation:fieldPath=".selector",rule="!has(self.from) || self.from != 'Selector' || has(self.selector)",message="from: Selector needs a selector over the labels of namespaces",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:fieldPath=".selector",rule="!has(self.selector) || (has(self.from) && self.from == 'Selector')",message="selector is for from: Selector only; remove it or set from: Selector"
type AllowedNamespaces struct {
	// from says which namespaces: Same for the plane's own namespace, All, or
	// Selector for those that selector matches. Default Same.
	// +kubebuilder:default=Same
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self in ['Same', 'All', 'Selector']",message="must be one of: Same, All, Selector"
	// +optional
	From FromNamespaces `json:"from,omitempty"`

	// selector picks namespaces by their labels; only with from: Selector.
	// +kubebuilder:validation:XValidation:fieldPath=".matchExpressions",rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['Exists', 'DoesNotExist'] ? !has(e.values) || e.values.size() == 0 : e.operator in ['In', 'NotIn'] && has(e.values) && e.values.size() > 0)",message="an operator must be In or NotIn, with values, or Exists or DoesNotExist, without"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Stage is the place of a plane in its rollout. It is derived from what is
// observed.
type Stage string

// The stages of a plane.
const (
	// StageBase: Stargate gets the base configuration, flags as they are.
	StageBase Stage = "Base"
	// StageGatewayMemory: the gateways' memory is being switched on.
	StageGatewayMemory Stage = "GatewayMemory"
	// StageWarmup: the memory is on and fills.
	StageWarmup Stage = "Warmup"
	// StageFlags: flags are being switched on in waves.
	StageFlags Stage = "Flags"
	// StageSettled: everything asked for is in effect.
	StageSettled Stage = "Settled"
	// StageWithdrawFlags: flags are being switched off.
	StageWithdrawFlags Stage = "WithdrawFlags"
	// StageWithdrawMemory: the gateways' memory is being switched off.
	StageWithdrawMemory Stage = "WithdrawMemory"
	// StageRelease: the workloads' fields are being let go.
	StageRelease Stage = "Release"
)

// Conditions of a RoutingPlane, besides Ready, Reconciling and Stalled.
const (
	// ConditionStargateReady: every Stargate pod runs the file it should.
	ConditionStargateReady = "StargateReady"
	// ConditionGatewayReady: every gateway pod has the variables it should.
	ConditionGatewayReady = "GatewayReady"
	// ConditionFlagsReady: every flag that is asked for is on.
	ConditionFlagsReady = "FlagsReady"
)

// Conditions of both kinds, after the kstatus conventions.
const (
	// ConditionReady: the object is in effect as specified.
	ConditionReady = "Ready"
	// ConditionReconciling: the operator is working on it, or waits for something
	// that will pass.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: only a change by a person gets it further.
	ConditionStalled = "Stalled"
)

// RoutingPlaneStatus is what the operator observed of a plane.
type RoutingPlaneStatus struct {
	// observedGeneration is the generation that the status speaks of; -1 before
	// the first.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// observedRetry is the value of the annotation routing.nvcf.io/retry that the
	// status speaks of: with another one, what failed has not been tried again yet.
	// +optional
	ObservedRetry string `json:"observedRetry,omitempty"`

	// conditions: StargateReady, GatewayReady, FlagsReady, Ready, Reconciling,
	// Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// stage of the rollout.
	// +optional
	Stage Stage `json:"stage,omitempty"`

	// waiting says what the plane waits for, since when and until when.
	// +optional
	Waiting *Waiting `json:"waiting,omitempty"`

	// stargate is the router's workload as observed.
	// +optional
	Stargate *WorkloadStatus `json:"stargate,omitempty"`

	// gateways are the gateways' workloads as observed, in the order of the spec.
	// +listType=atomic
	// +optional
	Gateways []WorkloadStatus `json:"gateways,omitempty"`

	// flags counts the lastClusterAffinity flags.
	// +optional
	Flags FlagsStatus `json:"flags"`

	// policies is the number of policies whose models the plane carries.
	// +optional
	Policies int32 `json:"policies,omitempty"`

	// models is the number of models in the effective configuration.
	// +optional
	Models int32 `json:"models"`

	// warnings worth a second look. The first 32; the last entry counts the rest.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`

	// records holds what cannot be observed anew: when a revision was completely
	// rolled out, and which revisions failed. The revisions carry the same as
	// annotations; the stricter of the two counts.
	// +listType=map
	// +listMapKey=workload
	// +listMapKey=revision
	// +optional
	Records []RevisionRecord `json:"records,omitempty"`

	// transitions are the last changes of stage, newest first, at most 10.
	// +listType=atomic
	// +optional
	Transitions []Transition `json:"transitions,omitempty"`
}

// Waiting says what is waited for.
type Waiting struct {
	// for what, in words.
	// +required
	For string `json:"for"`

	// since when.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// until when; unset where it depends on something other than time.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// WorkloadStatus is a workload as observed.
type WorkloadStatus struct {
	// kind of the workload.
	Kind string `json:"kind"`

	// name of the workload.
	Name string `json:"name"`

	// release of the image in the pod template, or "unknown".
	// +optional
	Release string `json:"release,omitempty"`

	// revision that the pod template names; empty while none of the operator's is
	// in it.
	// +optional
	Revision string `json:"revision,omitempty"`

	// memory of a gateway: On, Off, Mixed, or Unverified where the variable is on
	// and no release is known.
	// +optional
	Memory string `json:"memory,omitempty"`

	// replicas that the workload asks for.
	// +optional
	Replicas int32 `json:"replicas"`

	// pods by the revision that their spec names, sorted by revision.
	// +listType=map
	// +listMapKey=revision
	// +optional
	Pods []PodCount `json:"pods,omitempty"`
}

// PodCount counts pods on a revision.
type PodCount struct {
	// revision that the pods' spec names; "none" where it names none of the
	// operator's.
	Revision string `json:"revision"`

	// total of the pods, terminating ones included.
	Total int32 `json:"total"`

	// ready pods, terminating ones not included.
	// +optional
	Ready int32 `json:"ready"`

	// terminating pods.
	// +optional
	Terminating int32 `json:"terminating,omitempty"`
}

// FlagsStatus counts lastClusterAffinity flags by the unit that they move in:
// a model, or the plane's own request algorithms.
type FlagsStatus struct {
	// desired units.
	// +optional
	Desired int32 `json:"desired"`

	// on in every Stargate pod.
	// +optional
	On int32 `json:"on"`

	// wave that was rolled out last, counted from 1; 0 before the first.
	// +optional
	Wave int32 `json:"wave,omitempty"`

	// pending units by name. The first 16; the last entry counts the rest.
	// +listType=atomic
	// +optional
	Pending []string `json:"pending,omitempty"`
}

// RevisionRecord is what cannot be observed anew about a workload on a
// revision.
type RevisionRecord struct {
	// workload that the record is about, as Kind/name.
	// +kubebuilder:validation:MaxLength=320
	// +required
	Workload string `json:"workload"`

	// revision is the name of the revision's ConfigMap.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Revision string `json:"revision"`

	// appliedAt is when the workload was last given the revision.
	// +optional
	AppliedAt *metav1.Time `json:"appliedAt,omitempty"`

	// completedAt is when every pod of the workload was first seen ready on the
	// revision.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`

	// template is the hash of the workload's pod template, less the operator's
	// fields, at CompletedAt.
	// +optional
	Template string `json:"template,omitempty"`

	// failedAt is when the revision was found to have failed on the workload.
	// +optional
	FailedAt *metav1.Time `json:"failedAt,omitempty"`

	// retry is the value that the plane's retry annotation had at FailedAt;
	// another value asks for another attempt.
	// +optional
	Retry string `json:"retry,omitempty"`

	// message says how it failed.
	// +optional
	Message string `json:"message,omitempty"`

	// gate is the metric gate of a wave; unset on what is none, and where
	// spec.rollout.analysis was unset.
	// +optional
	Gate *GateRecord `json:"gate,omitempty"`

	// change is, in a policy's name and a hash, what the revision changed, where
	// that was of one policy only.
	// +optional
	Change string `json:"change,omitempty"`
}

// GateRecord is what cannot be observed anew about the metric gate of a wave.
type GateRecord struct {
	// before is the revision before the wave: what the wave switched on is what is
	// not on in it.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Before string `json:"before,omitempty"`

	// requestsBefore are the requests for the wave's models that were counted
	// before the wave.
	// +optional
	RequestsBefore int64 `json:"requestsBefore,omitempty"`

	// serverErrorsBefore are those of requestsBefore that ended in a 5xx status.
	// +optional
	ServerErrorsBefore int64 `json:"serverErrorsBefore,omitempty"`

	// passedAt is when the gate let the wave pass.
	// +optional
	PassedAt *metav1.Time `json:"passedAt,omitempty"`

	// failed: the revision failed by this gate.
	// +optional
	Failed bool `json:"failed,omitempty"`
}

// Transition is a change of stage.
type Transition struct {
	// time of the change.
	Time metav1.Time `json:"time"`

	// stage that was entered.
	Stage Stage `json:"stage"`

	// message says why.
	// +optional
	Message string `json:"message,omitempty"`
}

// RoutingPlane is one Stargate workload and the API gateways in front of it:
// the unit of rollout, since one lb-config.json serves all models. The
// platform team owns it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rpl,categories=routing
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.status.stage`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Models",type=integer,JSONPath=`.status.models`
// +kubebuilder:printcolumn:name="Flags",type=integer,JSONPath=`.status.flags.on`
// +kubebuilder:printcolumn:name="Of",type=integer,JSONPath=`.status.flags.desired`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Waiting",type=string,JSONPath=`.status.waiting.for`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type RoutingPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the plane is made of.
	// +required
	Spec RoutingPlaneSpec `json:"spec"`

	// status is what the operator observed.
	// +kubebuilder:default:={"observedGeneration":-1,"models":0,"flags":{"desired":0,"on":0}}
	// +optional
	Status RoutingPlaneStatus `json:"status,omitempty"`
}

// RoutingPlaneList is a list of planes.
//
// +kubebuilder:object:root=true
type RoutingPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RoutingPlane `json:"items"`
}
