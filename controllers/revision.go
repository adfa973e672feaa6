package controllers

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/revision"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Labels and annotations of revisions.
const (
	labelManagedBy = revision.LabelManagedBy
	labelArtefact  = revision.LabelArtefact
	labelPlane     = revision.LabelPlane

	annotationPlane   = revision.AnnotationPlane
	annotationWave    = revision.AnnotationWave
	annotationRecords = revision.AnnotationRecords
)

// revisionLabels select the revisions of a plane.
func revisionLabels(plane string) map[string]string { return revision.Labels(plane) }

// newRevision makes the ConfigMap of a revision, with the record of the workload that is about to get it.
func newRevision(namespace, plane string, step *rollout.Step) (*corev1.ConfigMap, error) {
	cm := revision.New(namespace, plane, step.Revision, step.Artefact, step.Data, step.Wave)
	text, err := rollout.EncodeRecords(withRecord(nil, step))
	if err != nil {
		return nil, err
	}
	cm.Annotations[annotationRecords] = text
	return cm, nil
}

// withRecord are the records with the step's for its workload.
func withRecord(records map[string]rollout.Record, step *rollout.Step) map[string]rollout.Record {
	changed := make(map[string]rollout.Record, len(records)+1)
	maps.Copy(changed, records)
	changed[step.Workload.Key()] = step.Record
	return changed
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
		File: c.file, Flags: c.flags, Wave: wave, Records: rollout.DecodeRecords(cm.Annotations[annotationRecords]),
	}
}
