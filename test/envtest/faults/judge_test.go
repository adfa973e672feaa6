package faults

import (
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

const (
	lbConfigKey    = "lb-config.json"
	memoryVariable = "STARGATE_LAST_CLUSTER_ENABLED"

	retryAnnotation = "routing.nvcf.io/retry"
)

// violation of an invariant, and the change that broke it.
type violation struct {
	invariant, detail string
	by                change
}

func (v violation) String() string { return fmt.Sprintf("%s: %s (%s)", v.invariant, v.detail, v.by) }

// contents is what a pod template gives to its pods: of the router or of a gateway, by the container's name.
type contents struct {
	container, image string
	// revision is the ConfigMap that the router's file or the gateway's memory is from.
	revision string
	flags    sets.Set[lbconfig.Place]
	memory   bool
}

func (c contents) router() bool  { return c.container == fixtures.RouterContainer }
func (c contents) gateway() bool { return c.container == fixtures.GatewayContainer }

// bearer is something that has or makes pods with the contents.
type bearer struct {
	name string
	contents
}

// workload as it was seen last.
type workload struct {
	bearer
	// rolling: the operator changed the template, and not every pod has followed yet.
	rolling bool
	// exited are the revisions on which a container exited, and failed those of them that were then given up.
	exited, failed sets.Set[string]
}

// judge goes through the history of a namespace, and finds where an invariant of internal/rollout was broken. What
// changes without the operator's fields in a template is somebody else's doing, and no act that is judged.
type judge struct {
	pods        map[types.UID]*corev1.Pod
	replicaSets map[types.UID]*appsv1.ReplicaSet
	workloads   map[types.UID]*workload
	// data of ConfigMaps, of those that are gone too: a pod keeps what it has read.
	data map[string]map[string]string
	// flagged are the flags in files that were read already, by revision.
	flagged map[string]sets.Set[lbconfig.Place]

	// wishes are the generations of planes and policies, and the retries asked for.
	wishes map[types.UID]string

	broken []violation
	known  sets.Set[string]
	// given are the changes of the operator's fields in templates, in their order.
	given []string
}

func judged(history []change) *judge {
	j := &judge{
		pods: map[types.UID]*corev1.Pod{}, replicaSets: map[types.UID]*appsv1.ReplicaSet{}, workloads: map[types.UID]*workload{},
		data: map[string]map[string]string{}, flagged: map[string]sets.Set[lbconfig.Place]{}, wishes: map[types.UID]string{}, known: sets.New[string](),
	}
	for _, c := range history {
		j.step(c)
	}
	return j
}

func (j *judge) step(c change) {
	switch o := c.object.(type) {
	case *corev1.ConfigMap:
		j.configMap(c, o)
	case *corev1.Pod:
		if c.gone {
			delete(j.pods, o.UID)
		} else {
			j.pods[o.UID] = o
		}
		j.exits(o)
	case *appsv1.ReplicaSet:
		if c.gone {
			delete(j.replicaSets, o.UID)
		} else {
			j.replicaSets[o.UID] = o
		}
	case *appsv1.Deployment:
		j.template(c, o, &o.Spec.Template.Spec, fixtures.RolledOut(o))
	case *appsv1.StatefulSet:
		j.template(c, o, &o.Spec.Template.Spec, statefulSetComplete(o))
	case *v1alpha1.RoutingPlane:
		j.asked(o)
	case *v1alpha1.RoutingPolicy:
		j.asked(o)
	}
	j.together(c)
}

func (j *judge) breaks(c change, invariant, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if key := invariant + detail; !j.known.Has(key) {
		j.known.Insert(key)
		j.broken = append(j.broken, violation{invariant, detail, c})
	}
}

// configMap: none may go that something still names.
func (j *judge) configMap(c change, cm *corev1.ConfigMap) {
	if !c.gone {
		j.data[cm.Name] = cm.Data
		delete(j.flagged, cm.Name)
		return
	}
	for _, b := range j.bearers() {
		if b.revision == cm.Name {
			j.breaks(c, "files", "%s is deleted while %s names it", cm.Name, b.name)
		}
	}
}

// exits notes revisions on which the container exited again and again.
func (j *judge) exits(pod *corev1.Pod) {
	given := j.read(&pod.Spec)
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name != given.container || s.RestartCount < 2 {
			continue
		}
		for _, w := range j.workloads {
			if w.container == given.container {
				w.exited.Insert(given.revision)
			}
		}
	}
}

// asked: a person has changed a spec or asked for a retry, so that what failed may be tried again.
func (j *judge) asked(o client.Object) {
	wish := fmt.Sprint(o.GetGeneration(), o.GetAnnotations()[retryAnnotation])
	if j.wishes[o.GetUID()] == wish {
		return
	}
	j.wishes[o.GetUID()] = wish
	for _, w := range j.workloads {
		w.failed.Clear()
	}
}

func (j *judge) template(c change, o client.Object, spec *corev1.PodSpec, complete bool) {
	if c.gone {
		delete(j.workloads, o.GetUID())
		return
	}
	now := j.read(spec)
	if !now.router() && !now.gateway() {
		return
	}
	w, known := j.workloads[o.GetUID()]
	if !known {
		w = &workload{exited: sets.New[string](), failed: sets.New[string]()}
		w.name, w.contents = o.GetName(), now
		j.workloads[o.GetUID()] = w
	}
	before := w.contents
	w.contents = now
	if known && before.revision != now.revision {
		j.given = append(j.given, fmt.Sprintf("%s %s", w.name, now.revision))
		j.act(c, w, before)
		w.rolling = true
	}
	if complete {
		w.rolling = false
	}
}

