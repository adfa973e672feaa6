// Package preflight makes the throwaway pod that loads a candidate file before any pod of the router is replaced. It
// is pure.
//
// The pod is Stargate's own container with the same image, arguments and environment, and nothing by which anybody
// would find it, follow it or wait for it. Stargate looks its peers up by DNS and is found through the labels that its
// Services select, so that a pod without these labels is no peer, no backend and no endpoint, also of a Service that
// publishes addresses which are not ready. It lives from seconds to a minute, and no longer than its deadline.
package preflight

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelTemplate is the one label of a preflight pod: the hash of the pod template that it was made from, less the
	// operator's fields.
	LabelTemplate = "routing.nvcf.io/preflight"
	// ReadinessGate is a condition that nobody sets: the pod is never ready, whatever selects it.
	ReadinessGate corev1.PodConditionType = "routing.nvcf.io/serves"
)

// annotations of every preflight pod. A mesh's sidecar would give it an identity to be found by, and keep it from
// starting where there is none to give; and no node is to be kept for its sake.
var annotations = map[string]string{
	"sidecar.istio.io/inject":                        "false",
	"linkerd.io/inject":                              "disabled",
	"cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
}

// vault is the prefix of the only annotations of a template that a preflight pod has too: without the secrets that a
// Vault agent brings, Stargate might not start.
const vault = "vault.hashicorp.com/"

// Candidate is what a preflight pod is to load, and for whom.
type Candidate struct {
	Namespace string
	// Plane that owns the pod, as its controller: with the plane goes the pod, no other controller adopts it, and a
	// node can be drained of it. Deletion of the plane does not wait for it.
	Plane metav1.OwnerReference
	// Revision to load, and Template, the hash of the pod template less the operator's fields: together they make the
	// pod's name, so that there is one pod of each at most.
	Revision, Template string
	// Container of Stargate.
	Container string
	// Deadline after which the pod is ended on its node, whatever has become of the operator.
	Deadline time.Duration
}

// Name of the pod.
func (c *Candidate) Name() string {
	const hashLength = 16
	sum := sha256.Sum256([]byte(c.Revision + "/" + c.Template))
	suffix := "-preflight-" + hex.EncodeToString(sum[:])[:hashLength]
	plane := c.Plane.Name[:min(len(c.Plane.Name), 63-len(suffix))] // a host name, too
	return strings.TrimRight(plane, "-.") + suffix
}

// Problem says why no preflight pod can be made of the template, with the claims of a StatefulSet, without harm or
// with a result that would mean anything; empty where one can.
func Problem(template *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) string {
	spec := &template.Spec
	switch {
	case spec.HostNetwork:
		return "it is on its node's network, where a second pod would take the ports of one that serves, or be found in its place"
	case len(spec.ResourceClaims) > 0:
		return "it claims devices, which a preflight pod would take away from one that serves"
	}
	for i := range spec.Volumes {
		if problem := volumeProblem(&spec.Volumes[i], spec, claims); problem != "" {
			return fmt.Sprintf("volume %s %s", spec.Volumes[i].Name, problem)
		}
	}
	for i := range claims {
		if problem := claimProblem(&claims[i].Spec); problem != "" {
			return fmt.Sprintf("the volume of claim template %s %s", claims[i].Name, problem)
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, variable := range containers[i].Env {
				if _, own, ok := ownLabel(&variable, template.Labels); own && !ok {
					return fmt.Sprintf("variable %s of container %s is a label or annotation of the pod, and a preflight pod has others", variable.Name, containers[i].Name)
				}
			}
		}
	}
	return ""
}

func volumeProblem(v *corev1.Volume, spec *corev1.PodSpec, claims []corev1.PersistentVolumeClaim) string {
	if slices.ContainsFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == v.Name }) {
		return "" // the claim takes its place
	}
	switch {
	case v.ConfigMap != nil, v.Secret != nil, v.EmptyDir != nil, v.Image != nil:
		return ""
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if d := v.Projected.Sources[i].DownwardAPI; d != nil && downwardProblem(d.Items) != "" {
				return downwardProblem(d.Items)
			}
		}
		return ""
	case v.DownwardAPI != nil:
		return downwardProblem(v.DownwardAPI.Items)
	case v.CSI != nil && v.CSI.ReadOnly != nil && *v.CSI.ReadOnly:
		return ""
	case v.HostPath != nil && !written(v.Name, spec):
		return ""
	case v.HostPath != nil:
		return "is a directory of the node that is mounted for writing: two pods would write it"
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return claimProblem(&v.Ephemeral.VolumeClaimTemplate.Spec)
	case v.PersistentVolumeClaim != nil:
		return fmt.Sprintf("is the claim %s: a preflight pod would hold it, and without what is on it, would prove nothing", v.PersistentVolumeClaim.ClaimName)
	}
	return "is of a kind that a preflight pod might share with one that serves"
}

func downwardProblem(items []corev1.DownwardAPIVolumeFile) string {
	for _, item := range items {
		if item.FieldRef != nil && (strings.HasPrefix(item.FieldRef.FieldPath, "metadata.labels") || strings.HasPrefix(item.FieldRef.FieldPath, "metadata.annotations")) {
			return "has the pod's labels or annotations in it, and a preflight pod has others"
		}
	}
	return ""
}

