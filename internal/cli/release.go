package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/revision"
	"github.com/routing-operator/routing-operator/internal/workload"
)

func (a *app) releaseCommand() *cobra.Command {
	var yes, unread bool
	var timeout time.Duration
	c := a.controlCommand("release PLANE", "Let go of a plane's workloads",
		`Takes the operator out of the workloads of a plane, once Stargate's arguments point at another file than the
operator's; while they do not, it changes nothing and says what would break.

A plane that exists is deleted, so that the operator takes flags and memory off in their order and lets go by itself;
then, and where the plane is gone already, what is left in the workloads of the operator's fields is let go: after
deletionPolicy Retain, or where the arguments were moved after the plane was deleted.`,
		`  # Point the router elsewhere first
  helm upgrade llm-request-router ... --set llmRequestRouter.loadBalancer.configPath=""
  kubectl routing release llm -n nvcf`,
		func(ctx context.Context, o *control, c client.Client, key types.NamespacedName) error {
			r := &releasing{control: o, client: c, key: key, yes: yes, unread: unread, timeout: timeout}
			return r.run(ctx)
		})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&unread, "unread", false, "the plane is gone and no argument names a file: Stargate does not read the operator's in any other way")
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "longest `time` to wait for the operator to let go")
	return c
}

// releasing is a release under way.
type releasing struct {
	*control
	client  client.Client
	key     types.NamespacedName
	yes     bool
	timeout time.Duration
	// unread: somebody who knows says that Stargate gets no path but by its arguments.
	unread bool
}

// held is a workload that has fields of the operator's for the plane.
type held struct {
	kind   string
	object client.Object
	// containers are the parts of a patch that takes the fields out of each.
	containers []any
	// artefact that the fields are for.
	artefact string
	// reads is the path that Stargate's arguments name and the operator's mount serves; empty where they do not meet.
	reads string
	// silent: Stargate's arguments name no path at all, so it may get one in a way that nobody can see here.
	silent bool
	// revision that the template names.
	revision string
}

