// Package patch builds what the operator writes to a workload: an apply configuration with its own fields and
// nothing else, and what mends the template where an apply cannot.
package patch

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// Target is a workload and the version of it that was planned from. A write to any other version fails.
type Target struct {
	Kind, Namespace, Name string
	ResourceVersion       string
}

// Fields are what the operator sets on a workload.
type Fields struct {
	// Plane that manages the workload.
	Plane string
	// Artefact and name of the revision.
	Artefact, Revision string
	// Container that gets it.
	Container string
	// ConfigPath of Stargate's file.
	ConfigPath string
}

// Apply is the apply configuration with the fields.
func Apply(t Target, f Fields) (runtime.ApplyConfiguration, error) {
	container := applycorev1.Container().WithName(f.Container)
	spec := applycorev1.PodSpec()
	if f.Artefact == render.ArtefactStargate {
		source := applycorev1.ConfigMapVolumeSource().WithName(f.Revision)
		for _, item := range f.items() {
			source.WithItems(applycorev1.KeyToPath().WithKey(item.Key).WithPath(item.Path))
		}
		spec.WithVolumes(applycorev1.Volume().WithName(workload.VolumeName).WithConfigMap(source))
		container.WithVolumeMounts(applycorev1.VolumeMount().
			WithName(workload.VolumeName).WithMountPath(f.dir()).WithReadOnly(true))
	} else {
		for _, name := range render.GatewayVariableNames() {
			container.WithEnv(applycorev1.EnvVar().WithName(name).WithValueFrom(applycorev1.EnvVarSource().
				WithConfigMapKeyRef(applycorev1.ConfigMapKeySelector().WithName(f.Revision).WithKey(name))))
		}
	}
	template := applycorev1.PodTemplateSpec().WithSpec(spec.WithContainers(container)) // which copies it
	annotations := map[string]string{workload.AnnotationPlane: f.Plane}
	switch t.Kind {
	case v1alpha1.KindDeployment:
		return deployment(t).WithAnnotations(annotations).WithSpec(appsv1.DeploymentSpec().WithTemplate(template)), nil
	case v1alpha1.KindStatefulSet:
		return statefulSet(t).WithAnnotations(annotations).WithSpec(appsv1.StatefulSetSpec().WithTemplate(template)), nil
	}
	return nil, unknownKind(t)
}

// LetGo is the apply configuration without the fields: the API server removes those that were the operator's alone.
// With a plane the annotation stays for now, so that the workload is still known while it is rolled out.
func LetGo(t Target, plane string) (runtime.ApplyConfiguration, error) {
	var annotations map[string]string
	if plane != "" {
		annotations = map[string]string{workload.AnnotationPlane: plane}
	}
	switch t.Kind {
	case v1alpha1.KindDeployment:
		return deployment(t).WithAnnotations(annotations), nil
	case v1alpha1.KindStatefulSet:
		return statefulSet(t).WithAnnotations(annotations), nil
	}
	return nil, unknownKind(t)
}

func deployment(t Target) *appsv1.DeploymentApplyConfiguration {
	return appsv1.Deployment(t.Name, t.Namespace).WithResourceVersion(t.ResourceVersion)
}

func statefulSet(t Target) *appsv1.StatefulSetApplyConfiguration {
	return appsv1.StatefulSet(t.Name, t.Namespace).WithResourceVersion(t.ResourceVersion)
}

func unknownKind(t Target) error {
	return fmt.Errorf("workload %s/%s: kind %q is neither Deployment nor StatefulSet", t.Namespace, t.Name, t.Kind)
}

func (f *Fields) dir() string { return path.Dir(f.ConfigPath) }

// items are needed only where the file is not named after the key.
func (f *Fields) items() []corev1.KeyToPath {
	if base := path.Base(f.ConfigPath); base != render.LBConfigKey {
		return []corev1.KeyToPath{{Key: render.LBConfigKey, Path: base}}
	}
	return nil
}

// NeedsMending tells whether somebody put into one of the operator's entries what an apply would leave beside its
// own fields: a plain value beside the reference, another source in the volume, a path within it.
func NeedsMending(spec *corev1.PodSpec, f Fields) bool {
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == f.Container })
	if i < 0 {
		return false
	}
	container := &spec.Containers[i]
	if f.Artefact == render.ArtefactGateway {
		return slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool {
			return slices.Contains(render.GatewayVariableNames(), e.Name) && foreignSource(&e)
		})
	}
	return slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == f.dir() && (m.SubPath != "" || m.SubPathExpr != "")
	}) || slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == workload.VolumeName && f.foreignVolume(&v)
	})
}

func foreignSource(e *corev1.EnvVar) bool {
	from := e.ValueFrom
	return e.Value != "" || from != nil && (from.ConfigMapKeyRef == nil || ptr.Deref(from.ConfigMapKeyRef.Optional, false))
}

func (f *Fields) foreignVolume(v *corev1.Volume) bool {
	return v.ConfigMap == nil || ptr.Deref(v.ConfigMap.Optional, false) || !slices.EqualFunc(v.ConfigMap.Items, f.items(),
		func(a, b corev1.KeyToPath) bool { return a.Key == b.Key && a.Path == b.Path })
}

// Mend puts the operator's fields in place of whatever is in its entries, in the complete template as it is stored.
// An apply cannot: it leaves the other fields of an entry, and both together are invalid. Everything else stays as
// and where it is.
func Mend(template *corev1.PodTemplateSpec, f Fields) {
	spec := &template.Spec
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == f.Container })
	if i < 0 {
		return
	}
	container := &spec.Containers[i]
	if f.Artefact == render.ArtefactGateway {
		for _, name := range render.GatewayVariableNames() {
			put(&container.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: f.Revision}, Key: name,
			}}}, func(e corev1.EnvVar) bool { return e.Name == name })
		}
		return
	}
	put(&container.VolumeMounts, corev1.VolumeMount{Name: workload.VolumeName, MountPath: f.dir(), ReadOnly: true},
		func(m corev1.VolumeMount) bool { return m.MountPath == f.dir() })
	put(&spec.Volumes, corev1.Volume{Name: workload.VolumeName, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: f.Revision}, Items: f.items(),
	}}}, func(v corev1.Volume) bool { return v.Name == workload.VolumeName })
}

// put replaces the entry that is meant, or appends one.
func put[T any](list *[]T, entry T, meant func(T) bool) {
	if i := slices.IndexFunc(*list, meant); i >= 0 {
		(*list)[i] = entry
		return
	}
	*list = append(*list, entry)
}
