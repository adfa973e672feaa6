package rollout

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// RetryAnnotation on a plane asks, with any new value, for another attempt at what failed.
const RetryAnnotation = "routing.nvcf.io/retry"

// Reasons of the plane's conditions.
const (
	ReasonUpToDate           = "UpToDate"
	ReasonSettled            = "Settled"
	ReasonPinned             = "Pinned"
	ReasonFlagsHeld          = "FlagsHeld"
	ReasonFlagsOn            = "FlagsOn"
	ReasonNoFlags            = "NoFlags"
	ReasonMemoryOn           = "MemoryOn"
	ReasonMemoryOff          = "MemoryOff"
	ReasonMemoryNotNeeded    = "MemoryNotNeeded"
	ReasonRollingOut         = "RollingOut"
	ReasonPodsNotReady       = "PodsNotReady"
	ReasonQuietPeriod        = "QuietPeriod"
	ReasonMinInterval        = "MinInterval"
	ReasonPreflight          = "Preflight"
	ReasonWarmup             = "Warmup"
	ReasonWaveInterval       = "WaveInterval"
	ReasonPaused             = "Paused"
	ReasonWorkloadHeld       = "WorkloadHeld"
	ReasonWorkloadNotFound   = "WorkloadNotFound"
	ReasonWorkloadProblem    = "WorkloadProblem"
	ReasonWorkloadTaken      = "WorkloadTaken"
	ReasonFieldOwned         = "FieldOwned"
	ReasonFieldContested     = "FieldContested"
	ReasonReleaseUnsupported = "ReleaseUnsupported"
	ReasonStargateTooOld     = "StargateTooOld"
	ReasonNoGateway          = "NoGateway"
	ReasonFileNotRead        = "FileNotRead"
	ReasonPinNotFound        = "PinNotFound"
	ReasonRevisionFailed     = "RevisionFailed"
	ReasonAnalysis           = "Analysis"
	ReasonAnalysisFailed     = "AnalysisFailed"
	ReasonDeleting           = "Deleting"
)

// verdict is the content of a condition.
type verdict struct {
	ok              bool
	unknown         bool
	reason, message string
}

// verdict that nothing but the reason stands in the way of.
func (r *reason) verdict() verdict { return verdict{reason: r.reason, message: r.message} }

func unknown(because verdict) verdict {
	return verdict{unknown: true, reason: because.reason, message: because.message}
}

// stall says what only a person can get further.
func (p *pass) stall(v *verdict, why, message string) {
	*v = verdict{reason: why, message: message}
	p.stalled = &reason{reason: why, message: message}
	p.note("stalled: %s", message)
}

func (p *pass) heldMessage() string {
	blame := ""
	if len(p.guilty) > 0 {
		blame = fmt.Sprintf("what %s changes is held at its last good version: ", strings.Join(p.guilty, ", "))
	}
	return fmt.Sprintf("%s%s failed on %s %s: %s; it is not tried again until a change makes another file, or the plane's annotation %s gets a new value",
		blame, p.held.revision, p.held.workload.Kind, p.held.workload.Name, p.held.record.Message, RetryAnnotation)
}

// finish fills in what the stages left open and composes the conditions.
func (p *pass) finish() {
	p.countFlags()
	p.warnOfUnread()
	if p.held != nil && len(p.trying) == 0 && p.stalled == nil {
		p.stalled = &reason{reason: p.held.record.failureReason(), message: p.heldMessage()}
	}
	if p.stargate == (verdict{}) {
		p.stargate = verdict{ok: true, reason: ReasonUpToDate, message: fmt.Sprintf("all %d pods run %s", p.w.Stargate.Replicas, p.w.Stargate.Template.Revision)}
	}
	if p.gateway == (verdict{}) {
		p.gateway = p.memoryVerdict()
	}
	if p.flags == (verdict{}) {
		p.flags = p.flagsVerdict()
	}
	if p.waitReason != "" && p.stalled == nil && p.w.Plane.Paused && p.plan.Waiting != nil {
		p.note("paused: nothing is changed until spec.rollout.paused is unset")
	}
	for _, condition := range []metav1.Condition{
		p.condition(v1alpha1.ConditionStargateReady, p.stargate),
		p.condition(v1alpha1.ConditionGatewayReady, p.gateway),
		p.condition(v1alpha1.ConditionFlagsReady, p.flags),
	} {
		meta.SetStatusCondition(&p.plan.Conditions, condition)
	}
	p.summary()
}

