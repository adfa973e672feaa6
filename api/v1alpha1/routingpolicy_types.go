package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RoutingPolicySpec is the algorithm configuration of some models on one
// plane.
type RoutingPolicySpec struct {
	// planeRef names the plane whose router and gateways the policy is for.
	// +required
	PlaneRef PlaneReference `json:"planeRef"`

	// models are those that the policy configures, at most 256, each by its own
	// name. A model that a second policy on the same plane lists too stays with
	// the policy that it was last rolled out from, else with the older one; the
	// other policy is warned.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +required
	Models []Model `json:"models"`
}

// PlaneReference names a RoutingPlane.
type PlaneReference struct {
	// name of the RoutingPlane.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be a name in lower case: letters, digits, '-' and '.', with a letter or digit at both ends"
	// +required
	Name string `json:"name"`

	// namespace of the plane. Default: the policy's own. A plane in another
	// namespace must allow the policy's namespace in spec.allowedPolicies.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || !format.dns1123Label().validate(self).hasValue()",message="must be a name in lower case: letters, digits and '-', with a letter or digit at both ends"
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Model is the routing of one model: its algorithm and settings, and the
// algorithms that a request may select instead.
//
// A setting that is left out stays at Stargate's default; unset, false and 0
// are three different things. A setting that the algorithm does not take is
// refused even at its default, as Stargate refuses it.
//
// Settings name the generation of Stargate that brought them: V0 begins with
// release 0.10.0, V1 with 0.18.0, V2 and V3 with the releases that the
// administrator of the operator states. What the running release does not know
// is left out of its file, and the status says so.
type Model struct {
	// name is the model ID exactly as requests carry it, in free text:
	// "meta/llama-3.1-70b-instruct". It is case-sensitive and not trimmed.
	// +kubebuilder:validation:MaxLength=512
	// +required
	Name string `json:"name"`

	AlgorithmSettings `json:",inline"`

	// requestAlgorithms are those that a request for this model may select with
	// the header x-routing-method. They win over the plane's entry of the same
	// algorithm; the model's own algorithm is always selectable and an entry for
	// it is never used. At most one entry per algorithm.
	// +listType=map
	// +listMapKey=algorithm
	// +kubebuilder:validation:MaxItems=16
	// +optional
	RequestAlgorithms []RequestAlgorithm `json:"requestAlgorithms,omitempty"`
}

// Conditions of a RoutingPolicy. Ready, Reconciling and Stalled follow the
// kstatus conventions.
const (
	// ConditionAccepted of a policy: its spec is valid, its plane exists and
	// allows it, and every model is its own.
	ConditionAccepted = "Accepted"
	// ConditionProgrammed of a policy: every Stargate pod runs the policy's
	// configuration.
	ConditionProgrammed = "Programmed"
)

// RoutingPolicyStatus is what the operator observed of a policy.
type RoutingPolicyStatus struct {
	// observedGeneration is the generation that the status speaks of; -1 before
	// the first.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Accepted, Programmed, Ready, Reconciling, Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// summary is one line for the printer column: "3/3 models, 2/2 flags".
	// +optional
	Summary string `json:"summary,omitempty"`

	// plane that the policy is on, as namespace/name.
	// +optional
	Plane string `json:"plane,omitempty"`

	// models of the policy and what became of each.
	// +listType=map
	// +listMapKey=name
	// +optional
	Models []ModelStatus `json:"models,omitempty"`

	// warnings about the spec: accepted, and worth a second look. The first 32;
	// the last entry counts the rest.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`
}

// ModelState says what became of a model's entry.
type ModelState string

// The states of a model's entry.
const (
	// ModelPending: not yet in the file that every Stargate pod runs.
	ModelPending ModelState = "Pending"
	// ModelProgrammed: every Stargate pod runs the entry as specified, flags
	// included.
	ModelProgrammed ModelState = "Programmed"
	// ModelFlagHeld: every Stargate pod runs the entry, and a lastClusterAffinity
	// flag waits for its turn.
	ModelFlagHeld ModelState = "FlagHeld"
	// ModelLimited: every Stargate pod runs the entry less the fields that the
	// Stargate release does not know.
	ModelLimited ModelState = "Limited"
	// ModelConflict: another policy has the model.
	ModelConflict ModelState = "Conflict"
	// ModelHeld: an earlier version of the entry is kept running, since the change
	// failed or is not valid.
	ModelHeld ModelState = "Held"
)

// ModelStatus is what became of one model's entry.
type ModelStatus struct {
	// name is the model ID.
	// +required
	Name string `json:"name"`

	// state: Pending, Programmed, FlagHeld, Limited, Conflict or Held.
	// +required
	State ModelState `json:"state"`

	// lastClusterAffinity: whether the spec asks for the flag, on the model or one
	// of its request algorithms.
	// +optional
	LastClusterAffinity bool `json:"lastClusterAffinity,omitempty"`

	// effectiveLastClusterAffinity: whether every flag that the spec asks for is
	// on in every Stargate pod.
	// +optional
	EffectiveLastClusterAffinity bool `json:"effectiveLastClusterAffinity,omitempty"`

	// message says why, where the state is not Programmed.
	// +optional
	Message string `json:"message,omitempty"`
}

// RoutingPolicy is the algorithm configuration of some models on a
// RoutingPlane. Model owners own it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rp,categories=routing
// +kubebuilder:printcolumn:name="Plane",type=string,JSONPath=`.spec.planeRef.name`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Models",type=string,JSONPath=`.status.summary`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type RoutingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration asked for.
	// +required
	Spec RoutingPolicySpec `json:"spec"`

	// status is what the operator observed.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status RoutingPolicyStatus `json:"status,omitempty"`
}

// RoutingPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type RoutingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RoutingPolicy `json:"items"`
}
