package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/routing-operator/routing-operator/internal/render"
)

// Preflight is what was observed of preflight pods: throwaway pods of Stargate's template that load a file before any
// pod that serves is replaced.
type Preflight struct {
	// Problem says why none can be made of Stargate's template; empty where one can.
	Problem string
	// Pods of the plane, terminating ones included, sorted by name.
	Pods []PreflightPod
	// Refusal of the API server to make the last one, as far as this process remembers; nil if there was none.
	Refusal *PreflightRefusal
}

// PreflightPod is a preflight pod as observed. It never is Ready.
type PreflightPod struct {
	Pod
	// Made is the Foreign hash of the template that it was made from.
	Made string
	// Loaded: Stargate logged that it has loaded its file, or is ready in its own judgement.
	Loaded bool
	// Ended says in Kubernetes' word why the pod will run nothing any more, such as "Evicted"; empty while it may.
	Ended string
}

// PreflightRefusal is a preflight pod that could not be made.
type PreflightRefusal struct {
	// Revision to load, and the Foreign hash of the template.
	Revision, Template string
	// First and Last refusal in a row.
	First, Last time.Time
	// Message of the API server.
	Message string
}

const (
	// preflightPoll is how often a preflight pod that runs is looked at: nobody tells when a line is logged.
	preflightPoll = time.Second
	// preflightRetry is how often a pod that was refused, for a quota say, is asked for again.
	preflightRetry = time.Minute
)

// refused tells whether Stargate exits in the pod every time that it starts.
func (pod *PreflightPod) refused() bool {
	return !pod.Loaded && pod.Ended == "" && !pod.Terminating && pod.Crash != nil && pod.Crash.Restarts >= crashLoop
}

func (pod *PreflightPod) state() string {
	switch {
	case pod.Terminating:
		return "is terminating"
	case pod.Crash != nil:
		return fmt.Sprintf("exits (%d restarts)", pod.Crash.Restarts)
	}
	return cmp.Or(pod.Waiting, "has not loaded it yet")
}

// preflightPod is the one that loads the revision in Stargate's present template.
func (p *pass) preflightPod(revision string) *PreflightPod {
	for i := range p.w.Preflight.Pods {
		if pod := &p.w.Preflight.Pods[i]; pod.Revision == revision && pod.Made == p.w.Stargate.Template.Foreign {
			return pod
		}
	}
	return nil
}

// outdated tells whether the pod was made for an attempt that has failed since, or for a revision that was deleted: how it
// fares says nothing about what is wanted now.
func (p *pass) outdated(pod *PreflightPod) bool {
	_, there := p.w.Revisions[pod.Revision]
	failed := p.recordOf(pod.Revision, &p.w.Stargate).Failed
	return !there || !failed.IsZero() && !pod.Created.After(failed)
}

// preflight is the last gate before Stargate is given a file for which waiting is no harm: a preflight pod must have
// loaded it, unless Stargate's own pods have, in the same template. What gives no answer within the progress deadline,
// or cannot be asked at all, holds nothing up: the rollout itself goes pod by pod and stops at the first that fails.
func (p *pass) preflight(name string, data map[string]string, wave int) *reason {
	sg := &p.w.Stargate
	record := p.recordOf(name, sg)
	switch proven := !record.Completed.IsZero() && record.Template == sg.Template.Foreign; {
	case !p.w.Plane.Preflight || !sg.Template.ReadsFile || proven:
		return nil
	case p.w.Preflight.Problem != "":
		p.unasked = ", without a preflight: no pod can be made for it, since " + p.w.Preflight.Problem
		return nil
	}
	record.Change = p.soleChange(data)
	waits, without := p.ask(name, "the file", p.control, Step{Kind: StepEnsureRevision, Workload: sg, Revision: name, Artefact: render.ArtefactStargate, Data: data, Wave: wave, Record: record})
	if without != "" {
		p.unasked = ", without a preflight: " + without
	}
	return waits
}

