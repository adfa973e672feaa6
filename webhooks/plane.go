package webhooks

import (
	"context"
	"fmt"
	"path"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// planeValidator refuses a plane that is wrong by itself, one that would mount over what a container has, and one
// whose author may not patch the workloads that it names: the operator patches them for whoever wrote the plane.
type planeValidator struct{ site }

// ValidateCreate reviews a new plane.
func (v *planeValidator) ValidateCreate(ctx context.Context, plane *v1alpha1.RoutingPlane) (admission.Warnings, error) {
	return v.review(ctx, nil, plane)
}

// ValidateUpdate reviews a change. Of a plane that is being deleted only its references are looked at, if they
// changed: unwinding patches whatever they name.
func (v *planeValidator) ValidateUpdate(ctx context.Context, old, plane *v1alpha1.RoutingPlane) (admission.Warnings, error) {
	if !plane.DeletionTimestamp.IsZero() {
		errs, err := v.authorize(ctx, old, plane)
		if err != nil {
			return nil, unreadable(err)
		}
		return answer("RoutingPlane", plane.Name, errs, nil)
	}
	return v.review(ctx, old, plane)
}

// ValidateDelete is in no rule of the webhook.
func (v *planeValidator) ValidateDelete(context.Context, *v1alpha1.RoutingPlane) (admission.Warnings, error) {
	return nil, nil
}

func (v *planeValidator) review(ctx context.Context, old, plane *v1alpha1.RoutingPlane) (admission.Warnings, error) {
	errs, err := v.check(ctx, plane)
	if err != nil {
		return nil, unreadable(err)
	}
	var warnings []validate.Warning
	if old != nil && len(errs) > 0 {
		before, err := v.check(ctx, old)
		if err != nil {
			return nil, unreadable(err)
		}
		errs, warnings = ratchet(errs, before, same, same)
	}
	if old != nil {
		errs = append(errs, validate.PlaneChange(&old.Spec, &plane.Spec, specPath)...)
	}
	forbidden, err := v.authorize(ctx, old, plane)
	if err != nil {
		return nil, unreadable(err)
	}
	errs = append(errs, forbidden...)
	if len(errs) == 0 && len(warnings) == 0 {
		if warnings, err = v.warn(ctx, plane); err != nil {
			return nil, unreadable(err)
		}
	}
	return answer("RoutingPlane", plane.Name, errs, warnings)
}

// unreadable is the answer where the review itself failed: planes fail closed, and the author may try again.
func unreadable(err error) error {
	return apierrors.NewInternalError(fmt.Errorf("the plane could not be reviewed and is refused for safety: %w; try again", err))
}

// check is everything that is wrong with the plane, whoever wrote it.
func (v *planeValidator) check(ctx context.Context, plane *v1alpha1.RoutingPlane) (field.ErrorList, error) {
	errs := validate.Plane(&plane.Spec, specPath, v.options.Validate)
	stargate := &plane.Spec.Stargate
	template, err := v.template(ctx, plane.Namespace, stargate.WorkloadRef)
	if err != nil || template == nil {
		return errs, err
	}
	if container, _ := containerOf(template, stargate.Container); container != nil {
		errs = append(errs, overlaps(container, stargate.ConfigPath, specPath.Child("stargate", "configPath"))...)
	}
	return errs, nil
}

// overlaps refuses a directory that another mount of the container covers, is in or has below it: one of the two
// would hide the other.
func overlaps(container *corev1.Container, configPath string, at *field.Path) (errs field.ErrorList) {
	dir := path.Dir(configPath)
	for i := range container.VolumeMounts {
		mount := &container.VolumeMounts[i]
		if mounted := path.Clean(mount.MountPath); mount.Name != workload.VolumeName && (within(mounted, dir) || within(dir, mounted)) {
			errs = append(errs, field.Invalid(at, configPath, fmt.Sprintf(
				"container %s mounts volume %s at %s, and the operator would mount over %s; choose a directory apart from it, such as %s",
				container.Name, mount.Name, mount.MountPath, dir, validate.DefaultPathPrefix)))
		}
	}
	return errs
}

// within tells whether a clean path is the directory or below it.
func within(name, dir string) bool {
	return strings.HasPrefix(strings.TrimSuffix(name, "/")+"/", strings.TrimSuffix(dir, "/")+"/")
}

// warn is what a second look at the plane and its workloads brings.
func (v *planeValidator) warn(ctx context.Context, plane *v1alpha1.RoutingPlane) ([]validate.Warning, error) {
	var warnings []validate.Warning
	generations := validate.AnyGeneration
	for i, reference := range references(plane) {
		template, err := v.template(ctx, plane.Namespace, reference.workload)
		if err != nil {
			return nil, err
		}
		rivals, err := v.rivals(ctx, plane, reference.workload)
		if err != nil {
			return nil, err
		}
		for _, rival := range rivals {
			warnings = append(warnings, warnf(reference.at.Child("workloadRef"), "RoutingPlane %s names %s %s too; the one that manages it keeps it and the other waits: take the workload out of one of them",
				rival, reference.workload.Kind, reference.workload.Name))
		}
		if template == nil {
			warnings = append(warnings, warnf(reference.at.Child("workloadRef"), "there is no %s %s/%s; the plane waits until there is one, correct the reference if it is misspelt",
				reference.workload.Kind, plane.Namespace, reference.workload.Name))
			continue
		}
		container, problem := containerOf(template, reference.container)
		if container == nil {
			warnings = append(warnings, warnf(reference.at.Child("container"), "%s %s: %s", reference.workload.Kind, reference.workload.Name, problem))
			continue
		}
		if i == 0 {
			generations = validate.Only(v.options.Generations.OfImage(container.Image, plane.Spec.Stargate.Releases).Generation)
		}
	}
	return append(warnings, validate.PlaneWarnings(&plane.Spec, specPath, generations)...), nil
}

// rivals are the other planes that name the workload.
func (v *planeValidator) rivals(ctx context.Context, plane *v1alpha1.RoutingPlane, reference v1alpha1.WorkloadReference) (names []string, err error) {
	var list v1alpha1.RoutingPlaneList
	if err := v.client.List(ctx, &list, client.InNamespace(plane.Namespace), index.Planes(reference)); err != nil {
		return nil, fmt.Errorf("list the planes of %s %s/%s: %w", reference.Kind, plane.Namespace, reference.Name, err)
	}
	for i := range list.Items {
		if other := list.Items[i].Name; other != plane.Name {
			names = append(names, other)
		}
	}
	return names, nil
}

// reference is a workload as a plane names it.
type reference struct {
	at        *field.Path
	workload  v1alpha1.WorkloadReference
	container string
	// configPath is where the operator mounts its file; empty for a gateway.
	configPath string
}

// references of a plane: the router's first.
func references(plane *v1alpha1.RoutingPlane) []reference {
	stargate := &plane.Spec.Stargate
	list := []reference{{specPath.Child("stargate"), stargate.WorkloadRef, stargate.Container, stargate.ConfigPath}}
	for i := range plane.Spec.Gateways {
		gateway := &plane.Spec.Gateways[i]
		list = append(list, reference{specPath.Child("gateways").Index(i), gateway.WorkloadRef, gateway.Container, ""})
	}
	return list
}

// template reads the pod template's spec of a workload; nil where there is no such workload.
func (s *site) template(ctx context.Context, namespace string, ref v1alpha1.WorkloadReference) (*corev1.PodSpec, error) {
	var object client.Object
	var spec *corev1.PodSpec
	switch ref.Kind {
	case v1alpha1.KindDeployment:
		deployment := &appsv1.Deployment{}
		object, spec = deployment, &deployment.Spec.Template.Spec
	case v1alpha1.KindStatefulSet:
		set := &appsv1.StatefulSet{}
		object, spec = set, &set.Spec.Template.Spec
	default:
		return nil, nil
	}
	err := s.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	return spec, nil
}

// containerOf finds the container that a plane means; nil and what a person has to mend where that is not clear.
func containerOf(template *corev1.PodSpec, name string) (container *corev1.Container, problem string) {
	name, problem = workload.ResolveContainer(template, name)
	for i := range template.Containers {
		if template.Containers[i].Name == name {
			return &template.Containers[i], ""
		}
	}
	return nil, problem
}
