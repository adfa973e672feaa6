package effective

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Claims are how strongly models are claimed, by name: the higher the stronger.
type Claims map[string]int

// Strengths of a claim.
const (
	mayHaveIt = iota + 1
	hadIt
	// HasIt is the strongest: the model went to the claimant at the last merge.
	HasIt
)

// ClaimsOf reads from a policy's status which models were its own on the plane, named by namespace/name.
func ClaimsOf(status *v1alpha1.RoutingPolicyStatus, plane string) Claims {
	claims := Claims{}
	if status.Plane != plane {
		return claims
	}
	for i := range status.Models {
		switch m := &status.Models[i]; m.State {
		case v1alpha1.ModelConflict:
		case v1alpha1.ModelPending:
			claims[m.Name] = mayHaveIt
		default:
			claims[m.Name] = hadIt
		}
	}
	return claims
}

// Incumbents are, for each of the claimants, the models to which nobody's claim is stronger.
func Incumbents(claimants []Claims) []sets.Set[string] {
	best := map[string]int{}
	for _, claims := range claimants {
		for model, claim := range claims {
			best[model] = max(best[model], claim)
		}
	}
	incumbents := make([]sets.Set[string], len(claimants))
	for i, claims := range claimants {
		incumbents[i] = sets.New[string]()
		for model, claim := range claims {
			if claim == best[model] {
				incumbents[i].Insert(model)
			}
		}
	}
	return incumbents
}
