package workload

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// gatewayRevision tells which revision of the plane all the variables come from, and whether any does.
func (r *Reader) gatewayRevision(container *corev1.Container) (revision string, touched bool) {
	names := map[string]int{}
	complete := 0
	for i := range container.Env {
		env := &container.Env[i]
		if !slices.Contains(render.GatewayVariableNames(), env.Name) {
			continue
		}
		ref := configMapRef(env)
		if ref == nil || !IsRevision(r.Plane, render.ArtefactGateway, ref.Name) {
			continue
		}
		touched = true
		if env.Value == "" && ref.Key == env.Name && !ptr.Deref(ref.Optional, false) {
			names[ref.Name]++
			complete++
			revision = ref.Name
		}
	}
	if complete != len(render.GatewayVariableNames()) || len(names) != 1 {
		return "", touched
	}
	return revision, touched
}

func configMapRef(env *corev1.EnvVar) *corev1.ConfigMapKeySelector {
	if env.ValueFrom == nil {
		return nil
	}
	return env.ValueFrom.ConfigMapKeyRef
}

// memory evaluates the gateway's variables as Kubernetes and the gateway do.
func (r *Reader) memory(container *corev1.Container, generation release.Generation) rollout.Memory {
	m := rollout.Memory{Variables: map[string]string{}}
	for _, name := range render.GatewayVariableNames() {
		v := r.variable(container, name)
		// An empty value counts as unset (platform rule), so it is absent here.
		if v.value != "" {
			m.Variables[name] = v.value
		}
		if v.unreadable != "" && (m.Unreadable == "" || name == render.VariableEnabled) {
			m.Unreadable = v.unreadable
		}
	}
	on, err := strconv.ParseBool(m.Variables[render.VariableEnabled])
	m.On = err == nil && on && (generation == release.Unknown || generation >= release.V3)
	m.Unverified = m.On && generation == release.Unknown
	return m
}

// variable is what a variable takes effect with.
type variable struct {
	value string
	// source and key are where a ConfigMap has the value; nil where the value is not from one.
	source *corev1.ConfigMap
	key    string
	// unreadable names the source that decides where the operator cannot read it.
	unreadable string
}

// variable finds what takes effect: env wins over envFrom, and in both the last entry wins.
func (r *Reader) variable(container *corev1.Container, name string) variable {
	for i := range slices.Backward(container.Env) {
		if env := &container.Env[i]; env.Name == name {
			return r.envVariable(env)
		}
	}
	for i := range slices.Backward(container.EnvFrom) {
		from := &container.EnvFrom[i]
		key, ok := strings.CutPrefix(name, from.Prefix)
		if !ok {
			continue
		}
		if from.SecretRef != nil {
			return variable{unreadable: "Secret " + from.SecretRef.Name}
		}
		if from.ConfigMapRef == nil {
			continue
		}
		if source := r.Lookup(from.ConfigMapRef.Name); source != nil {
			if value, ok := source.Data[key]; ok {
				return variable{value: value, source: source, key: key}
			}
		}
	}
	return variable{}
}

func (r *Reader) envVariable(env *corev1.EnvVar) variable {
	switch ref := configMapRef(env); {
	case ref != nil:
		source := r.Lookup(ref.Name)
		switch {
		case source != nil:
			return variable{value: source.Data[ref.Key], source: source, key: ref.Key}
		case ptr.Deref(ref.Optional, false):
			return variable{}
		}
		return variable{unreadable: "ConfigMap " + ref.Name + ", which does not exist"}
	case env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil:
		return variable{unreadable: "Secret " + env.ValueFrom.SecretKeyRef.Name}
	case env.ValueFrom != nil:
		return variable{unreadable: "the source of variable " + env.Name}
	case strings.Contains(env.Value, "$("):
		return variable{unreadable: "the variable that " + env.Name + " refers to"}
	default:
		return variable{value: env.Value}
	}
}

// skew is how far a node's clock is taken to be ahead of the API server's at most.
const skew = 10 * time.Second

// outdated names the ConfigMap that the memory is switched by where that was written after the pod's container may have
// started: a container keeps the variables it started with. A pod that was made afterwards is of the new content, by
// the API server's own clock, which gives seconds only: one of the same second may be of before. When a container started
// is said by the node's. An entry that overruled this one and was taken out since has left no time to go by.
func (r *Reader) outdated(pod *corev1.Pod) string {
	status := r.status(pod)
	if status == nil || status.State.Running == nil {
		return "" // a container that does not run starts with what is there now
	}
	v := r.variable(findContainer(&pod.Spec, r.Container), render.VariableEnabled)
	if v.source == nil {
		return ""
	}
	source := v.source
	written := writtenAt(source, v.key)
	made := pod.CreationTimestamp.Time
	if made.Equal(written) && made.Equal(source.CreationTimestamp.Time) {
		return "" // an installation: no container starts before what it reads its variables from is there
	}
	if made.After(written) || status.State.Running.StartedAt.After(written.Add(skew)) {
		return ""
	}
	return source.Name
}

// writtenAt is when the key can have got its value at the latest. That another key was written since is no reason to
// doubt it, where another manager of fields did it.
func writtenAt(source *corev1.ConfigMap, key string) time.Time {
	written := source.CreationTimestamp.Time
	field := fieldpath.MakePathOrDie("data", key)
	for i := range source.ManagedFields {
		e := &source.ManagedFields[i]
		if e.Time == nil || !e.Time.After(written) {
			continue
		}
		if fields, err := fieldsOf(e); err != nil || fields.Has(field) {
			written = e.Time.Time
		}
	}
	return written
}
