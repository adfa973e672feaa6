package standin

import (
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// volume holds the files of a volume by their path in it.
type volume map[string][]byte

// reader reads what a pod refers to, straight from the API server as a kubelet does.
type reader struct {
	client    kubernetes.Interface
	namespace string
}

// data of a ConfigMap or Secret; nil without an error where it is missing and optional.
func (r reader) data(ctx context.Context, kind, name string, optional *bool) (volume, error) {
	files := volume{}
	var err error
	switch kind {
	case "configmap":
		var cm *corev1.ConfigMap
		if cm, err = r.client.CoreV1().ConfigMaps(r.namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			maps.Copy(files, cm.BinaryData)
			for key, value := range cm.Data {
				files[key] = []byte(value)
			}
		}
	case "secret":
		var secret *corev1.Secret
		if secret, err = r.client.CoreV1().Secrets(r.namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			maps.Copy(files, secret.Data)
		}
	}
	switch {
	case apierrors.IsNotFound(err) && ptr.Deref(optional, false):
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s %q not found", kind, name)
	case err != nil:
		return nil, fmt.Errorf("reading %s %q: %w", kind, name, err)
	}
	return files, nil
}

// mount reads a volume. A kind of volume that has no files for us to know is empty.
func (r reader) mount(ctx context.Context, v corev1.Volume) (volume, error) {
	switch {
	case v.ConfigMap != nil:
		return r.source(ctx, "configmap", v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		return r.source(ctx, "secret", v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.Projected == nil:
		return volume{}, nil
	}
	all := volume{}
	for _, p := range v.Projected.Sources {
		var files volume
		var err error
		switch {
		case p.ConfigMap != nil:
			files, err = r.source(ctx, "configmap", p.ConfigMap.Name, p.ConfigMap.Items, p.ConfigMap.Optional)
		case p.Secret != nil:
			files, err = r.source(ctx, "secret", p.Secret.Name, p.Secret.Items, p.Secret.Optional)
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

func (r reader) source(ctx context.Context, kind, name string, items []corev1.KeyToPath, optional *bool) (volume, error) {
	data, err := r.data(ctx, kind, name, optional)
	if err != nil || len(items) == 0 {
		return data, err
	}
	files := volume{}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok && !ptr.Deref(optional, false) {
			return nil, fmt.Errorf("%s %q references non-existent config key: %s", kind, name, item.Key)
		}
		if ok {
			files[item.Path] = content
		}
	}
	return files, nil
}

// mountAll reads the pod's volumes anew. One that was there before and cannot be read any more keeps what it held,
// as a kubelet's does.
func (r reader) mountAll(ctx context.Context, pod *corev1.Pod, before map[string]volume) (map[string]volume, error) {
	volumes := map[string]volume{}
	for _, v := range pod.Spec.Volumes {
		files, err := r.mount(ctx, v)
		if old, ok := before[v.Name]; err != nil && ok {
			files, err = old, nil
		}
		if err != nil {
			return nil, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
		volumes[v.Name] = files
	}
	return volumes, nil
}

// file returns what the container finds at an absolute path.
func file(c *corev1.Container, volumes map[string]volume, name string) ([]byte, bool) {
	name = path.Clean(name)
	var deepest *corev1.VolumeMount
	for i, m := range c.VolumeMounts {
		at := path.Clean(m.MountPath)
		if (name == at || strings.HasPrefix(name, at+"/")) && (deepest == nil || len(at) > len(path.Clean(deepest.MountPath))) {
			deepest = &c.VolumeMounts[i]
		}
	}
	if deepest == nil {
		return nil, false
	}
	inside := path.Join(deepest.SubPath, strings.TrimPrefix(name, path.Clean(deepest.MountPath)))
	content, ok := volumes[deepest.Name][strings.TrimPrefix(inside, "/")]
	return content, ok
}

// environment of a container: envFrom first, then env, which wins.
func (r reader) environment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		var data volume
		var err error
		switch {
		case from.ConfigMapRef != nil:
			data, err = r.data(ctx, "configmap", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			data, err = r.data(ctx, "secret", from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for key, value := range data {
			env[from.Prefix+key] = string(value)
		}
	}
	for _, e := range c.Env {
		value, ok, err := r.variable(ctx, pod, e, env)
		if err != nil {
			return nil, err
		}
		if ok {
			env[e.Name] = value
		}
	}
	return env, nil
}

// variable returns false where an optional reference leads nowhere: the variable is not set then.
func (r reader) variable(ctx context.Context, pod *corev1.Pod, e corev1.EnvVar, so map[string]string) (string, bool, error) {
	if e.ValueFrom == nil {
		return expand(e.Value, so), true, nil
	}
	switch from := e.ValueFrom; {
	case from.ConfigMapKeyRef != nil:
		return r.key(ctx, "configmap", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional)
	case from.SecretKeyRef != nil:
		return r.key(ctx, "secret", from.SecretKeyRef.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Optional)
	case from.FieldRef != nil:
		value, known := map[string]string{
			"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
			"spec.nodeName": pod.Spec.NodeName, "status.podIP": pod.Status.PodIP,
		}[from.FieldRef.FieldPath]
		return value, known, nil
	default:
		return "", false, nil
	}
}

func (r reader) key(ctx context.Context, kind, name, key string, optional *bool) (string, bool, error) {
	data, err := r.data(ctx, kind, name, optional)
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && !ptr.Deref(optional, false) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, r.namespace, name)
	}
	return string(value), ok, nil
}

var reference = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expand replaces $(NAME) by a variable that is known, and leaves it as it is otherwise; $$ stands for $.
func expand(s string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(s, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := env[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// arguments of the container's program as it sees them.
func arguments(c *corev1.Container, env map[string]string) []string {
	all := slices.Concat(c.Command, c.Args)
	for i := range all {
		all[i] = expand(all[i], env)
	}
	return all
}