// claimProblem: a claim that is made for each pod is empty for every new one, and an empty directory is as good, but
// for one that is filled beforehand or is no directory.
func claimProblem(claim *corev1.PersistentVolumeClaimSpec) string {
	switch {
	case claim.DataSource != nil || claim.DataSourceRef != nil || claim.VolumeName != "":
		return "is not empty at first: without what is on it, a preflight pod would prove nothing"
	case claim.VolumeMode != nil && *claim.VolumeMode == corev1.PersistentVolumeBlock:
		return "is a block device, which a preflight pod does not get"
	}
	return ""
}

// written tells whether a container may write to the volume.
func written(volume string, spec *corev1.PodSpec) bool {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if slices.ContainsFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume && !m.ReadOnly }) {
				return true
			}
		}
	}
	return false
}

// ownLabel reads a variable that is one of the pod's own labels or annotations: the value is the template's, for the
// pod itself has none, and unknown where it is not the template that has it.
func ownLabel(variable *corev1.EnvVar, labels map[string]string) (value string, own, ok bool) {
	if variable.ValueFrom == nil || variable.ValueFrom.FieldRef == nil {
		return "", false, false
	}
	path := variable.ValueFrom.FieldRef.FieldPath
	if label, found := strings.CutPrefix(path, "metadata.labels['"); found {
		value, ok = labels[strings.TrimSuffix(label, "']")]
		return value, true, ok
	}
	return "", strings.HasPrefix(path, "metadata.annotations"), false
}

// Pod makes the preflight pod of a template that has no Problem and that has the candidate mounted already.
//
// Of the pod only what a program needs in order to start is taken: what is not named here, a field of a later
// Kubernetes too, is left out. So the pod has
//   - no label that a Service, a workload, a disruption budget or a network policy of the router's selects;
//   - no place in the router's spreading, affinities, priority, scheduling group or host names;
//   - no containers beside Stargate's, which could register or serve: neither sidecars nor init containers that stay;
//     init containers that end are kept, since Stargate may need what they prepare, as in every new pod;
//   - no port of the node, no life-cycle hook, and no probe but the one for readiness, which tells that it has loaded;
//   - an empty directory for every claim that a new pod would get empty.
func Pod(template *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim, c Candidate) *corev1.Pod {
	t := template.DeepCopy()
	from := &t.Spec
	owner := c.Plane
	owner.Controller, owner.BlockOwnerDeletion = new(true), nil
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: c.Name(), OwnerReferences: []metav1.OwnerReference{owner},
			Labels: map[string]string{LabelTemplate: c.Template}, Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			// It starts again as one that serves would: what counts is that it exits every time.
			RestartPolicy:                 corev1.RestartPolicyOnFailure,
			ReadinessGates:                []corev1.PodReadinessGate{{ConditionType: ReadinessGate}},
			ActiveDeadlineSeconds:         new(int64(math.Ceil(c.Deadline.Seconds()))),
			TerminationGracePeriodSeconds: new(int64(1)), // nothing is to be drained
			Volumes:                       volumes(from.Volumes, claims),

			SecurityContext:              from.SecurityContext,
			ServiceAccountName:           from.ServiceAccountName,
			AutomountServiceAccountToken: from.AutomountServiceAccountToken,
			ImagePullSecrets:             from.ImagePullSecrets,
			NodeSelector:                 from.NodeSelector,
			Tolerations:                  from.Tolerations,
			SchedulerName:                from.SchedulerName,
			RuntimeClassName:             from.RuntimeClassName,
			Overhead:                     from.Overhead,
			OS:                           from.OS,
			DNSPolicy:                    from.DNSPolicy,
			DNSConfig:                    from.DNSConfig,
			HostAliases:                  from.HostAliases,
			HostUsers:                    from.HostUsers,
			EnableServiceLinks:           from.EnableServiceLinks,
			Resources:                    from.Resources,
		},
	}
	for key, value := range t.Annotations {
		if strings.HasPrefix(key, vault) {
			pod.Annotations[key] = value
		}
	}
	maps.Copy(pod.Annotations, annotations)
	if from.Affinity != nil && from.Affinity.NodeAffinity != nil {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: from.Affinity.NodeAffinity}
	}
	for i := range from.InitContainers {
		if !stays(&from.InitContainers[i]) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, alone(&from.InitContainers[i], t.Labels))
		}
	}
	for i := range from.Containers {
		if from.Containers[i].Name == c.Container {
			pod.Spec.Containers = append(pod.Spec.Containers, alone(&from.Containers[i], t.Labels))
		}
	}
	return pod
}

// stays tells a sidecar from an init container that ends before Stargate starts.
func stays(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// volumes are those of the template, with an empty directory for what would be a new claim.
func volumes(list []corev1.Volume, claims []corev1.PersistentVolumeClaim) []corev1.Volume {
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	list = slices.DeleteFunc(list, func(v corev1.Volume) bool {
		return slices.ContainsFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == v.Name })
	})
	for i := range list {
		if list[i].Ephemeral != nil {
			list[i].VolumeSource = empty
		}
	}
	for i := range claims {
		list = append(list, corev1.Volume{Name: claims[i].Name, VolumeSource: empty})
	}
	return list
}

// alone is the container less what concerns others.
func alone(c *corev1.Container, labels map[string]string) corev1.Container {
	c.LivenessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil
	c.RestartPolicy, c.RestartPolicyRules = nil, nil
	for i := range c.Ports {
		c.Ports[i].HostPort, c.Ports[i].HostIP = 0, "" // the others stay: a probe may name them
	}
	for i := range c.Env {
		if value, own, ok := ownLabel(&c.Env[i], labels); own && ok {
			c.Env[i].Value, c.Env[i].ValueFrom = value, nil
		}
	}
	return *c
}
