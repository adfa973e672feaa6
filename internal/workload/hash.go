package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/internal/render"
)

// Hashes tell pod templates apart that are kept only in part.
type Hashes struct {
	// Whole is of the whole template.
	Whole string
	// Foreign is of the template less the operator's fields.
	Foreign string
}

// HashesOf a workload's or a ReplicaSet's pod template, from its metadata where Strip left them there.
func HashesOf(meta *metav1.ObjectMeta, template *corev1.PodTemplateSpec) Hashes {
	if whole, ok := meta.Annotations[annotationWhole]; ok {
		return Hashes{Whole: whole, Foreign: meta.Annotations[annotationForeign]}
	}
	t := template.DeepCopy()
	// The Deployment controller adds this label to the template of a ReplicaSet.
	delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	hashes := Hashes{Whole: hash(t)}
	dropOwn(&t.Spec)
	hashes.Foreign = hash(t)
	return hashes
}

func hash(t *corev1.PodTemplateSpec) string {
	if len(t.Labels) == 0 {
		t.Labels = nil
	}
	// A template that came out of JSON goes into it again.
	text, _ := json.Marshal(t)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// dropOwn removes everything that has the form of the operator's fields.
func dropOwn(spec *corev1.PodSpec) {
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == VolumeName })
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == VolumeName })
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool {
			return configMapRef(&e) != nil && slices.Contains(render.GatewayVariableNames(), e.Name)
		})
	}
}
