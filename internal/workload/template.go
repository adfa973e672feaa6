package workload

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Lookup returns a ConfigMap in the plane's namespace, nil where there is none. One whose content cannot change needs no
// metadata.
type Lookup func(name string) *corev1.ConfigMap

// Reader reads the pod specs of one workload of a plane.
type Reader struct {
	// Plane is the name of the plane.
	Plane string
	// Artefact that the workload gets: render.ArtefactStargate or render.ArtefactGateway.
	Artefact string
	// Container that the plane is about, as ResolveContainer found it.
	Container string
	// ConfigPath and ConfigPathCheck of the plane's spec; for Stargate.
	ConfigPath      string
	ConfigPathCheck v1alpha1.ConfigPathCheck
	// Release of an image.
	Release func(image string) release.Release
	// Lookup of ConfigMaps. It is called only where what a ConfigMap says makes a difference.
	Lookup Lookup
}

// ResolveContainer finds the container that the spec of the plane means: by its name or, where that is left
// out, the only one there is. Containers are never told by their index, since sidecars are injected before and
// behind them. The problem says in words what a person has to mend.
func ResolveContainer(spec *corev1.PodSpec, name string) (container, problem string) {
	var names []string
	for i := range spec.Containers {
		if name != "" && spec.Containers[i].Name == name {
			return name, ""
		}
		names = append(names, spec.Containers[i].Name)
	}
	switch {
	case name != "":
		return "", fmt.Sprintf("its pod template has no container %q; it has: %s; correct the container in the plane's spec", name, strings.Join(names, ", "))
	case len(names) == 1:
		return names[0], ""
	default:
		return "", fmt.Sprintf("its pod template has several containers: %s; name the one that is meant as container in the plane's spec", strings.Join(names, ", "))
	}
}

// Template reads a pod template's or a pod's own spec. Where the container is missing nothing is known of it; a revision
// of the plane's that is there all the same counts as read, so that nothing is taken away that may be in use.
func (r *Reader) Template(spec *corev1.PodSpec) rollout.Template {
	container := findContainer(spec, r.Container)
	if container == nil {
		t := rollout.Template{Release: release.Release{Version: "unknown", Generation: release.Unknown}}
		volume := findVolume(spec, VolumeName)
		if volume != nil && volume.ConfigMap != nil && IsRevision(r.Plane, r.Artefact, volume.ConfigMap.Name) {
			t.Revision, t.Touched, t.ReadsFile = volume.ConfigMap.Name, true, true
		}
		return t
	}
	t := rollout.Template{Image: container.Image, Release: r.Release(container.Image)}
	if r.Artefact == render.ArtefactGateway {
		t.Revision, t.Touched = r.gatewayRevision(container)
		t.Memory = r.memory(container, t.Release.Generation)
		return t
	}
	given := configPathOf(container)
	at := r.readAt(spec, container, given)
	t.Revision, t.Touched = r.stargateRevision(spec, container, at)
	t.ReadsFile = r.ConfigPathCheck == v1alpha1.ConfigPathCheckSkip || samePath(given, at)
	if !t.ReadsFile || t.Revision == "" {
		t.Unread = r.unread(spec, container, given)
	}
	return t
}

func findContainer(spec *corev1.PodSpec, name string) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return &spec.Containers[i]
		}
	}
	return nil
}

const configPathFlag = "--lb-config-path"

// configPathOf is the value of the last --lb-config-path in the container's command and arguments, as Stargate's
// argument parser takes it; empty where there is none.
func configPathOf(c *corev1.Container) string {
	given := ""
	for _, list := range [][]string{c.Command, c.Args} {
		for i, argument := range list {
			if value, ok := strings.CutPrefix(argument, configPathFlag+"="); ok {
				given = value
			} else if argument == configPathFlag && i+1 < len(list) {
				given = list[i+1]
			}
		}
	}
	return given
}

func samePath(a, b string) bool { return a != "" && path.Clean(a) == path.Clean(b) }

