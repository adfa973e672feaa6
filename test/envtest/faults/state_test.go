package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// state is all that the operator has brought about in a namespace, in lines that are the same wherever and whenever it
// was brought about: no times, no names that are made up.
type state []string

func stateOf(objects []client.Object) state {
	var s state
	for _, o := range objects {
		add := func(format string, args ...any) {
			s = append(s, fmt.Sprintf("%s %s ", strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), o.GetName())+fmt.Sprintf(format, args...))
		}
		switch o := o.(type) {
		case *v1alpha1.RoutingPlane:
			describePlane(o, add)
		case *v1alpha1.RoutingPolicy:
			describeConditions(o.Generation, o.Status.ObservedGeneration, o.Status.Conditions, add)
			add("%s on %t", o.Status.Summary, o.Status.Plane != "")
			for _, m := range o.Status.Models {
				add("model %s %s %t %t", m.Name, m.State, m.LastClusterAffinity, m.EffectiveLastClusterAffinity)
			}
		case *appsv1.Deployment:
			describeWorkload(o, &o.Spec.Template.Spec, add)
		case *appsv1.StatefulSet:
			describeWorkload(o, &o.Spec.Template.Spec, add)
		case *corev1.ConfigMap:
			if o.Labels["app.kubernetes.io/managed-by"] == "routing-operator" {
				add("%v wave %s records %s", o.Labels, o.Annotations["routing.nvcf.io/wave"], timeless(o.Annotations["routing.nvcf.io/records"]))
			}
		case *appsv1.ControllerRevision:
			if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "RoutingPolicy" {
				s = append(s, fmt.Sprintf("accepted version %d of %s", o.Revision, owner.Name))
			}
		}
	}
	slices.Sort(s)
	return s
}

func describeConditions(generation, observed int64, conditions []metav1.Condition, add func(string, ...any)) {
	add("generation %d observed %d", generation, observed)
	for i := range conditions {
		c := &conditions[i]
		add("%s=%s %s of generation %d", c.Type, c.Status, c.Reason, c.ObservedGeneration)
	}
}

func describePlane(o *v1alpha1.RoutingPlane, add func(string, ...any)) {
	status := &o.Status
	describeConditions(o.Generation, status.ObservedGeneration, status.Conditions, add)
	add("finalizers %v", o.Finalizers)
	add("stage %s, %d policies, %d models, flags %+v", status.Stage, status.Policies, status.Models, status.Flags)
	if status.Waiting != nil {
		add("waits for %s", status.Waiting.For)
	}
	if status.Stargate != nil {
		add("stargate %+v", *status.Stargate)
	}
	add("gateways %+v", status.Gateways)
	for i := range status.Records {
		r := &status.Records[i]
		add("record of %s on %s: applied %t, completed %t on %s, failed %t", r.Workload, r.Revision, r.AppliedAt != nil, r.CompletedAt != nil, r.Template, r.FailedAt != nil)
	}
}

func describeWorkload(o client.Object, spec *corev1.PodSpec, add func(string, ...any)) {
	c := &spec.Containers[0]
	add("generation %d of plane %q, file %q", o.GetGeneration(), o.GetAnnotations()["routing.nvcf.io/plane"], fileOf(spec))
	for _, variable := range c.Env {
		from := ""
		if variable.ValueFrom != nil && variable.ValueFrom.ConfigMapKeyRef != nil {
			from = variable.ValueFrom.ConfigMapKeyRef.Name
		}
		add("variable %s=%s from %q", variable.Name, variable.Value, from)
	}
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == "routing-operator" {
			add("owned by %s", entry.Operation)
		}
	}
}

// timeless are a revision's records without times, and without what names pods and namespaces.
func timeless(records string) string {
	var all map[string]map[string]any
	if err := json.Unmarshal([]byte(records), &all); err != nil {
		return records
	}
	for _, record := range all {
		for key := range record {
			if key != "template" {
				record[key] = true
			}
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// differs says in which lines the state is not the one that is wanted; empty where it is.
func (s state) differs(wanted state) string {
	var lines []string
	for _, line := range wanted {
		if !slices.Contains(s, line) {
			lines = append(lines, "missing: "+line)
		}
	}
	for _, line := range s {
		if !slices.Contains(wanted, line) {
			lines = append(lines, "not wanted: "+line)
		}
	}
	return strings.Join(lines, "\n")
}
