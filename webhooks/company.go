package webhooks

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/effective"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// company is what the policies on a plane mean to each other, by the merge that the plane's controller makes: models
// that more than one of them lists, and whether there is room for all. The first policy is the one under review.
func company(plane *v1alpha1.RoutingPlane, policies []*v1alpha1.RoutingPolicy) []validate.Warning {
	claims := make([]effective.Claims, len(policies))
	for i, policy := range policies {
		claims[i] = effective.ClaimsOf(&policy.Status, client.ObjectKeyFromObject(plane).String())
	}
	claimants := make([]effective.Policy, len(policies))
	for i, incumbent := range effective.Incumbents(claims) {
		claimants[i] = effective.Policy{
			NamespacedName: client.ObjectKeyFromObject(policies[i]), Created: policies[i].CreationTimestamp.Time,
			Models: policies[i].Spec.Models, Incumbent: incumbent,
		}
	}
	merged := effective.Merge(render.Config{
		DefaultAlgorithm:  plane.Spec.Stargate.DefaultAlgorithm,
		RequestAlgorithms: plane.Spec.Stargate.RequestAlgorithms,
	}, claimants)

	reviewed := claimants[0]
	index := make(map[string]int, len(reviewed.Models))
	for i := range reviewed.Models {
		index[reviewed.Models[i].Name] = i
	}
	models := specPath.Child("models")
	var warnings []validate.Warning
	for _, conflict := range merged.Conflicts[reviewed.NamespacedName] {
		warnings = append(warnings, warnf(models.Index(index[conflict.Model]), "%s", conflict.Message()))
	}
	for i := range claimants[1:] {
		other := claimants[i+1].NamespacedName
		for _, conflict := range merged.Conflicts[other] {
			if conflict.Winner == reviewed.NamespacedName {
				warnings = append(warnings, warnf(models.Index(index[conflict.Model]),
					"policy %s lists model %q too; this policy has it and keeps it, take it out of one of them", other, conflict.Model))
			}
		}
	}
	for i := range merged.LeftOut {
		if merged.LeftOut[i].Policy == reviewed.NamespacedName {
			warnings = append(warnings, warnf(models, "%s", merged.LeftOut[i].Message()))
		}
	}
	return warnings
}
