package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/preflight"
	"github.com/routing-operator/routing-operator/internal/render"
)

// Annotations that stripped objects carry in memory only.
const (
	annotationWhole   = "memory.routing.nvcf.io/template"
	annotationForeign = "memory.routing.nvcf.io/foreign"
	// annotationNoPreflight is of a workload only, and there only where no preflight pod can be made of its template.
	annotationNoPreflight = "memory.routing.nvcf.io/no-preflight"
)

const (
	policyKind = "RoutingPolicy"
	planeKind  = "RoutingPlane"
)

// keptLabels of objects; everything else is found by owner references.
var keptLabels = []string{appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey}

// Strip is a transform for caches: it takes away what this package never reads from Deployments, StatefulSets,
// ReplicaSets, Pods and ControllerRevisions, so that a cluster's worth of them fits into little memory. A
// template's hashes are taken first. Other objects stay as they are. It is idempotent.
func Strip(object any) (any, error) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		stripWorkload(&o.ObjectMeta, &o.Spec.Template, nil)
		o.Status.Conditions = nil
	case *appsv1.StatefulSet:
		stripWorkload(&o.ObjectMeta, &o.Spec.Template, o.Spec.VolumeClaimTemplates)
		o.Spec.VolumeClaimTemplates = nil
		o.Status.Conditions = nil
	case *appsv1.ReplicaSet:
		hashes := HashesOf(&o.ObjectMeta, &o.Spec.Template)
		stripMeta(&o.ObjectMeta)
		setHashes(&o.ObjectMeta, hashes)
		stripTemplate(&o.Spec.Template)
		stripMounts(&o.Spec.Template.Spec)
		if !InUse(o) && !namesRevision(&o.Spec.Template.Spec) {
			o.Spec.Template.Spec = corev1.PodSpec{}
		}
		o.Status.Conditions = nil
	case *appsv1.ControllerRevision:
		stripRevision(o)
	case *corev1.Pod:
		stripPod(o)
	}
	return object, nil
}

// stripWorkload keeps the managed fields of everything but the status: they tell who owns the template.
func stripWorkload(meta *metav1.ObjectMeta, template *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) {
	hashes, noPreflight := HashesOf(meta, template), PreflightProblem(meta, template, claims)
	managed := slices.DeleteFunc(meta.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Subresource != "" })
	plane, isManaged := meta.Annotations[AnnotationPlane]
	stripMeta(meta)
	meta.ManagedFields = managed
	if isManaged {
		meta.Annotations = map[string]string{AnnotationPlane: plane}
	}
	setHashes(meta, hashes)
	if noPreflight != "" {
		meta.Annotations[annotationNoPreflight] = noPreflight
	}
	stripTemplate(template)
}

// PreflightProblem is preflight.Problem of a workload, from its metadata where Strip left it there.
func PreflightProblem(meta *metav1.ObjectMeta, template *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) string {
	if _, stripped := meta.Annotations[annotationWhole]; stripped {
		return meta.Annotations[annotationNoPreflight]
	}
	return preflight.Problem(template, claims)
}

// IsPreflight tells a preflight pod of a plane by its controller, and then which plane it is of.
func IsPreflight(pod *corev1.Pod) (plane string, is bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != planeKind {
		return "", false
	}
	return owner.Name, true
}

func setHashes(meta *metav1.ObjectMeta, h Hashes) {
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[annotationWhole], meta.Annotations[annotationForeign] = h.Whole, h.Foreign
}

func stripMeta(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	meta.Annotations = nil
	meta.GenerateName = ""
	meta.Namespace = shared(meta.Namespace)
	labels := meta.Labels
	meta.Labels = nil
	for _, key := range keptLabels {
		if value, ok := labels[key]; ok {
			metav1.SetMetaDataLabel(meta, key, shared(value))
		}
	}
	var owners []metav1.OwnerReference
	if owner := metav1.GetControllerOfNoCopy(meta); owner != nil {
		owners = []metav1.OwnerReference{{
			APIVersion: shared(owner.APIVersion), Kind: shared(owner.Kind), Name: shared(owner.Name), UID: shared(owner.UID), Controller: owner.Controller,
		}}
	}
	meta.OwnerReferences = owners
}

// shared is the text in the one copy that all stripped objects share: a thousand pods name one image.
func shared[T ~string](text T) T { return unique.Make(text).Value() }

func stripTemplate(t *corev1.PodTemplateSpec) {
	t.ObjectMeta = metav1.ObjectMeta{}
	stripSpec(&t.Spec)
}

// stripSpec keeps the volumes that hold ConfigMaps and, of containers, what Reader reads.
func stripSpec(spec *corev1.PodSpec) {
	kept := corev1.PodSpec{NodeName: shared(spec.NodeName), Containers: make([]corev1.Container, len(spec.Containers))}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.ConfigMap != nil || v.Name == VolumeName {
			kept.Volumes = append(kept.Volumes, *v)
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		container := corev1.Container{
			Name: shared(c.Name), Image: shared(c.Image), EnvFrom: c.EnvFrom, VolumeMounts: c.VolumeMounts,
			Command: pathArguments(c.Command), Args: pathArguments(c.Args),
		}
		for j := range c.Env {
			if slices.Contains(render.GatewayVariableNames(), c.Env[j].Name) {
				container.Env = append(container.Env, c.Env[j])
			}
		}
		kept.Containers[i] = container
	}
	*spec = kept
}

