package workload

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Ownership is what a workload's managed fields say of the fields that the operator sets.
type Ownership struct {
	// Rivals own fields that are in the template and no part of which is the operator's.
	Rivals []rollout.Rival
	// Sharers own a part of the operator's fields, whoever else does; sorted.
	Sharers []string
	// Updated: the operator owns fields by another way than server-side apply, which an apply would not let go.
	Updated bool
}

// OwnershipOf reads managed fields.
func (r *Reader) OwnershipOf(entries []metav1.ManagedFieldsEntry, spec *corev1.PodSpec) (Ownership, error) {
	var o Ownership
	sets := make([]*fieldpath.Set, len(entries))
	for i := range entries {
		e := &entries[i]
		var err error
		if sets[i], err = fieldsOf(e); err != nil {
			return Ownership{}, err
		}
		o.Updated = o.Updated || e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
	}
	for _, item := range r.items(spec) {
		var rivals []rollout.Rival
		own := false
		for i := range entries {
			if !owns(sets[i], item.path) {
				continue
			}
			if entries[i].Manager == FieldManager {
				own = true
				continue
			}
			rivals = append(rivals, rollout.Rival{Manager: entries[i].Manager, Field: item.path.String()})
			o.Sharers = append(o.Sharers, entries[i].Manager)
		}
		if own || !item.exists {
			continue
		}
		if len(rivals) == 0 {
			rivals = []rollout.Rival{{Manager: "unknown", Field: item.path.String()}}
		}
		o.Rivals = append(o.Rivals, rivals...)
	}
	slices.SortFunc(o.Rivals, func(a, b rollout.Rival) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Manager, b.Manager))
	})
	o.Rivals = slices.Compact(o.Rivals)
	slices.Sort(o.Sharers)
	o.Sharers = slices.Compact(o.Sharers)
	return o, nil
}

// fieldsOf are the fields that an entry owns; none where it is of a subresource.
func fieldsOf(e *metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if e.FieldsV1 == nil || e.Subresource != "" {
		return set, nil
	}
	if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("reading the managed fields of %q: %w", e.Manager, err)
	}
	return set, nil
}

// item is an entry of a list that the operator sets.
type item struct {
	path   fieldpath.Path
	exists bool
}

func (r *Reader) items(spec *corev1.PodSpec) []item {
	container := findContainer(spec, r.Container)
	if container == nil {
		return nil
	}
	pod := fieldpath.MakePathOrDie("spec", "template", "spec")
	in := func(base fieldpath.Path, list, key, value string) fieldpath.Path {
		return append(base.Copy(), fieldpath.MakePathOrDie(list, fieldpath.KeyByFields(key, value))...)
	}
	inContainer := in(pod, "containers", "name", container.Name)
	if r.Artefact == render.ArtefactStargate {
		dir := path.Dir(r.ConfigPath)
		return []item{
			{in(pod, "volumes", "name", VolumeName), findVolume(spec, VolumeName) != nil},
			{in(inContainer, "volumeMounts", "mountPath", dir), slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == dir })},
		}
	}
	var items []item
	for _, name := range render.GatewayVariableNames() {
		items = append(items, item{
			in(inContainer, "env", "name", name),
			slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == name }),
		})
	}
	return items
}

// owns tells whether the set has the entry at the path or anything in it.
func owns(set *fieldpath.Set, entry fieldpath.Path) bool {
	if set.Has(entry) {
		return true
	}
	for _, element := range entry {
		set = set.WithPrefix(element)
	}
	return !set.Empty()
}

// Problem says in words what keeps the operator from setting its fields in the template until a person mends it;
// empty where nothing does.
func (r *Reader) Problem(spec *corev1.PodSpec) string {
	container := findContainer(spec, r.Container)
	if container == nil {
		return ""
	}
	if r.Artefact == render.ArtefactStargate {
		return cmp.Or(r.movedProblem(spec, container), r.mountProblem(container))
	}
	count := map[string]int{}
	for i := range container.Env {
		count[container.Env[i].Name]++
	}
	for _, name := range render.GatewayVariableNames() {
		if count[name] > 1 {
			return fmt.Sprintf("container %s has the variable %s %d times, which server-side apply refuses; keep one at most", container.Name, name, count[name])
		}
	}
	return ""
}

// movedProblem finds the operator's file mounted at another path that the arguments name: applying it at the configuration
// path would take it away there, and no pod would start any more.
func (r *Reader) movedProblem(spec *corev1.PodSpec, container *corev1.Container) string {
	at := r.readAt(spec, container, configPathOf(container))
	if samePath(at, r.ConfigPath) {
		return ""
	}
	return fmt.Sprintf("container %s reads the operator's file at %s, where an earlier spec.stargate.configPath had it; mounting it at %s would take it away from there, and no new pod would start: "+
		"create the plane anew with the path that is read or, to move, have --lb-config-path name a file of the chart's first", container.Name, at, r.ConfigPath)
}

// mountProblem finds another mount that would hide the operator's file.
func (r *Reader) mountProblem(container *corev1.Container) string {
	dir := path.Dir(r.ConfigPath)
	for i := range container.VolumeMounts {
		mount := &container.VolumeMounts[i]
		at := path.Clean(mount.MountPath)
		within := strings.HasPrefix(r.ConfigPath+"/", at+"/") && strings.HasPrefix(at, dir+"/")
		same := at == dir && mount.MountPath != dir
		if mount.Name != VolumeName && (within || same) {
			return fmt.Sprintf("container %s mounts volume %s at %s, which hides the operator's file %s; move that mount or spec.stargate.configPath",
				container.Name, mount.Name, mount.MountPath, r.ConfigPath)
		}
	}
	return ""
}