// act judges a change of what the operator gives to a workload, at the moment at which it was made.
func (j *judge) act(c change, w *workload, before contents) {
	for _, other := range j.workloads {
		if other != w && other.rolling {
			j.breaks(c, "I3", "%s is rolled while %s is", w.name, other.name)
		}
	}
	if before.revision != "" && w.exited.Has(before.revision) {
		w.failed.Insert(before.revision)
	}
	if w.failed.Has(w.revision) {
		j.breaks(c, "I5", "%s gets %s again, which failed on it", w.name, w.revision)
	}
	all := j.bearers()
	if w.gateway() && w.memory && !before.memory {
		for _, b := range all {
			if b.router() && generationOf(b.image) < release.V3 {
				j.breaks(c, "I2", "the memory of %s is switched on while %s does not know the header", w.name, b.name)
			}
		}
	}
	if !w.router() {
		return
	}
	if w.revision != "" {
		if _, err := lbconfig.Read([]byte(j.data[w.revision][lbConfigKey]), generationOf(w.image)); err != nil {
			j.breaks(c, "I4", "%s gets %s, which it refuses: %v", w.name, w.revision, err)
		}
	}
	if added := w.flags.Difference(before.flags); len(added) > 0 {
		j.mayFlag(c, w, all, added)
	}
}

// mayFlag judges flags that are switched on.
func (j *judge) mayFlag(c change, w *workload, all []bearer, added sets.Set[lbconfig.Place]) {
	gateways := 0
	for _, b := range all {
		switch {
		case b.gateway() && !b.memory:
			j.breaks(c, "I1", "%d flags are switched on while %s has no memory", len(added), b.name)
		case b.gateway():
			gateways++
		case b.router() && generationOf(b.image) < release.V3:
			j.breaks(c, "I1", "%d flags are switched on while %s does not know them", len(added), b.name)
		}
	}
	if gateways == 0 {
		j.breaks(c, "I1", "%d flags are switched on in %s without a gateway", len(added), w.name)
	}
}

// together judges what pods there are at once.
func (j *judge) together(c change) {
	var flagged, forgetful, remembering, old []string
	for _, pod := range j.pods {
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		switch given := j.read(&pod.Spec); {
		case given.router() && len(given.flags) > 0:
			flagged = append(flagged, pod.Name)
		case given.router() && generationOf(given.image) < release.V3:
			old = append(old, pod.Name)
		case given.gateway() && given.memory:
			remembering = append(remembering, pod.Name)
		case given.gateway():
			forgetful = append(forgetful, pod.Name)
		}
	}
	if len(flagged) > 0 && len(forgetful) > 0 {
		j.breaks(c, "I1", "flags are on in %v while %v forget", sorted(flagged), sorted(forgetful))
	}
	if len(remembering) > 0 && len(old) > 0 {
		j.breaks(c, "I2", "the memory is on in %v while %v do not know the header", sorted(remembering), sorted(old))
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// bearers are the templates, the ReplicaSets that have or want pods, and the pods, those included that are ending.
func (j *judge) bearers() []bearer {
	var all []bearer
	for _, w := range j.workloads {
		all = append(all, bearer{"the template of " + w.name, w.contents})
	}
	for _, set := range j.replicaSets {
		if ptr.Deref(set.Spec.Replicas, 1) > 0 || set.Status.Replicas > 0 {
			all = append(all, bearer{"ReplicaSet " + set.Name, j.read(&set.Spec.Template.Spec)})
		}
	}
	for _, pod := range j.pods {
		if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			all = append(all, bearer{"pod " + pod.Name, j.read(&pod.Spec)})
		}
	}
	slices.SortFunc(all, func(a, b bearer) int { return strings.Compare(a.name, b.name) })
	return all
}

func (j *judge) read(spec *corev1.PodSpec) contents {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		given := contents{container: c.Name, image: c.Image}
		switch {
		case given.router():
			given.revision = mounted(spec, c, path.Dir(fixtures.OperatorConfigPath))
			given.flags = j.flags(given.revision)
			return given
		case given.gateway():
			given.revision, given.memory = j.memory(c)
			return given
		}
	}
	return contents{}
}

// mounted is the ConfigMap that the container finds in the folder.
func mounted(spec *corev1.PodSpec, c *corev1.Container, folder string) string {
	for _, mount := range c.VolumeMounts {
		if path.Clean(mount.MountPath) != folder {
			continue
		}
		for _, volume := range spec.Volumes {
			if volume.Name == mount.Name && volume.ConfigMap != nil {
				return volume.ConfigMap.Name
			}
		}
	}
	return ""
}

// flags in the file. One that nobody can read has none.
func (j *judge) flags(revision string) sets.Set[lbconfig.Place] {
	if known, ok := j.flagged[revision]; ok {
		return known
	}
	on := sets.New[lbconfig.Place]()
	if file, err := lbconfig.Read([]byte(j.data[revision][lbConfigKey]), release.Newest); err == nil {
		on.Insert(file.Flags()...)
	}
	j.flagged[revision] = on
	return on
}

func (j *judge) memory(c *corev1.Container) (revision string, on bool) {
	for _, variable := range c.Env {
		if variable.Name != memoryVariable {
			continue
		}
		if variable.ValueFrom != nil && variable.ValueFrom.ConfigMapKeyRef != nil {
			ref := variable.ValueFrom.ConfigMapKeyRef
			return ref.Name, j.data[ref.Name][ref.Key] == "true"
		}
		return "", variable.Value == "true"
	}
	return "", false
}

func generationOf(image string) release.Generation { return releases.OfImage(image, nil).Generation }

// statefulSetComplete is what kubectl rollout status takes for the end.
func statefulSetComplete(d *appsv1.StatefulSet) bool {
	s, n := &d.Status, ptr.Deref(d.Spec.Replicas, 1)
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == n && s.Replicas == n && s.ReadyReplicas == n
}
