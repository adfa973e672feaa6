package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

// World is everything that a decision depends on: what was observed of the workloads, what is wanted, and
// the time.
type World struct {
	// Now is the time of the observation.
	Now time.Time

	// Plane and its settings.
	Plane Plane

	// Config is the effective configuration: the merge of the accepted policies.
	Config render.Config

	// Owners says from which policy each model is.
	Owners map[string]types.NamespacedName

	// ConfigChanged is when this process last saw Config change, and ConfigChanging when the burst of changes
	// that it belongs to began. Both are zero where no change was seen.
	ConfigChanged, ConfigChanging time.Time

	// Appeared is when this process first saw the plane, if the plane was new then; zero if it was not.
	Appeared time.Time

	// Stargate is the router's workload.
	Stargate Workload

	// Gateways in the order of the plane's spec.
	Gateways []Workload

	// Former are workloads that this plane manages by their annotation and that its spec names no longer.
	Former []Workload

	// Revisions of this plane that exist, by name.
	Revisions map[string]Revision

	// Figures are what was counted of Stargate's metrics, by the key of the sampling that the last plan asked for.
	Figures map[string]analysis.Figures

	// Preflight pods of this plane.
	Preflight Preflight
}

// Plane is the plane's identity and settings, with every default filled in.
type Plane struct {
	Namespace, Name string
	Generation      int64

	// Deleted is when deletion was asked for; zero if it was not.
	Deleted time.Time
	// NamespaceTerminating: the namespace is being deleted and nothing is to be held up.
	NamespaceTerminating bool

	Paused           bool
	Pin              string
	QuietPeriod      time.Duration
	MinInterval      time.Duration
	GatewayWarmup    time.Duration
	Waves            []intstr.IntOrString
	WaveInterval     time.Duration
	ProgressDeadline time.Duration
	// Analysis is the metric gate; nil where it is off.
	Analysis       *analysis.Settings
	Preflight      bool
	DeletionPolicy v1alpha1.DeletionPolicy
	HistoryLimit   int

	// ConfigPath and ConfigPathCheck of the spec's stargate.
	ConfigPath      string
	ConfigPathCheck v1alpha1.ConfigPathCheck

	// LastCluster of the spec.
	LastCluster v1alpha1.LastClusterSpec

	// Retry is the value of the annotation by which a person asks for another attempt.
	Retry string

	// Status as last written: what it records counts beside what the revisions carry.
	Status v1alpha1.RoutingPlaneStatus
}

// Revision is an immutable ConfigMap of the operator's.
type Revision struct {
	Name, UID, ResourceVersion string
	Created                    time.Time
	// Artefact: render.ArtefactStargate or render.ArtefactGateway.
	Artefact string
	// Data as stored.
	Data map[string]string
	// Intact is false where the data no longer has the hash in the name, or the ConfigMap is not immutable.
	Intact bool
	// Deleting: the ConfigMap is on its way out.
	Deleting bool
	// File is the parsed lb-config.json of a Stargate revision; nil where it cannot be read.
	File *lbconfig.File
	// Flags that are on in File.
	Flags render.Flags
	// Wave is the number of waves rolled out up to this revision.
	Wave int
	// Records is what the revision's annotation holds of each workload ("Kind/name").
	Records map[string]Record
	// Referenced: a ReplicaSet or ControllerRevision, in use or not, names the revision.
	Referenced bool
}

// Record is what cannot be observed anew about a workload on a revision.
type Record struct {
	// Applied is when the workload was last given the revision.
	Applied time.Time
	// Completed is when every pod was first seen ready on the revision, the last time that it was given it; before
	// Applied, it is of an earlier time. Zero if never.
	Completed time.Time
	// Template is the Foreign hash of the workload's template at Completed.
	Template string
	// Failed is when the revision was found to have failed; zero if it was not.
	Failed time.Time
	// Retry is the plane's Retry at Failed.
	Retry string
	// Message says how it failed.
	Message string
	// Gate is the metric gate of a wave; nil where the revision is none.
	Gate *v1alpha1.GateRecord
	// Change is the key of the one change that the revision made to the last good configuration; empty where it
	// made several.
	Change string
}

// complete tells whether the workload got all the way onto the revision since it was last given it.
func (r Record) complete() bool { return !r.Completed.IsZero() && !r.Completed.Before(r.Applied) }

