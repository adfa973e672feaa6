package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/internal/release"
)

// reason is why something is not done: a word for programs and a sentence for people.
type reason struct {
	reason, message string
	// until is when time alone lifts the reason; zero if it does not.
	until time.Time
}

// Release of the image in the workload's template.
func (w *Workload) Release() release.Release { return w.Template.Release }

// updated counts the live pods of the present template that are ready.
func (w *Workload) updated() (ready int32) {
	for i := range w.Pods {
		if pod := &w.Pods[i]; pod.Updated && pod.Ready && !pod.Terminating {
			ready++
		}
	}
	return ready
}

// settled tells whether Kubernetes and the pods agree that the workload's template is completely rolled out.
// Terminating pods of an earlier template do not count against it.
func (w *Workload) settled() bool {
	if !w.Found || w.Deleting || !w.RolledOut || w.updated() < w.Replicas {
		return false
	}
	return len(w.old()) == 0
}

// progressed is when the workload's pods last got any further.
func (w *Workload) progressed() (last time.Time) {
	for i := range w.Pods {
		for _, t := range []time.Time{w.Pods[i].Created, w.Pods[i].ReadySince} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

// crash finds a crashing pod of the present template.
func (w *Workload) crash() *Pod {
	for i := range w.Pods {
		if pod := &w.Pods[i]; pod.Updated && !pod.Terminating && pod.Crash != nil {
			return pod
		}
	}
	return nil
}

// old are the live pods that are not of the present template.
func (w *Workload) old() (old []*Pod) {
	for i := range w.Pods {
		if pod := &w.Pods[i]; !pod.Terminating && !pod.Updated {
			old = append(old, pod)
		}
	}
	return old
}

// progress says how far the rollout of the workload is, and what the slowest pod waits for.
func (w *Workload) progress() string {
	text := fmt.Sprintf("%s %s: %d of %d pods ready on the new template", w.Kind, w.Name, w.updated(), w.Replicas)
	if trouble := w.trouble(); trouble != "" {
		return text + trouble
	}
	old := w.old()
	if len(old) == 0 {
		return text
	}
	text += fmt.Sprintf(", %d left on the old one", len(old))
	if i := slices.IndexFunc(old, func(pod *Pod) bool { return pod.Crash != nil }); i >= 0 {
		text += "; of these, " + old[i].exits()
	}
	return text
}

// trouble says of the first pod of the present template for which there is something to say why it is not ready.
func (w *Workload) trouble() string {
	for i := range w.Pods {
		switch pod := &w.Pods[i]; {
		case pod.Terminating || !pod.Updated:
		case pod.Crash != nil:
			return "; " + pod.exits()
		case pod.Waiting != "":
			return fmt.Sprintf("; pod %s: %s", pod.Name, pod.Waiting)
		}
	}
	return ""
}

// wordsShown bounds, in bytes, what is repeated of a container's own words where nothing is judged by them.
const wordsShown = 512

// exits says so of a pod that does, in the container's own words where there are any.
func (pod *Pod) exits() string {
	text := fmt.Sprintf("pod %s exits (%d restarts)", pod.Name, pod.Crash.Restarts)
	words := strings.Join(strings.Fields(pod.Crash.Message), " ")
	if len(words) > wordsShown {
		words = strings.ToValidUTF8(words[:wordsShown], "") + " ..."
	}
	if words == "" {
		return text
	}
	return fmt.Sprintf("%s, container %s: %s", text, pod.Crash.Container, words)
}

// short tells whether the workload only lacks pods, or has some to spare: it was scaled, a node was drained, a pod was
// lost. Its template was completely rolled out before, whoever did, or nothing in it is the operator's; nothing rolls.
func (p *pass) short(w *Workload) bool {
	if !w.Found || w.Deleting || w.settled() || len(w.old()) > 0 {
		return false
	}
	record := p.recordOf(w.Template.Revision, w)
	untouched := !w.Managed && w.Template.Revision == ""
	return untouched || record.complete() && record.Template == w.Template.Foreign
}

// unsettled says why the workload is not settled; nil where it is.
func (p *pass) unsettled(w *Workload) *reason {
	switch {
	case w.settled():
		return nil
	case p.short(w):
		return &reason{reason: ReasonPodsNotReady, message: fmt.Sprintf("%s %s has %d ready pods and wants %d%s", w.Kind, w.Name, w.updated(), w.Replicas, w.trouble())}
	}
	return &reason{reason: ReasonRollingOut, message: w.progress()}
}

// workloads of the plane that exist.
func (p *pass) workloads() []*Workload {
	all := []*Workload{&p.w.Stargate}
	for i := range p.w.Gateways {
		all = append(all, &p.w.Gateways[i])
	}
	for i := range p.w.Former {
		all = append(all, &p.w.Former[i])
	}
	found := all[:0]
	for _, w := range all {
		if w.Found && !w.Deleting {
			found = append(found, w)
		}
	}
	return found
}

// rolling tells whether the operator's own change to the workload is still being rolled out. A workload that still names
// the plane and has none of its fields is being let go of, unless somebody else took them out, which looks the same.
func (p *pass) rolling(w *Workload) bool {
	switch {
	case w.settled() || !w.Managed:
		return false
	case w.Template.Revision == "":
		return !w.Touched()
	}
	return !p.recordOf(w.Template.Revision, w).complete()
}

// mayRoll is the gate before any new template of the operator's. urgent changes wait for nothing but the
// operator's own rollouts of other workloads (I3): they are those where waiting cannot help.
func (p *pass) mayRoll(w *Workload, urgent bool) *reason {
	if p.w.Plane.Paused {
		return &reason{reason: ReasonPaused, message: "spec.rollout.paused is set; nothing is changed until it is unset"}
	}
	if r := p.undecided(); r != nil && !urgent {
		return r
	}
	if w.Hold != "" {
		return &reason{reason: ReasonWorkloadHeld, message: fmt.Sprintf("%s %s %s; the operator waits until a new template would be rolled out", w.Kind, w.Name, w.Hold)}
	}
	if r := p.contested(w); r != nil {
		return r
	}
	for _, other := range p.workloads() {
		if r := p.unsettled(other); r != nil && (!urgent || other.Key() != w.Key() && p.rolling(other)) {
			return r
		}
	}
	return nil
}

// How long a manager that keeps changing the operator's fields is given way to, after how many takings.
const (
	takingsBorne  = 3
	shortestTruce = 5 * time.Minute
	longestTruce  = time.Hour
)

// contested is the gate that keeps the operator from fighting with another manager: a change each would be a rollout
// each. Somebody who asks for another attempt has it at once.
func (p *pass) contested(w *Workload) *reason {
	if w.Taken < takingsBorne || w.Template.Revision == w.Given || w.TakenRetry != p.w.Plane.Retry || !p.w.Plane.Deleted.IsZero() {
		return nil
	}
	truce := min(shortestTruce<<min(w.Taken-takingsBorne, 4), longestTruce)
	rivals := sets.New[string]()
	for _, manager := range w.Sharers {
		rivals.Insert(fmt.Sprintf("field manager %q", manager))
	}
	for _, rival := range w.Rivals {
		rivals.Insert(fmt.Sprintf("field manager %q", rival.Manager))
	}
	who := strings.Join(sets.List(rivals), ", ")
	if who == "" {
		who = "somebody"
	}
	r := p.notBefore(w.TakenBack.Add(truce), ReasonFieldContested, fmt.Sprintf(
		"%s keeps changing the operator's fields of %s %s, which were taken back %d times; the operator leaves them until it tries again, so as not to restart the pods over and over: make it leave them alone (kubectl get -o yaml --show-managed-fields tells who) and give the plane's annotation %s a new value, or take the workload out of the plane",
		who, w.Kind, w.Name, w.Taken, RetryAnnotation))
	if r != nil {
		p.stalled = r
	}
	return r
}

// quiet is the gate that makes one rollout of a burst of changes.
func (p *pass) quiet() *reason {
	if p.w.ConfigChanged.IsZero() {
		return nil
	}
	until := p.w.ConfigChanged.Add(p.w.Plane.QuietPeriod)
	if limit := p.w.ConfigChanging.Add(6 * p.w.Plane.QuietPeriod); limit.Before(until) {
		until = limit
	}
	return p.notBefore(until, ReasonQuietPeriod, "no further change for "+p.w.Plane.QuietPeriod.String())
}

// appeared is the gate that lets a plane that has just come, from a backup say, wait for its policies before it takes
// anything away.
func (p *pass) appeared() *reason {
	if p.w.Appeared.IsZero() {
		return nil
	}
	return p.notBefore(p.w.Appeared.Add(p.w.Plane.QuietPeriod), ReasonQuietPeriod, "the policies of a new plane for "+p.w.Plane.QuietPeriod.String())
}

// interval is the gate between two rollouts of Stargate's configuration.
func (p *pass) interval() *reason {
	last := p.completedAt(&p.w.Stargate)
	if last.IsZero() || p.w.Plane.MinInterval == 0 {
		return nil
	}
	return p.notBefore(last.Add(p.w.Plane.MinInterval), ReasonMinInterval, "spec.rollout.minInterval since the last rollout of Stargate")
}

func (p *pass) notBefore(until time.Time, why, what string) *reason {
	if !p.w.Now.Before(until) {
		return nil
	}
	return &reason{reason: why, message: what, until: until}
}

// always is the gate that is open.
func (p *pass) always() *reason { return nil }

// first returns the first reason there is.
func first(gates ...func() *reason) *reason {
	for _, gate := range gates {
		if r := gate(); r != nil {
			return r
		}
	}
	return nil
}

// knowsHeader is the gate of I2: everything of Stargate that lives or may come to live consumes the header.
func (p *pass) knowsHeader() *reason {
	sg := &p.w.Stargate
	if g := sg.Release().Generation; g < release.V3 {
		return &reason{reason: ReasonStargateTooOld, message: fmt.Sprintf(
			"%s %s runs Stargate %s (generation %s), which does not know last_cluster_affinity; it takes generation V3: upgrade Stargate, or state the image's release in spec.stargate.releases",
			sg.Kind, sg.Name, sg.Release().Version, g)}
	}
	for i := range sg.Pods {
		if pod := &sg.Pods[i]; pod.Release.Generation < release.V3 {
			return &reason{reason: ReasonStargateTooOld, message: fmt.Sprintf("pod %s%s still runs Stargate %s, which does not know the header", pod.Name, onNode(pod), pod.Release.Version)}
		}
	}
	for _, t := range sg.OtherTemplates {
		if t.Release.Generation < release.V3 {
			return &reason{reason: ReasonStargateTooOld, message: fmt.Sprintf("%s %s still has pods of a template with Stargate %s, which does not know the header", sg.Kind, sg.Name, t.Release.Version)}
		}
	}
	return nil
}

// flagsAllowed is the gate of I1.
func (p *pass) flagsAllowed() *reason {
	if len(p.w.Gateways) == 0 {
		return &reason{reason: ReasonNoGateway, message: "the plane names no gateway; without one, nothing remembers a session's last cluster: add it to spec.gateways"}
	}
	if r := p.knowsHeader(); r != nil {
		return r
	}
	for i := range p.w.Gateways {
		g := &p.w.Gateways[i]
		if !g.Found || g.Deleting {
			return &reason{reason: ReasonWorkloadNotFound, message: fmt.Sprintf("%s %s does not exist in namespace %s", g.Kind, g.Name, p.w.Plane.Namespace)}
		}
		if r := g.taken(); r != nil {
			return r
		}
		if !g.Template.Memory.On {
			return &reason{reason: ReasonMemoryOff, message: fmt.Sprintf("%s %s does not have the memory of the last cluster on%s", g.Kind, g.Name, unreadable(g.Template.Memory))}
		}
		for j := range g.Pods {
			if pod := &g.Pods[j]; !pod.Memory.On {
				return pod.forgets()
			}
		}
		for _, t := range g.OtherTemplates {
			if !t.Memory.On {
				return &reason{reason: ReasonMemoryOff, message: fmt.Sprintf("%s %s still has a template in use without the memory of the last cluster", g.Kind, g.Name)}
			}
		}
	}
	return nil
}

// forgets says that a gateway's pod has the memory off.
func (pod *Pod) forgets() *reason {
	since := ""
	if pod.Memory.Outdated != "" {
		since = fmt.Sprintf(": it may have started before ConfigMap %s switched it on, and would have it after a restart", pod.Memory.Outdated)
	}
	return &reason{reason: ReasonMemoryOff, message: fmt.Sprintf("gateway pod %s%s still runs without the memory of the last cluster%s", pod.Name, onNode(pod), since)}
}

// outdated finds a live pod of the present template that lacks a memory which a new one would have.
func (w *Workload) outdated() *Pod {
	for i := range w.Pods {
		if pod := &w.Pods[i]; pod.Updated && !pod.Terminating && pod.Memory.Outdated != "" {
			return pod
		}
	}
	return nil
}

func unreadable(m Memory) string {
	if m.Unreadable == "" {
		return ""
	}
	return ", as far as can be seen (" + m.Unreadable + " is not readable for the operator)"
}

func onNode(pod *Pod) string {
	switch {
	case pod.Terminating && pod.Node != "":
		return " (terminating, on node " + pod.Node + ")"
	case pod.Terminating:
		return " (terminating)"
	case pod.Node != "":
		return " on node " + pod.Node
	}
	return ""
}
