package controllers

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// merged is the effective configuration of a plane and whose each model is.
type merged struct {
	config   render.Config
	policies []acceptedPolicy
	owner    map[string]*acceptedPolicy
}

// merge gives every model to the policy that has the best claim to it: the one that has had it up to now, else the
// older, else by namespace and name. Before is whose each model was at the last merge.
func merge(plane *v1alpha1.RoutingPlane, policies []acceptedPolicy, before map[string]types.UID) merged {
	m := merged{
		config: render.Config{
			DefaultAlgorithm:  plane.Spec.Stargate.DefaultAlgorithm,
			RequestAlgorithms: plane.Spec.Stargate.RequestAlgorithms,
		},
		policies: policies,
		owner:    map[string]*acceptedPolicy{},
	}
	byAge := make([]*acceptedPolicy, len(policies))
	for i := range policies {
		byAge[i] = &policies[i]
	}
	slices.SortFunc(byAge, func(a, b *acceptedPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	key := client.ObjectKeyFromObject(plane).String()
	best := map[string]int{}
	for _, policy := range byAge {
		claims := claimsOf(policy, key)
		for i := range policy.spec.Models {
			name := policy.spec.Models[i].Name
			claim := claims[name]
			if before[name] == policy.UID {
				claim = hadIt
			}
			if m.owner[name] == nil || claim > best[name] {
				m.owner[name], best[name] = policy, claim
			}
		}
	}
	for _, policy := range byAge {
		for i := range policy.spec.Models {
			if m.owner[policy.spec.Models[i].Name] == policy {
				m.config.Models = append(m.config.Models, policy.spec.Models[i])
			}
		}
	}
	slices.SortFunc(m.config.Models, func(a, b v1alpha1.Model) int { return cmp.Compare(a.Name, b.Name) })
	return m
}

// Strengths of a claim to a model.
const (
	mayHaveIt = iota + 1
	hadIt
)

// claimsOf reads from a policy's status which models were its own on the plane. That is all there is to go by
// where the process has merged nothing yet.
func claimsOf(policy *acceptedPolicy, plane string) map[string]int {
	claims := map[string]int{}
	if policy.Status.Plane != plane {
		return claims
	}
	for i := range policy.Status.Models {
		switch m := &policy.Status.Models[i]; m.State {
		case v1alpha1.ModelConflict:
		case v1alpha1.ModelPending:
			claims[m.Name] = mayHaveIt
		default:
			claims[m.Name] = hadIt
		}
	}
	return claims
}

// owners by UID, for the next merge.
func (m *merged) owners() map[string]types.UID {
	owners := make(map[string]types.UID, len(m.owner))
	for name, policy := range m.owner {
		owners[name] = policy.UID
	}
	return owners
}

// carried counts the policies that have a model on the plane.
func (m *merged) carried() int32 {
	owners := sets.New[types.UID]()
	for _, policy := range m.owner {
		owners.Insert(policy.UID)
	}
	return int32(owners.Len())
}
