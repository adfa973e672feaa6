package webhooks

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/tenancy"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// policyValidator refuses a policy that is wrong by itself, and warns of everything else: Git applies in any
// order, and what is missing now may come with the next object.
type policyValidator struct{ site }

// ValidateCreate reviews a new policy.
func (v *policyValidator) ValidateCreate(ctx context.Context, policy *v1alpha1.RoutingPolicy) (admission.Warnings, error) {
	return v.review(ctx, nil, policy)
}

// ValidateUpdate reviews a change; what is being deleted is let through.
func (v *policyValidator) ValidateUpdate(ctx context.Context, old, policy *v1alpha1.RoutingPolicy) (admission.Warnings, error) {
	if !policy.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return v.review(ctx, old, policy)
}

// ValidateDelete is in no rule of the webhook.
func (v *policyValidator) ValidateDelete(context.Context, *v1alpha1.RoutingPolicy) (admission.Warnings, error) {
	return nil, nil
}

func (v *policyValidator) review(ctx context.Context, old, policy *v1alpha1.RoutingPolicy) (admission.Warnings, error) {
	errs := validate.Policy(&policy.Spec, specPath)
	if len(errs) > 0 {
		var tolerated []validate.Warning
		if old != nil {
			errs, tolerated = ratchet(errs, validate.Policy(&old.Spec, specPath), byModel(&policy.Spec), byModel(&old.Spec))
		}
		return answer("RoutingPolicy", policy.Name, errs, tolerated)
	}
	plane, warnings, err := v.planeOf(ctx, policy)
	if err == nil && plane != nil {
		var more []validate.Warning
		more, err = v.others(ctx, plane, policy)
		warnings = append(warnings, more...)
	}
	if err != nil {
		// Nothing is refused for what cannot be read.
		logf.FromContext(ctx).Error(err, "Policy accepted without a look at its plane")
		warnings = append(warnings, validate.Warning{Path: specPath.Child("planeRef"),
			Message: "the plane and its other policies could not be looked at: " + err.Error() + "; see the policy's status"})
	}
	warnings = append(warnings, validate.PolicyWarnings(&policy.Spec, specPath, v.generations(plane))...)
	return answer("RoutingPolicy", policy.Name, nil, warnings)
}

// byModel names paths by the model instead of its place in the list.
func byModel(spec *v1alpha1.RoutingPolicySpec) func(string) string {
	return func(path string) string {
		rest, ok := strings.CutPrefix(path, "spec.models[")
		number, rest, _ := strings.Cut(rest, "]")
		i, err := strconv.Atoi(number)
		if !ok || err != nil || i >= len(spec.Models) {
			return path
		}
		return strconv.Quote(spec.Models[i].Name) + rest
	}
}

// planeOf finds the plane that the policy is for, and says what is in the way of it. Without a plane the answer
// is nil.
func (v *policyValidator) planeOf(ctx context.Context, policy *v1alpha1.RoutingPolicy) (*v1alpha1.RoutingPlane, []validate.Warning, error) {
	at, key := specPath.Child("planeRef"), history.PlaneOf(policy.Namespace, &policy.Spec)
	plane := &v1alpha1.RoutingPlane{}
	err := v.client.Get(ctx, key, plane)
	if apierrors.IsNotFound(err) {
		return nil, []validate.Warning{warnf(at, "there is no RoutingPlane %s; the policy waits until there is one, correct the reference if it is misspelt", key)}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read RoutingPlane %s: %w", key, err)
	}
	var warnings []validate.Warning
	if !plane.DeletionTimestamp.IsZero() {
		warnings = append(warnings, warnf(at, "RoutingPlane %s is being deleted; name another one, or create it again once it is gone", key))
	}
	namespace := &corev1.Namespace{}
	if err := v.client.Get(ctx, types.NamespacedName{Name: policy.Namespace}, namespace); err != nil {
		return plane, warnings, fmt.Errorf("read namespace %s: %w", policy.Namespace, err)
	}
	allowed, err := tenancy.Allows(plane, namespace)
	if err != nil {
		return plane, warnings, err
	}
	if !allowed {
		warnings = append(warnings, warnf(at, "RoutingPlane %s takes no policies from namespace %s (its spec.allowedPolicies.namespaces.from is %s); have its owner allow the namespace, or move the policy",
			key, policy.Namespace, plane.Spec.AllowedPolicies.Namespaces.From))
	}
	return plane, warnings, nil
}

// others looks at the other policies on the plane.
func (v *policyValidator) others(ctx context.Context, plane *v1alpha1.RoutingPlane, policy *v1alpha1.RoutingPolicy) ([]validate.Warning, error) {
	var list v1alpha1.RoutingPolicyList
	if err := v.client.List(ctx, &list, index.Policies(client.ObjectKeyFromObject(plane)), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the policies of RoutingPlane %s/%s: %w", plane.Namespace, plane.Name, err)
	}
	policies := []*v1alpha1.RoutingPolicy{policy}
	for i := range list.Items {
		if other := &list.Items[i]; client.ObjectKeyFromObject(other) != client.ObjectKeyFromObject(policy) && other.DeletionTimestamp.IsZero() {
			policies = append(policies, other)
		}
	}
	return company(plane, policies), nil
}

// generations of Stargate that may read the policy: that of the running release, or any where it is not known.
func (s *site) generations(plane *v1alpha1.RoutingPlane) validate.Generations {
	if plane == nil || plane.Status.Stargate == nil {
		return validate.AnyGeneration
	}
	running, err := s.options.Generations.Parse(plane.Status.Stargate.Release)
	if err != nil {
		running.Generation = release.Unknown
	}
	return validate.Only(running.Generation)
}

func warnf(path *field.Path, format string, arguments ...any) validate.Warning {
	return validate.Warning{Path: path, Message: fmt.Sprintf(format, arguments...)}
}