// ask says what the preflight of a revision waits for, or why it gives no answer; neither where it has loaded. Where
// Stargate exits in the pod, it is for refused to say. The steps come before the one that makes the pod.
func (p *pass) ask(name, what string, refused func(*PreflightPod) (*reason, string), before ...Step) (waits *reason, without string) {
	deadline := p.w.Plane.ProgressDeadline
	wait := func(since time.Time, format string, args ...any) *reason {
		return &reason{reason: ReasonPreflight, message: fmt.Sprintf(format, args...), until: since.Add(deadline)}
	}
	pod := p.preflightPod(name)
	if pod == nil {
		since := p.w.Now
		if r := p.w.Preflight.Refusal; r != nil && r.Revision == name && r.Template == p.w.Stargate.Template.Foreign {
			if since = r.First; !p.w.Now.Before(since.Add(deadline)) {
				return nil, fmt.Sprintf("for %s its pod could not be made: %s", deadline, r.Message)
			}
			if again := r.Last.Add(preflightRetry); p.w.Now.Before(again) {
				p.requeue(again)
				return wait(since, "a preflight pod, which could not be made: %s", r.Message), ""
			}
		}
		why := fmt.Sprintf("preflight: a throwaway pod of %s %s loads %s, %s, before any pod is replaced", p.w.Stargate.Kind, p.w.Stargate.Name, what, name)
		for _, step := range append(before, Step{Kind: StepPreflight, Workload: &p.w.Stargate, Revision: name, Artefact: render.ArtefactStargate}) {
			step.Why = why
			p.step(step)
		}
		return wait(since, "a preflight pod to load %s", name), ""
	}
	switch {
	case pod.Loaded:
		return nil, ""
	case p.outdated(pod) && !pod.Terminating: // then this pass deletes it
		return &reason{reason: ReasonPreflight, message: fmt.Sprintf("preflight pod %s, which was made for an earlier attempt, to go", pod.Name)}, ""
	case pod.Ended != "":
		return nil, fmt.Sprintf("pod %s ended (%s)", pod.Name, pod.Ended)
	case pod.refused():
		waits, without = refused(pod)
	case !p.w.Now.Before(pod.Created.Add(deadline)):
		return nil, fmt.Sprintf("pod %s gave no answer for %s: it %s", pod.Name, deadline, pod.state())
	default:
		waits = wait(pod.Created, "preflight pod %s to load %s: %s", pod.Name, name, pod.state())
		if pod.Started && !pod.Terminating {
			p.requeue(p.w.Now.Add(preflightPoll))
		}
	}
	if waits != nil {
		p.asked = append(p.asked, pod.Name)
	}
	return waits, without
}

// control asks whether the last good file is loaded where another was refused. Only then is it the file: a preflight
// pod lacks things that pods which serve have.
func (p *pass) control(refused *PreflightPod) (waits *reason, without string) {
	good := p.lastGood(&p.w.Stargate)
	if good == nil {
		return nil, fmt.Sprintf("pod %s exits, and there is no good file to compare with: %s", refused.Name, refused.Crash.Message)
	}
	too := func(pod *PreflightPod) (*reason, string) {
		return nil, fmt.Sprintf("pod %s exits too: %s", pod.Name, pod.Crash.Message)
	}
	if waits, without = p.ask(good.Name, "for comparison the last good file", too); without != "" {
		without = fmt.Sprintf("pod %s exits, which says nothing about the file, for there is no comparison with the last good one: %s", refused.Name, without)
	}
	return waits, without
}

// recordPreflights notes files that were refused in a pod like that in which the last good one was loaded: these
// revisions have failed, as if Stargate's own pods had exited.
func (p *pass) recordPreflights() {
	sg := &p.w.Stargate
	good := p.lastGood(sg)
	if !p.w.Plane.Preflight || good == nil {
		return
	}
	if control := p.preflightPod(good.Name); control == nil || !control.Loaded {
		return
	}
	for i := range p.w.Preflight.Pods {
		pod := &p.w.Preflight.Pods[i]
		record, failed := p.failed(pod.Revision, sg)
		if failed || !pod.refused() || p.outdated(pod) || pod.Made != sg.Template.Foreign {
			continue
		}
		record.Failed, record.Retry = p.w.Now, p.w.Plane.Retry
		record.Message = fmt.Sprintf("container %s of preflight pod %s exits at start, no other pod was replaced: %s", pod.Crash.Container, pod.Name, pod.Crash.Message)
		p.write(pod.Revision, sg, record, fmt.Sprintf("%s failed in the preflight of %s %s: %s", pod.Revision, sg.Kind, sg.Name, record.Message))
	}
}

// tidyPreflights deletes the preflight pods that nothing waits for, whatever the reason, and says where the setting
// has no effect.
func (p *pass) tidyPreflights() {
	for i := range p.w.Preflight.Pods {
		if pod := &p.w.Preflight.Pods[i]; !pod.Terminating && !slices.Contains(p.asked, pod.Name) {
			p.step(Step{Kind: StepDeletePreflight, Pod: &pod.Pod, Why: fmt.Sprintf("preflight pod %s is no longer needed", pod.Name)})
		}
	}
	if sg := &p.w.Stargate; p.w.Plane.Preflight && p.w.Preflight.Problem != "" {
		p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("spec.rollout.preflight has no effect: no preflight pod can be made of the template of %s %s, since %s",
			sg.Kind, sg.Name, p.w.Preflight.Problem))
	}
}