// Workload is a workload as observed, with its pods.
type Workload struct {
	Kind, Name string
	// Found: it exists.
	Found bool
	// Deleting: it is on its way out.
	Deleting             bool
	UID, ResourceVersion string
	// Created is when the workload was made.
	Created            time.Time
	Generation         int64
	ObservedGeneration int64
	Replicas           int32
	Container          string
	// Problem is what keeps the operator from handling the workload and only a person can mend: the container
	// cannot be told, or the same variable is listed twice. Empty if there is none.
	Problem string
	// Hold is what keeps a new template from being rolled out for now: "paused", an OnDelete strategy, a
	// partition. Empty if nothing does.
	Hold string
	// Managed: the workload's annotation names this plane.
	Managed bool
	// OtherPlane is another existing plane that manages the workload, as namespace/name.
	OtherPlane string
	// Rivals are managers that own fields that the operator would set and never has.
	Rivals []Rival
	// Given is the revision that this process gave the workload last; empty if it gave none. Taken is how often in a
	// row somebody else changed the operator's fields after that and the operator took them back, TakenBack when it
	// last did, and TakenRetry the plane's Retry then.
	Given      string
	Taken      int
	TakenBack  time.Time
	TakenRetry string
	// Sharers are the other managers that own a part of the operator's fields.
	Sharers []string
	// RolledOut is Kubernetes' own word: the template was observed, and every wanted replica is updated,
	// ready and available, with no old one left.
	RolledOut bool
	// Template of the pods.
	Template Template
	// OtherTemplates are those of non-empty ReplicaSets, or of a StatefulSet's revisions that pods run, other
	// than Template.
	OtherTemplates []Template
	// Pods that the workload owns, terminating ones included, sorted by name.
	Pods []Pod
}

// Rival is a field manager that owns a field that the operator would set.
type Rival struct {
	Manager, Field string
}

// Template is what a pod template, or a pod's own spec, says of the things that the operator cares about.
type Template struct {
	Image   string
	Release release.Release

	// Revision of the operator's that is in it, completely: for Stargate by the volume and its mount, for a
	// gateway by all its variables. Empty if none, or if it is damaged.
	Revision string
	// Touched: some of the operator's fields are in it, complete or not.
	Touched bool

	// Foreign is a hash of the pod template less the operator's fields; empty for a pod's own spec.
	Foreign string

	// ReadsFile: Stargate's arguments name the plane's configPath (or the plane says that it knows), so that
	// the mounted revision is what Stargate reads. So it is where they name another path at which the operator's
	// file is mounted, as for a plane with another configPath.
	ReadsFile bool
	// Unread is what is known of the file that Stargate reads instead, where ReadsFile is false or Revision empty.
	Unread Unread

	// Memory of a gateway.
	Memory Memory
}

// Unread is what Stargate reads while that is no revision of the plane's.
type Unread struct {
	// Path in the arguments; empty where Stargate is given no file.
	Path string
	// File at Path, where it could be found in a ConfigMap and read.
	File *lbconfig.File
	// Flags that are on in File.
	Flags render.Flags
}

// Memory is a gateway's last-cluster memory as its variables and its release say.
type Memory struct {
	// On: STARGATE_LAST_CLUSTER_ENABLED is true, and the release, where one is known, has the memory.
	On bool
	// Unverified: on by its variable, and no release is known.
	Unverified bool
	// Unreadable names a source of variables that the operator may not read, which could set the memory.
	Unreadable string
	// Outdated names, of a pod, the ConfigMap that could switch the memory on, and was written after the pod started; the
	// memory counts as off then.
	Outdated string
	// Variables STARGATE_LAST_CLUSTER_* as they take effect; absent ones are unset.
	Variables map[string]string
}

// Pod is a pod as observed.
type Pod struct {
	Name, UID, ResourceVersion, Node string
	// IP is the address that its kubelet reports; empty before it does.
	IP string
	Template
	// Updated: the pod is of the workload's present template.
	Updated bool
	// Ready and since when. A terminating pod is never ready.
	Ready       bool
	ReadySince  time.Time
	Created     time.Time
	Terminating bool
	// Crash is set where a container of the pod exited repeatedly, or exited and is not back.
	Crash *Crash
	// Started: the container that the plane is about has started at least once.
	Started bool
	// Waiting says why a pod that is not ready is not: "Unschedulable", "ImagePullBackOff"; empty where
	// Kubernetes gives no reason.
	Waiting string
}

// Crash is a container's exit.
type Crash struct {
	Container string
	Restarts  int32
	// At is when it last exited; zero where the pod's status does not say.
	At time.Time
	// Message in the container's own words, as far as the pod's status has them.
	Message string
}

// Key of a workload in records: Kind/name.
func (w *Workload) Key() string { return w.Kind + "/" + w.Name }

// Templates are all templates that pods of the workload may still be made from or run: the present one, the
// others in use, and every pod's own.
func (w *Workload) templates() []Template {
	all := append([]Template{w.Template}, w.OtherTemplates...)
	for i := range w.Pods {
		all = append(all, w.Pods[i].Template)
	}
	return all
}