// readAt is where the operator's file is looked for: at the configuration path or, where it is mounted at another one that
// the arguments name, at that. A plane that had another configuration path mounted it there.
func (r *Reader) readAt(spec *corev1.PodSpec, container *corev1.Container, given string) string {
	if source, _ := mountedAt(spec, container, given); source != nil {
		return given
	}
	return r.ConfigPath
}

// mountedAt is the ConfigMap of the operator's volume, and its mount, where a file of the container is the lb-config.json
// in it; nil where it is not.
func mountedAt(spec *corev1.PodSpec, container *corev1.Container, file string) (*corev1.ConfigMapVolumeSource, *corev1.VolumeMount) {
	volume, mount := findVolume(spec, VolumeName), mountAt(container, file)
	if volume == nil || volume.ConfigMap == nil || mount == nil || mount.Name != VolumeName || isSubPath(mount) ||
		!samePath(mount.MountPath, path.Dir(file)) || keyAt(volume.ConfigMap, path.Base(file)) != render.LBConfigKey {
		return nil, nil
	}
	return volume.ConfigMap, mount
}

// stargateRevision tells which revision of the plane a pod of the spec finds at the path, and whether any of the
// operator's fields are there at all.
func (r *Reader) stargateRevision(spec *corev1.PodSpec, container *corev1.Container, at string) (revision string, touched bool) {
	touched = findVolume(spec, VolumeName) != nil // which no mount of it can do without
	source, mount := mountedAt(spec, container, at)
	if source == nil || !mount.ReadOnly || ptr.Deref(source.Optional, false) || !IsRevision(r.Plane, render.ArtefactStargate, source.Name) {
		return "", touched
	}
	return source.Name, touched
}

// unread follows the path that Stargate is given to the ConfigMap behind it.
func (r *Reader) unread(spec *corev1.PodSpec, container *corev1.Container, given string) rollout.Unread {
	unread := rollout.Unread{Path: given}
	mount := mountAt(container, given)
	if mount == nil {
		return unread
	}
	volume := findVolume(spec, mount.Name)
	if volume == nil || volume.ConfigMap == nil || mount.SubPathExpr != "" {
		return unread
	}
	file := path.Join(mount.SubPath, strings.TrimPrefix(path.Clean(given), path.Clean(mount.MountPath)))
	source := r.Lookup(volume.ConfigMap.Name)
	if source == nil {
		return unread
	}
	text, ok := source.Data[keyAt(volume.ConfigMap, strings.TrimPrefix(file, "/"))]
	if !ok {
		return unread
	}
	parsed, err := lbconfig.Read([]byte(text), release.Newest)
	if err != nil {
		return unread
	}
	unread.File, unread.Flags = parsed, sets.New(parsed.Flags()...)
	return unread
}

// mountAt is the mount that a file of the container is in: the one with the longest path above it.
func mountAt(container *corev1.Container, file string) *corev1.VolumeMount {
	if file == "" {
		return nil
	}
	file = path.Clean(file)
	var found *corev1.VolumeMount
	for i := range container.VolumeMounts {
		mount := &container.VolumeMounts[i]
		dir := path.Clean(mount.MountPath)
		if file != dir && !strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/") {
			continue
		}
		if found == nil || len(dir) > len(path.Clean(found.MountPath)) {
			found = mount
		}
	}
	return found
}

func findVolume(spec *corev1.PodSpec, name string) *corev1.Volume {
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == name {
			return &spec.Volumes[i]
		}
	}
	return nil
}

// keyAt is the key of the ConfigMap whose content is at the path within the volume; empty where none is.
func keyAt(source *corev1.ConfigMapVolumeSource, file string) string {
	if len(source.Items) == 0 {
		return file
	}
	for i := range source.Items {
		if path.Clean(source.Items[i].Path) == file {
			return source.Items[i].Key
		}
	}
	return ""
}

func isSubPath(m *corev1.VolumeMount) bool { return m.SubPath != "" || m.SubPathExpr != "" }
