package webhooks

import (
	"cmp"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// maxFileSize is what a ConfigMap holds, all of it, in bytes: 1 MiB.
const maxFileSize = 1 << 20

// company is what the policies on a plane mean to each other: models that more than one of them lists, and the
// size of the file for all of them. The first policy is the one under review.
func company(plane *v1alpha1.RoutingPlane, policies []*v1alpha1.RoutingPolicy) []validate.Warning {
	reviewed, key := policies[0], client.ObjectKeyFromObject(plane).String()
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
		slices.SortFunc(claims[model], func(a, b *v1alpha1.RoutingPolicy) int { return precedence(model, key, a, b) })
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

// precedence sorts the policies that list a model by their claim to it: the one that has it, then the older one,
// then by namespace and name. It is the order in which the plane's controller merges.
func precedence(model, plane string, a, b *v1alpha1.RoutingPolicy) int {
	return cmp.Or(
		cmp.Compare(claim(model, plane, b), claim(model, plane, a)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// claim is how much a policy's status says that a model is its own on the plane: not at all, maybe, or surely.
func claim(model, plane string, policy *v1alpha1.RoutingPolicy) int {
	i := slices.IndexFunc(policy.Status.Models, func(m v1alpha1.ModelStatus) bool { return m.Name == model })
	if i < 0 || policy.Status.Plane != plane {
		return 0
	}
	switch policy.Status.Models[i].State {
	case v1alpha1.ModelConflict:
		return 0
	case v1alpha1.ModelPending:
		return 1
	default:
		return 2
	}
}