func (r *releasing) run(ctx context.Context) error {
	plane := &v1alpha1.RoutingPlane{}
	if err := r.client.Get(ctx, r.key, plane); apierrors.IsNotFound(err) {
		plane = nil
	} else if err != nil {
		return notFound(r.key, err)
	}
	exists := plane != nil
	found, err := r.find(ctx)
	if err != nil {
		return err
	}
	if err := r.check(plane, found); err != nil {
		return &exit{exitProblems, err}
	}
	if !exists && len(found) == 0 {
		fmt.Fprintf(r.Out, "there is no plane %s, and no workload in the namespace has anything of one\n", r.key)
		return nil
	}
	if !r.yes {
		if err := r.confirm(r.question(exists, found)); err != nil {
			return err
		}
	}
	if exists {
		if err := r.delete(ctx, plane); err != nil {
			return err
		}
		r.unread = true // the plane said so: its configPathCheck was Arguments
	}
	// A workload that changes under our hands is looked at again: its arguments may be what changed.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := r.find(ctx)
		if err == nil {
			err = r.check(nil, found)
		}
		for i := range found {
			if err == nil {
				err = r.letGo(ctx, &found[i])
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.leftovers(ctx)
}

func (r *releasing) question(exists bool, found []held) string {
	var names []string
	for i := range found {
		names = append(names, found[i].kind+"/"+found[i].object.GetName())
	}
	if exists {
		return fmt.Sprintf("Delete plane %s, and let go of %s?", r.key, strings.Join(names, ", "))
	}
	return fmt.Sprintf("Let go of %s?", strings.Join(names, ", "))
}

// check says what would break, and why the operator would not let go. A plane that is nil is gone.
func (r *releasing) check(plane *v1alpha1.RoutingPlane, found []held) error {
	for i := range found {
		switch h := &found[i]; {
		case h.reads != "":
			return fmt.Errorf(`%[1]s %[2]s still starts Stargate with --lb-config-path=%[3]s, which is the operator's file %[4]s.
Without the mount every new pod would find no file there and exit, and the router would be down at its next restart.
Point the argument elsewhere first: for the chart, put the file into llmRequestRouter.loadBalancer.config, or empty
llmRequestRouter.loadBalancer.configPath for a router without a file; then run this again. Nothing was changed`, h.kind, h.object.GetName(), h.reads, h.revision)
		case h.silent && plane == nil && !r.unread:
			return fmt.Errorf(`%s %s has no argument --lb-config-path, and plane %s, which knew whether Stargate gets its path in another way, such as by
a TOML file (spec.stargate.configPathCheck: Skip), is gone. If it does, and reads the operator's file %s, every new pod would find
no file without the mount and exit, and the router would be down at its next restart. Make sure that it reads none or
another, and run this again with --unread. Nothing was changed`, h.kind, h.object.GetName(), r.key, h.revision)
		}
	}
	switch {
	case plane == nil:
		return nil
	case plane.Spec.Stargate.ConfigPathCheck == v1alpha1.ConfigPathCheckSkip:
		return errors.New("spec.stargate.configPathCheck is Skip, so nobody can tell whether Stargate still reads the operator's file; set it to Arguments when it does not, and run this again. Nothing was changed")
	case plane.Spec.DeletionPolicy == v1alpha1.DeletionRetain:
		return fmt.Errorf("spec.deletionPolicy is Retain, so deleting the plane would leave flags and memory as they are; set it to Unwind, or delete the plane and run this again to let go of everything at once: kubectl delete rpl %s -n %s. Nothing was changed",
			r.key.Name, r.key.Namespace)
	case plane.Spec.Rollout.Paused:
		return fmt.Errorf("the plane is paused, so the operator would let go of nothing; resume it first: kubectl routing resume %s -n %s. Nothing was changed", r.key.Name, r.key.Namespace)
	}
	return nil
}

// find reads the workloads of the namespace for fields of the plane's revisions.
func (r *releasing) find(ctx context.Context) ([]held, error) {
	var deployments appsv1.DeploymentList
	if err := r.client.List(ctx, &deployments, client.InNamespace(r.key.Namespace)); err != nil {
		return nil, fmt.Errorf("listing Deployments: %w", err)
	}
	var sets appsv1.StatefulSetList
	if err := r.client.List(ctx, &sets, client.InNamespace(r.key.Namespace)); err != nil {
		return nil, fmt.Errorf("listing StatefulSets: %w", err)
	}
	var found []held
	for i := range deployments.Items {
		found = r.append(found, v1alpha1.KindDeployment, &deployments.Items[i], &deployments.Items[i].Spec.Template.Spec)
	}
	for i := range sets.Items {
		found = r.append(found, v1alpha1.KindStatefulSet, &sets.Items[i], &sets.Items[i].Spec.Template.Spec)
	}
	return found, nil
}

func (r *releasing) append(found []held, kind string, object client.Object, spec *corev1.PodSpec) []held {
	h := held{kind: kind, object: object}
	for i := range spec.Containers {
		container := &spec.Containers[i]
		r.router(&h, spec, container)
		r.gateway(&h, container)
	}
	if h.artefact == "" && object.GetAnnotations()[workload.AnnotationPlane] != r.key.Name {
		return found
	}
	return append(found, h)
}

// router finds the mount of a revision of the plane in a container.
func (r *releasing) router(h *held, spec *corev1.PodSpec, container *corev1.Container) {
	volume := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == workload.VolumeName && v.ConfigMap != nil })
	mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == workload.VolumeName })
	if volume < 0 || mount < 0 || !workload.IsRevision(r.key.Name, render.ArtefactStargate, spec.Volumes[volume].ConfigMap.Name) {
		return
	}
	source, dir := spec.Volumes[volume].ConfigMap, container.VolumeMounts[mount].MountPath
	file := render.LBConfigKey
	if len(source.Items) > 0 {
		file = source.Items[0].Path
	}
	h.artefact, h.revision = render.ArtefactStargate, source.Name
	reader := workload.Reader{
		Plane: r.key.Name, Artefact: render.ArtefactStargate, Container: container.Name, ConfigPath: path.Join(dir, file), ConfigPathCheck: v1alpha1.ConfigPathCheckArguments,
		Release: func(string) release.Release { return release.Release{Generation: release.Unknown} },
		Lookup:  func(string) *corev1.ConfigMap { return nil },
	}
	if template := reader.Template(spec); template.ReadsFile {
		h.reads = reader.ConfigPath
	} else {
		h.silent = template.Unread.Path == ""
	}
	h.containers = append(h.containers, map[string]any{
		"name": container.Name, "volumeMounts": []any{map[string]any{"$patch": "delete", "mountPath": dir}},
	})
}

