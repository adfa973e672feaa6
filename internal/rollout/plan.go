package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/render"
)

// StepKind is what a step does.
type StepKind string

// The kinds of step.
const (
	// StepEnsureRevision creates the revision's ConfigMap, or makes a damaged one anew, and writes the record of
	// the workload that is about to get it.
	StepEnsureRevision StepKind = "EnsureRevision"
	// StepApply applies the workload's template with the revision, guarded by the workload's resourceVersion.
	StepApply StepKind = "Apply"
	// StepLetGo applies the workload without any of the operator's fields, guarded by its resourceVersion.
	StepLetGo StepKind = "LetGo"
	// StepDisown takes the annotation that names the plane off the workload, and leaves its template as it is; guarded
	// by the workload's resourceVersion.
	StepDisown StepKind = "Disown"
	// StepRecord writes onto the revision what became of the workload on it.
	StepRecord StepKind = "Record"
	// StepDeletePod deletes one pod, guarded by uid and resourceVersion.
	StepDeletePod StepKind = "DeletePod"
	// StepPreflight makes the preflight pod that loads the revision, of the workload's template, guarded by the
	// workload's resourceVersion.
	StepPreflight StepKind = "Preflight"
	// StepDeletePreflight deletes a preflight pod, guarded by uid.
	StepDeletePreflight StepKind = "DeletePreflight"
	// StepDeleteRevision deletes an unused revision, guarded by resourceVersion.
	StepDeleteRevision StepKind = "DeleteRevision"
	// StepRemoveFinalizer lets the plane go.
	StepRemoveFinalizer StepKind = "RemoveFinalizer"
)

// Step is one change to the cluster. Steps are done in order; the first that fails ends the pass.
type Step struct {
	Kind StepKind
	// Workload that the step is about, for Apply, LetGo, Disown, Record, DeletePod and Preflight.
	Workload *Workload
	// Revision to create, apply, load, record on or delete: its name.
	Revision string
	// Artefact, Data and Wave of a revision to create.
	Artefact string
	Data     map[string]string
	Wave     int
	// Force takes back fields that were the operator's and were overwritten.
	Force bool
	// Record to write onto the revision, for EnsureRevision and Record.
	Record Record
	// Verdict of a metric gate that the Record notes; empty where it notes something else.
	Verdict analysis.Outcome
	// Pod to delete.
	Pod *Pod
	// Why, in a person's words: the note that goes into the log, the event and the transition.
	Why string
}

// Plan is the outcome of a pass.
type Plan struct {
	Stage v1alpha1.Stage
	Steps []Step
	// Notes are the reasons for what is and is not done, in order.
	Notes []string
	// Conditions of the plane, complete.
	Conditions []metav1.Condition
	// Waiting is what the plane waits for; Since is filled in by the status writer, which keeps it while For
	// stays the same.
	Waiting *v1alpha1.Waiting
	// Sampling is what of Stargate's metrics is to be followed.
	Sampling []Sampling
	// Requeue is when time alone can change the plan; zero if it cannot.
	Requeue time.Time
	// Records for the plane's status.
	Records []v1alpha1.RevisionRecord
	// Flags for the plane's status.
	Flags v1alpha1.FlagsStatus
	// Warnings for the plane's status.
	Warnings []string
	// Config that is being rolled out: the effective one, or that of the pin.
	Config render.Config
	// Held says, by model, why it is kept as it was last good; nil where nothing is.
	Held map[string]string
	// Omitted are the fields that the Stargate release does not know.
	Omitted []render.Omission
	// Target is the Stargate revision that the present stage works towards.
	Target string
	// TargetData is its lb-config.json.
	TargetData []byte
}
