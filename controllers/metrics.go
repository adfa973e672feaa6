package controllers

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

var stages = []v1alpha1.Stage{
	v1alpha1.StageBase, v1alpha1.StageGatewayMemory, v1alpha1.StageWarmup, v1alpha1.StageFlags, v1alpha1.StageSettled,
	v1alpha1.StageWithdrawFlags, v1alpha1.StageWithdrawMemory, v1alpha1.StageRelease,
}

// interlocks are the reasons for which flags that are asked for must not be on.
var interlocks = map[string]bool{rollout.ReasonMemoryOff: true, rollout.ReasonStargateTooOld: true, rollout.ReasonNoGateway: true}

// planeMetrics are the metrics of planes. They go with the plane.
type planeMetrics struct {
	stage, ready, stalled         *prometheus.GaugeVec
	flags, models                 *prometheus.GaugeVec
	transitions, failures, locked *prometheus.CounterVec
	verdicts                      *prometheus.CounterVec
	rollouts                      *prometheus.HistogramVec
	lastInterlock                 *prometheus.GaugeVec
}

func planeMetricsOn(registry prometheus.Registerer) *planeMetrics {
	plane := func(more ...string) []string { return append([]string{"namespace", "plane"}, more...) }
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return register(registry, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "routing_operator_" + name, Help: help}, plane(labels...)))
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(registry, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "routing_operator_" + name, Help: help}, plane(labels...)))
	}
	return &planeMetrics{
		stage:         gauge("plane_stage", "1 for the stage that the plane is in, 0 for the others.", "stage"),
		ready:         gauge("plane_ready", "1 where the plane is in effect as specified."),
		stalled:       gauge("plane_stalled", "1 where only a person gets the plane further."),
		flags:         gauge("plane_flags", "Units of lastClusterAffinity flags: desired, and on in every Stargate pod.", "state"),
		models:        gauge("plane_models", "Models in the effective configuration."),
		lastInterlock: gauge("plane_interlocked", "1 while flags that are asked for must not be on."),
		transitions:   counter("plane_transitions_total", "Changes of stage, by the stage that was entered.", "stage"),
		failures:      counter("rollout_failures_total", "Revisions that failed on a workload."),
		verdicts:      counter("metric_gates_total", "Waves that were judged by their metrics, by verdict.", "verdict"),
		locked:        counter("interlocks_total", "Times that flags had to be held or withdrawn, by reason.", "reason"),
		rollouts: register(registry, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "routing_operator_rollout_duration_seconds", Help: "Time from the change of a workload's template to its completion.",
			Buckets: []float64{5, 15, 30, 60, 120, 300, 600, 1200, 3600},
		}, plane("workload"))),
	}
}

// register returns what is registered already where several managers share a registry.
func register[C prometheus.Collector](registry prometheus.Registerer, collector C) C {
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](registry.Register(collector)); ok {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	return collector
}

// observe sets the gauges and counts what changed in a pass.
func (p *planeMetrics) observe(plane *v1alpha1.RoutingPlane, done []rollout.Step, stageChanged bool, m *memory, now time.Time) {
	of := func(more ...string) []string { return append([]string{plane.Namespace, plane.Name}, more...) }
	status := &plane.Status
	for _, stage := range stages {
		p.stage.WithLabelValues(of(string(stage))...).Set(number(stage == status.Stage))
	}
	if stageChanged {
		p.transitions.WithLabelValues(of(string(status.Stage))...).Inc()
	}
	p.ready.WithLabelValues(of()...).Set(number(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)))
	p.stalled.WithLabelValues(of()...).Set(number(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled)))
	p.flags.WithLabelValues(of("desired")...).Set(float64(status.Flags.Desired))
	p.flags.WithLabelValues(of("on")...).Set(float64(status.Flags.On))
	p.models.WithLabelValues(of()...).Set(float64(status.Models))
	lock := ""
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionFlagsReady); c != nil && interlocks[c.Reason] {
		lock = c.Reason
	}
	p.lastInterlock.WithLabelValues(of()...).Set(number(lock != ""))
	if lock != "" && lock != m.interlock {
		p.locked.WithLabelValues(of(lock)...).Inc()
	}
	m.interlock = lock
	for i := range done {
		if verdict := done[i].Verdict; verdict != "" {
			p.verdicts.WithLabelValues(of(string(verdict))...).Inc()
		}
		switch step := &done[i]; {
		case step.Kind == rollout.StepApply || step.Kind == rollout.StepLetGo:
			m.started[step.Workload.Key()] = now
		case step.Kind == rollout.StepRecord && !step.Record.Failed.IsZero():
			if !step.Record.Failed.Equal(now) {
				break // of a failure that is known, whose it is
			}
			p.failures.WithLabelValues(of()...).Inc()
			delete(m.started, step.Workload.Key())
		case step.Kind == rollout.StepRecord:
			if started, ok := m.started[step.Workload.Key()]; ok {
				p.rollouts.WithLabelValues(of(step.Workload.Key())...).Observe(now.Sub(started).Seconds())
				delete(m.started, step.Workload.Key())
			}
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (p *planeMetrics) forget(plane types.NamespacedName) {
	labels := prometheus.Labels{"namespace": plane.Namespace, "plane": plane.Name}
	for _, vector := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{p.stage, p.ready, p.stalled, p.flags, p.models, p.lastInterlock, p.transitions, p.failures, p.locked, p.verdicts, p.rollouts} {
		vector.DeletePartialMatch(labels)
	}
}
