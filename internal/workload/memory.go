package workload

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

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
		value, unreadable := r.variable(container, name)
		// An empty value counts as unset (platform rule), so it is absent here.
		if value != "" {
			m.Variables[name] = value
		}
		if unreadable != "" && (m.Unreadable == "" || name == render.VariableEnabled) {
			m.Unreadable = unreadable
		}
	}
	on, err := strconv.ParseBool(m.Variables[render.VariableEnabled])
	m.On = err == nil && on && (generation == release.Unknown || generation >= release.V3)
	m.Unverified = m.On && generation == release.Unknown
	return m
}

// variable is the value that a variable takes effect with: env wins over envFrom, and in both the last entry
// wins. Unreadable names the source that decides where the operator cannot read it.
func (r *Reader) variable(container *corev1.Container, name string) (value, unreadable string) {
	for i := range slices.Backward(container.Env) {
		if env := &container.Env[i]; env.Name == name {
			return r.envValue(env)
		}
	}
	for i := range slices.Backward(container.EnvFrom) {
		source := &container.EnvFrom[i]
		key, ok := strings.CutPrefix(name, source.Prefix)
		if !ok {
			continue
		}
		if source.SecretRef != nil {
			return "", "Secret " + source.SecretRef.Name
		}
		if source.ConfigMapRef == nil {
			continue
		}
		if data, ok := r.Lookup(source.ConfigMapRef.Name); ok {
			if value, ok := data[key]; ok {
				return value, ""
			}
		}
	}
	return "", ""
}

func (r *Reader) envValue(env *corev1.EnvVar) (value, unreadable string) {
	switch ref := configMapRef(env); {
	case ref != nil:
		data, ok := r.Lookup(ref.Name)
		if !ok && !ptr.Deref(ref.Optional, false) {
			return "", "ConfigMap " + ref.Name + ", which does not exist"
		}
		return data[ref.Key], ""
	case env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil:
		return "", "Secret " + env.ValueFrom.SecretKeyRef.Name
	case env.ValueFrom != nil:
		return "", "the source of variable " + env.Name
	case strings.Contains(env.Value, "$("):
		return "", "the variable that " + env.Name + " refers to"
	default:
		return env.Value, ""
	}
}
