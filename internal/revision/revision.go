// Package revision has the form of the ConfigMaps that hold what workloads read, one for each version of it. It is
// pure.
package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/routing-operator/routing-operator/internal/workload"
)

// Labels and annotations of revisions.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelPlane     = "routing.nvcf.io/plane"
	// LabelArtefact is render.ArtefactStargate or render.ArtefactGateway.
	LabelArtefact = "routing.nvcf.io/artefact"

	// AnnotationPlane holds the plane's name whole, which may be too long for a label.
	AnnotationPlane = "routing.nvcf.io/plane"
	// AnnotationWave is the number of waves of flags rolled out up to the revision.
	AnnotationWave = "routing.nvcf.io/wave"
	// AnnotationRecords is what became of the workloads on the revision, as JSON.
	AnnotationRecords = "routing.nvcf.io/records"
)

// Labels select the revisions of a plane.
func Labels(plane string) map[string]string {
	return map[string]string{LabelManagedBy: workload.FieldManager, LabelPlane: labelValue(plane)}
}

// labelValue is a valid label value for any name: the name itself, or its beginning and a hash.
func labelValue(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	const hash = 16
	sum := sha256.Sum256([]byte(name))
	cut := name[:min(len(name), validation.LabelValueMaxLength-hash-1)]
	return strings.TrimRight(cut, "-._") + "-" + hex.EncodeToString(sum[:])[:hash]
}

// New makes the ConfigMap of a revision. It has no owner: it must outlive the plane where a template still names it.
func New(namespace, plane, name, artefact string, data map[string]string, wave int) *corev1.ConfigMap {
	labels := Labels(plane)
	labels[LabelArtefact] = artefact
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: labels,
			Annotations: map[string]string{AnnotationPlane: plane, AnnotationWave: strconv.Itoa(wave)},
		},
		Immutable: new(true),
		Data:      data,
	}
}
