// Package workload reads Deployments, StatefulSets and pods: what their templates say of the things that the
// operator cares about, how far a rollout is by Kubernetes' own word, and who owns which field. It is pure.
package workload

import (
	"strings"

	"github.com/routing-operator/routing-operator/internal/render"
)

const (
	// AnnotationPlane on a workload's own metadata names the plane, in the same namespace, that manages it.
	AnnotationPlane = "routing.nvcf.io/plane"
	// VolumeName is the volume of the pod template that holds Stargate's revision.
	VolumeName = "routing-lb-config"
	// FieldManager owns the operator's fields.
	FieldManager = "routing-operator"
)

// IsRevision tells whether a ConfigMap's name is that of a revision of the plane, whether it exists or not. It
// is the reverse of render.RevisionName.
func IsRevision(plane, artefact, name string) bool {
	sample := render.RevisionName(plane, artefact, nil)
	hash := strings.LastIndexByte(sample, '-') + 1
	return len(name) == len(sample) && name[:hash] == sample[:hash] && !strings.ContainsAny(name[hash:], "-.")
}