// summary sets Ready, Reconciling and Stalled after the kstatus conventions: Stalled and Reconciling exclude
// each other, and neither is true of what is Ready.
func (p *pass) summary() {
	ready := verdict{ok: true, reason: ReasonSettled, message: "everything that the policies ask for is in effect"}
	busy, stuck := verdict{reason: ReasonSettled}, verdict{reason: ReasonSettled}
	switch {
	case !p.w.Plane.Deleted.IsZero():
		message := "the plane is being taken out of its workloads"
		if p.plan.Waiting != nil {
			message += "; waiting for: " + p.plan.Waiting.For
		}
		ready = verdict{reason: ReasonDeleting, message: message}
		busy = verdict{ok: true, reason: ReasonDeleting, message: message}
	case p.stalled != nil:
		ready = verdict{reason: p.stalled.reason, message: p.stalled.message}
		stuck = verdict{ok: true, reason: p.stalled.reason, message: p.stalled.message}
		busy.reason, busy.message = p.stalled.reason, ""
	case p.waitReason != "":
		message := fmt.Sprintf("%s: waiting for: %s", p.plan.Stage, p.plan.Waiting.For)
		if p.held != nil {
			message += fmt.Sprintf("; %s failed (%s), and what it changed is tried apart", p.held.revision, p.held.record.Message)
		}
		ready = verdict{reason: p.waitReason, message: message}
		busy = verdict{ok: true, reason: p.waitReason, message: message}
	case !p.flags.ok:
		ready.reason, ready.message = ReasonFlagsHeld, "in effect but for flags: "+p.flags.message
	case p.w.Plane.Pin != "":
		ready.reason, ready.message = ReasonPinned, fmt.Sprintf("held at %s by spec.rollout.pin, whatever the policies say; empty it to follow them again", p.w.Plane.Pin)
	}
	meta.SetStatusCondition(&p.plan.Conditions, p.condition(v1alpha1.ConditionReady, ready))
	meta.SetStatusCondition(&p.plan.Conditions, p.condition(v1alpha1.ConditionReconciling, busy))
	meta.SetStatusCondition(&p.plan.Conditions, p.condition(v1alpha1.ConditionStalled, stuck))
}

func (p *pass) condition(kind string, v verdict) metav1.Condition {
	status := metav1.ConditionFalse
	switch {
	case v.unknown:
		status = metav1.ConditionUnknown
	case v.ok:
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: v.reason, Message: v.message,
		ObservedGeneration: p.w.Plane.Generation, LastTransitionTime: metav1.Time{Time: p.w.Now}}
}

// countFlags counts units: those desired, and those of which every flag is on in every live Stargate pod.
func (p *pass) countFlags() {
	wanted := render.Desired(p.plan.Config)
	flags := v1alpha1.FlagsStatus{Desired: int32(len(render.Units(wanted))), Wave: int32(p.w.Revisions[p.w.Stargate.Template.Revision].Wave)}
	pending := render.Units(wanted.Difference(p.running()))
	flags.On = flags.Desired - int32(len(pending))
	flags.Pending = capped(pending, unitName)
	p.plan.Flags = flags
}

// running are the flags that are on in every live Stargate pod, as far as they read the operator's file.
func (p *pass) running() render.Flags {
	sg := &p.w.Stargate
	on := p.w.Revisions[sg.Template.Revision].Flags
	if !sg.Template.ReadsFile {
		on = nil
	}
	for i := range sg.Pods {
		if pod := &sg.Pods[i]; !pod.Terminating {
			on = on.Intersection(p.w.Revisions[pod.Revision].Flags)
		}
	}
	return on
}

func (p *pass) flagsVerdict() verdict {
	switch flags := p.plan.Flags; {
	case flags.Desired == 0:
		return verdict{ok: true, reason: ReasonNoFlags, message: "no policy asks for lastClusterAffinity"}
	case flags.On == flags.Desired:
		return verdict{ok: true, reason: ReasonFlagsOn, message: fmt.Sprintf("all %d are on in every Stargate pod", flags.Desired)}
	default:
		return verdict{reason: ReasonRollingOut, message: fmt.Sprintf("%d of %d are on in every Stargate pod", flags.On, flags.Desired)}
	}
}

func conditionOf(status v1alpha1.RoutingPlaneStatus, kind string) *metav1.Condition {
	return meta.FindStatusCondition(status.Conditions, kind)
}