// InUse tells whether pods are made from a ReplicaSet, or are there.
func InUse(rs *appsv1.ReplicaSet) bool {
	return ptr.Deref(rs.Spec.Replicas, 1) > 0 || rs.Status.Replicas > 0
}

// namesRevision tells whether something in a stripped spec has the form of the operator's fields.
func namesRevision(spec *corev1.PodSpec) bool {
	return findVolume(spec, VolumeName) != nil || slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return configMapRef(&e) != nil })
	})
}

// stripMounts drops all mounts where they make no difference: nothing is the operator's, and no argument names a file.
// Where one makes a difference every other may too, by hiding it. A workload's own template keeps them, since the operator
// is to find room there.
func stripMounts(spec *corev1.PodSpec) {
	if findVolume(spec, VolumeName) != nil || slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return configPathOf(&c) != "" }) {
		return
	}
	spec.Volumes = nil
	for i := range spec.Containers {
		spec.Containers[i].VolumeMounts = nil
	}
}

// pathArguments keeps --lb-config-path and its value.
func pathArguments(list []string) (kept []string) {
	for i, argument := range list {
		if strings.HasPrefix(argument, configPathFlag) || i > 0 && list[i-1] == configPathFlag {
			kept = append(kept, argument)
		}
	}
	return kept
}

// stripPod keeps a preflight pod whole: there are few of them, and not for long.
func stripPod(pod *corev1.Pod) {
	if _, is := IsPreflight(pod); is {
		pod.ManagedFields = nil
		return
	}
	stripMeta(&pod.ObjectMeta)
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "ReplicaSet" && owner.Kind != v1alpha1.KindStatefulSet {
		pod.Spec, pod.Status = corev1.PodSpec{}, corev1.PodStatus{}
		return
	}
	stripSpec(&pod.Spec)
	stripMounts(&pod.Spec)
	kept := corev1.PodStatus{Phase: shared(pod.Status.Phase), PodIP: pod.Status.PodIP}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			kept.Conditions = append(kept.Conditions, corev1.PodCondition{
				Type: shared(c.Type), Status: shared(c.Status), Reason: shared(c.Reason), LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	kept.ContainerStatuses = stripStatuses(pod.Status.ContainerStatuses)
	kept.InitContainerStatuses = stripStatuses(slices.DeleteFunc(slices.Clone(pod.Status.InitContainerStatuses), func(s corev1.ContainerStatus) bool { return s.State.Waiting == nil }))
	pod.Status = kept
}

func stripStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(statuses) == 0 {
		return nil
	}
	kept := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		s := &statuses[i]
		kept[i] = corev1.ContainerStatus{
			Name: shared(s.Name), State: stripState(s.State), LastTerminationState: stripState(s.LastTerminationState), Ready: s.Ready, RestartCount: s.RestartCount,
		}
	}
	return kept
}

func stripState(state corev1.ContainerState) corev1.ContainerState {
	kept := corev1.ContainerState{Running: state.Running}
	if w := state.Waiting; w != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: shared(w.Reason)}
	}
	if t := state.Terminated; t != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, FinishedAt: t.FinishedAt, Message: t.Message}
	}
	return kept
}

// stripRevision keeps the template of a StatefulSet's revision, and all of a policy's. What cannot be read stays as it
// is, for whoever needs it to fail on: an error here would keep the whole cache from filling.
func stripRevision(r *appsv1.ControllerRevision) {
	owner := metav1.GetControllerOfNoCopy(r)
	if owner != nil && owner.Kind == policyKind {
		r.ManagedFields = nil
		return
	}
	if owner == nil || owner.Kind != v1alpha1.KindStatefulSet {
		stripMeta(&r.ObjectMeta)
		r.Data = runtime.RawExtension{}
		return
	}
	template, err := TemplateOf(r)
	if err != nil {
		stripMeta(&r.ObjectMeta)
		return
	}
	hashes := HashesOf(&r.ObjectMeta, template)
	stripMeta(&r.ObjectMeta)
	setHashes(&r.ObjectMeta, hashes)
	stripTemplate(template)
	stripMounts(&template.Spec)
	if raw, err := json.Marshal(appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: *template}}); err == nil {
		r.Data.Raw = raw
	}
}

// TemplateOf reads the pod template out of a StatefulSet's ControllerRevision.
func TemplateOf(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var set appsv1.StatefulSet
	if err := json.Unmarshal(r.Data.Raw, &set); err != nil {
		return nil, fmt.Errorf("reading the pod template in ControllerRevision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return &set.Spec.Template, nil
}
