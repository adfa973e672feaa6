package controllers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/effective"
	"github.com/routing-operator/routing-operator/internal/render"
)

// merged is the effective configuration and the policies that it was made from.
type merged struct {
	effective.Result
	policies []acceptedPolicy
}

// merge gives every model to the policy that has it, else to the older one.
func (g *gatherer) merge(policies []acceptedPolicy) merged {
	own := render.Config{
		DefaultAlgorithm:  g.plane.Spec.Stargate.DefaultAlgorithm,
		RequestAlgorithms: g.plane.Spec.Stargate.RequestAlgorithms,
	}
	incumbents := g.incumbents(policies)
	claimants := make([]effective.Policy, len(policies))
	for i := range policies {
		claimants[i] = effective.Policy{
			NamespacedName: client.ObjectKeyFromObject(policies[i]),
			Created:        policies[i].CreationTimestamp.Time,
			Models:         policies[i].spec.Models,
			Incumbent:      incumbents[policies[i].UID],
		}
	}
	result := effective.Merge(own, claimants)
	if len(result.LeftOut) > 0 {
		for i := range policies {
			claimants[i].Running = g.running(&policies[i], incumbents[policies[i].UID])
		}
		result = effective.Merge(own, claimants)
	}
	m := merged{Result: result, policies: policies}
	g.remember(&m)
	return m
}

// remember notes whose each model is, and which models of each policy there was room for.
func (g *gatherer) remember(m *merged) {
	leftOut := map[types.NamespacedName]bool{}
	for i := range m.LeftOut {
		leftOut[m.LeftOut[i].Policy] = true
	}
	admitted := map[types.UID][]v1alpha1.Model{}
	g.memory.owners = make(map[string]types.UID, len(m.Owners))
	for i := range m.policies {
		policy := &m.policies[i]
		key := client.ObjectKeyFromObject(policy)
		admitted[policy.UID] = policy.spec.Models
		if leftOut[key] {
			admitted[policy.UID] = g.memory.admitted[policy.UID]
		}
		for j := range policy.spec.Models {
			if name := policy.spec.Models[j].Name; m.Owners[name] == key {
				g.memory.owners[name] = policy.UID
			}
		}
	}
	g.memory.admitted = admitted
}

// incumbents are, for each model, those with the best claim to it: the one that had it at the last merge or, where
// this process has merged nothing yet, by the policies' status.
func (g *gatherer) incumbents(policies []acceptedPolicy) map[types.UID]sets.Set[string] {
	plane := client.ObjectKeyFromObject(g.plane).String()
	claims := make([]effective.Claims, len(policies))
	for i := range policies {
		claims[i] = effective.ClaimsOf(&policies[i].Status, plane)
		for j := range policies[i].spec.Models {
			if name := policies[i].spec.Models[j].Name; g.memory.owners[name] == policies[i].UID {
				claims[i][name] = effective.HasIt
			}
		}
	}
	incumbents := make(map[types.UID]sets.Set[string], len(policies))
	for i, models := range effective.Incumbents(claims) {
		incumbents[policies[i].UID] = models
	}
	return incumbents
}

// running are the models of the policy that are in effect: those that there was room for at the last merge or, in a
// new process, those that the file in place has.
func (g *gatherer) running(policy *acceptedPolicy, incumbent sets.Set[string]) []v1alpha1.Model {
	if models, ok := g.memory.admitted[policy.UID]; ok {
		return models
	}
	var models []v1alpha1.Model
	for _, model := range g.inPlace() {
		if incumbent.Has(model.Name) {
			models = append(models, model)
		}
	}
	return models
}

// inPlace are the models of the file that was last rolled out completely, by the plane's status.
func (g *gatherer) inPlace() []v1alpha1.Model {
	if g.plane.Status.Stargate == nil {
		return nil
	}
	revision, ok := g.seen.world.Revisions[g.plane.Status.Stargate.Revision]
	if !ok || revision.File == nil {
		return nil
	}
	config, err := render.FromFile(revision.File)
	if err != nil {
		return nil
	}
	return config.Models
}

// tooLarge says that not even what runs fits, so that nothing can be rolled out.
func (m *merged) tooLarge() error {
	if m.Fits() {
		return nil
	}
	return &refusedError{"FileTooLarge", fmt.Errorf(
		"the largest lb-config.json that a rollout would need has %d bytes, and a ConfigMap can hold %d; shorten spec.stargate.requestAlgorithms or take models out of policies; what runs keeps running",
		m.Size, m.Limit)}
}

// carried counts the policies that have a model on the plane.
func (m *merged) carried() int32 {
	owners := sets.New[types.NamespacedName]()
	for _, policy := range m.Owners {
		owners.Insert(policy)
	}
	return int32(owners.Len())
}
