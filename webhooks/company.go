package webhooks

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// maxFileSize is what a ConfigMap holds, all of it, in bytes: 1 MiB.
const maxFileSize = 1 << 20

// allows tells whether a plane takes policies from a namespace.
func allows(plane *v1alpha1.RoutingPlane, namespace *corev1.Namespace) (bool, error) {
	allowed := plane.Spec.AllowedPolicies.Namespaces
	switch allowed.From {
	case v1alpha1.NamespacesFromAll:
		return true, nil
	case v1alpha1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(allowed.Selector)
		if err != nil {
			return false, fmt.Errorf("read the namespace selector of RoutingPlane %s/%s: %w", plane.Namespace, plane.Name, err)
		}
		return selector.Matches(labels.Set(namespace.Labels)), nil
	default:
		return plane.Namespace == namespace.Name, nil
	}
}

// company is what the policies on a plane mean to each other: models that more than one of them lists, and the
// size of the file for all of them. The first policy is the one under review.
func company(plane *v1alpha1.RoutingPlane, policies []*v1alpha1.RoutingPolicy) []validate.Warning {
	reviewed := policies[0]
	claims := map[string][]*v1alpha1.RoutingPolicy{}
	merged := render.Config{
		DefaultAlgorithm:  plane.Spec.Stargate.DefaultAlgorithm,
		RequestAlgorithms: plane.Spec.Stargate.RequestAlgorithms,
	}
	for _, policy := range policies {
		for i := range policy.Spec.Models {
			model := &policy.Spec.Models[i]
			if claims[model.Name] == nil {
				merged.Models = append(merged.Models, *model)
			}
			claims[model.Name] = append(claims[model.Name], policy)
		}
	}
	var warnings []validate.Warning
	for i := range reviewed.Spec.Models {
		model := reviewed.Spec.Models[i].Name
		if len(claims[model]) == 1 {
			continue
		}
		slices.SortFunc(claims[model], func(a, b *v1alpha1.RoutingPolicy) int { return precedence(model, a, b) })
		keeper, at := claims[model][0], specPath.Child("models").Index(i)
		if keeper != reviewed {
			warnings = append(warnings, warnf(at, "policy %s/%s has model %q already and keeps it; this entry takes effect once it is taken out there", keeper.Namespace, keeper.Name, model))
			continue
		}
		for _, other := range claims[model][1:] {
			warnings = append(warnings, warnf(at, "policy %s/%s lists model %q too; this policy has it and keeps it, take it out of one of them", other.Namespace, other.Name, model))
		}
	}
	if size := render.LargestSize(merged); size > maxFileSize {
		warnings = append(warnings, warnf(specPath.Child("models"),
			"with this policy the plane's lb-config.json can grow to %d bytes for %d models, and a ConfigMap holds %d: the policy is not accepted while that is so; list fewer models, or use another plane",
			size, len(merged.Models), maxFileSize))
	}
	return warnings
}

// precedence sorts the policies that list a model by their right to it: the one whose entry was rolled out, then
// the older one, then by namespace and name.
func precedence(model string, a, b *v1alpha1.RoutingPolicy) int {
	if hasA, hasB := incumbent(model, a), incumbent(model, b); hasA != hasB {
		if hasA {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// incumbent tells whether Stargate runs the policy's entry of the model, or was about to.
func incumbent(model string, policy *v1alpha1.RoutingPolicy) bool {
	return slices.ContainsFunc(policy.Status.Models, func(m v1alpha1.ModelStatus) bool {
		return m.Name == model && m.State != v1alpha1.ModelPending && m.State != v1alpha1.ModelConflict
	})
}
