package controllers

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// Labels and annotations of revisions.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelPlane     = "routing.nvcf.io/plane"
	labelArtefact  = "routing.nvcf.io/artefact"

	// annotationPlane holds the plane's name whole, which may be too long for a label.
	annotationPlane   = "routing.nvcf.io/plane"
	annotationWave    = "routing.nvcf.io/wave"
	annotationRecords = "routing.nvcf.io/records"
)

// revisionLabels select the revisions of a plane.
func revisionLabels(plane string) map[string]string {
	return map[string]string{labelManagedBy: workload.FieldManager, labelPlane: labelValue(plane)}
}

// labelValue is a valid label value for any name: the name itself, or its beginning and a hash.
func labelValue(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	const hash = 16
	cut := name[:min(len(name), validation.LabelValueMaxLength-hash-1)]
	return strings.TrimRight(cut, "-._") + "-" + shortHash(name)[:hash]
}

// newRevision makes the ConfigMap of a revision. It has no owner: it must outlive the plane where a template
// still names it.
func newRevision(namespace, plane string, step *rollout.Step) *corev1.ConfigMap {
	labels := revisionLabels(plane)
	labels[labelArtefact] = step.Artefact
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: step.Revision, Labels: labels,
			Annotations: map[string]string{annotationPlane: plane, annotationWave: strconv.Itoa(step.Wave)},
		},
		Immutable: ptr.To(true),
		Data:      step.Data,
	}
}

// record is a rollout.Record as an annotation holds it.
type record struct {
	Completed *metav1.Time `json:"completed,omitempty"`
	Template  string       `json:"template,omitempty"`
	Failed    *metav1.Time `json:"failed,omitempty"`
	Retry     string       `json:"retry,omitempty"`
	Message   string       `json:"message,omitempty"`
}

func encodeRecords(records map[string]rollout.Record) (string, error) {
	stored := make(map[string]record, len(records))
	for key, r := range records {
		stored[key] = record{Completed: timeOrNil(r.Completed), Template: r.Template, Failed: timeOrNil(r.Failed), Retry: r.Retry, Message: r.Message}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return "", fmt.Errorf("encoding the records of a revision: %w", err)
	}
	return string(text), nil
}

// decodeRecords takes an annotation that was tampered with for none at all: the plane's status has the same.
func decodeRecords(text string) map[string]rollout.Record {
	var stored map[string]record
	if text == "" || json.Unmarshal([]byte(text), &stored) != nil {
		return nil
	}
	records := make(map[string]rollout.Record, len(stored))
	for key, r := range stored {
		records[key] = rollout.Record{Completed: timeOf(r.Completed), Template: r.Template, Failed: timeOf(r.Failed), Retry: r.Retry, Message: r.Message}
	}
	return records
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// content is what a revision's data says; it is read once, since an immutable ConfigMap does not change.
type content struct {
	intact bool
	file   *lbconfig.File
	flags  render.Flags
}

func readContent(plane string, cm *corev1.ConfigMap) content {
	artefact := cm.Labels[labelArtefact]
	c := content{intact: ptr.Deref(cm.Immutable, false) && render.RevisionName(plane, artefact, cm.Data) == cm.Name}
	if artefact != render.ArtefactStargate {
		return c
	}
	if file, err := lbconfig.Read([]byte(cm.Data[render.LBConfigKey]), release.Newest); err == nil {
		c.file, c.flags = file, sets.New(file.Flags()...)
	}
	return c
}

// observeRevision is the revision in the planner's terms.
func observeRevision(cm *corev1.ConfigMap, c content) rollout.Revision {
	wave, err := strconv.Atoi(cm.Annotations[annotationWave])
	if err != nil {
		wave = 0
	}
	return rollout.Revision{
		Name: cm.Name, UID: string(cm.UID), ResourceVersion: cm.ResourceVersion, Created: cm.CreationTimestamp.Time,
		Artefact: cm.Labels[labelArtefact], Data: cm.Data, Intact: c.intact, Deleting: cm.DeletionTimestamp != nil,
		File: c.file, Flags: c.flags, Wave: wave, Records: decodeRecords(cm.Annotations[annotationRecords]),
	}
}