// gateway finds variables that come from a revision of the plane in a container.
func (r *releasing) gateway(h *held, container *corev1.Container) {
	var variables []any
	for i := range container.Env {
		e := &container.Env[i]
		if e.ValueFrom == nil || e.ValueFrom.ConfigMapKeyRef == nil || !workload.IsRevision(r.key.Name, render.ArtefactGateway, e.ValueFrom.ConfigMapKeyRef.Name) {
			continue
		}
		h.artefact, h.revision = render.ArtefactGateway, e.ValueFrom.ConfigMapKeyRef.Name
		variables = append(variables, map[string]any{"$patch": "delete", "name": e.Name})
	}
	if len(variables) > 0 {
		h.containers = append(h.containers, map[string]any{"name": container.Name, "env": variables})
	}
}

// delete deletes the plane and waits for the operator to let go.
func (r *releasing) delete(ctx context.Context, plane *v1alpha1.RoutingPlane) error {
	for key := range plane.Labels {
		if strings.HasPrefix(key, "kustomize.toolkit.fluxcd.io/") || strings.HasPrefix(key, "argocd.argoproj.io/") {
			fmt.Fprintf(r.ErrOut, "warning: the plane is applied from Git (label %s); take it out there, or it comes back\n", key)
		}
	}
	preconditions := client.Preconditions{UID: &plane.UID}
	if err := client.IgnoreNotFound(r.client.Delete(ctx, plane, preconditions)); err != nil {
		return fmt.Errorf("deleting plane %s: %w", r.key, err)
	}
	last := ""
	err := wait.PollUntilContextTimeout(ctx, time.Second, r.timeout, true, func(ctx context.Context) (bool, error) {
		now := &v1alpha1.RoutingPlane{}
		err := r.client.Get(ctx, r.key, now)
		if apierrors.IsNotFound(err) || err == nil && now.UID != plane.UID {
			return true, nil
		}
		if err != nil {
			return false, nil //nolint:nilerr // the API server may be away for a moment
		}
		line := "the operator takes the plane out of its workloads"
		if w := now.Status.Waiting; w != nil {
			line = "waiting for: " + w.For
		}
		if line != last {
			last = line
			fmt.Fprintln(r.Out, line)
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("the operator has not let go of the plane's workloads: %w; run this again, or see: kubectl routing status %s -n %s", err, r.key.Name, r.key.Namespace)
	}
	fmt.Fprintf(r.Out, "plane %s is gone\n", r.key)
	return nil
}

// letGo removes the operator's fields from a workload as one change, whoever owns them by now: what a deleted plane
// left belongs to nobody, and an apply would leave it.
func (r *releasing) letGo(ctx context.Context, h *held) error {
	type object = map[string]any
	spec := object{}
	if len(h.containers) > 0 {
		spec["containers"] = h.containers
	}
	if h.artefact == render.ArtefactStargate {
		spec["volumes"] = []any{object{"$patch": "delete", "name": workload.VolumeName}}
	}
	data, err := json.Marshal(object{
		"metadata": object{"resourceVersion": h.object.GetResourceVersion(), "annotations": object{workload.AnnotationPlane: nil}},
		"spec":     object{"template": object{"spec": spec}},
	})
	if err != nil {
		return fmt.Errorf("encoding the change: %w", err)
	}
	if err := r.client.Patch(ctx, h.object, client.RawPatch(types.StrategicMergePatchType, data), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("letting go of %s %s: %w", h.kind, h.object.GetName(), err)
	}
	fmt.Fprintf(r.Out, "let go of %s %s\n", h.kind, h.object.GetName())
	return nil
}

// leftovers says which revisions are still there.
func (r *releasing) leftovers(ctx context.Context) error {
	var list corev1.ConfigMapList
	if err := r.client.List(ctx, &list, client.InNamespace(r.key.Namespace), client.MatchingLabels(revision.Labels(r.key.Name))); err != nil {
		return fmt.Errorf("listing revisions: %w", err)
	}
	if n := len(list.Items); n > 0 {
		fmt.Fprintf(r.Out, "%s left; when no ReplicaSet is to be rolled back to one any more: kubectl delete configmap -n %s -l %s=%s,%s=%s\n", count(n, "revision is", "revisions are"),
			r.key.Namespace, revision.LabelManagedBy, workload.FieldManager, revision.LabelPlane, revision.Labels(r.key.Name)[revision.LabelPlane])
	}
	return nil
}
