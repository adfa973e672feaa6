// Package effective merges the policies of a plane into one configuration: which policy has which model, and
// which policies there is room for. It is pure and deterministic.
package effective

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// MaxFileSize is the largest lb-config.json in bytes that a plane may need at any stage: the 1 MiB that a
// ConfigMap holds, less 16 KiB for what the operator keeps beside the file (name, labels, verdicts, managed fields).
const MaxFileSize = 1<<20 - 16<<10

// Policy is what the merge needs to know of a RoutingPolicy on the plane. Its specs have passed validation.
type Policy struct {
	types.NamespacedName
	// Created is the policy's creation time; the older policy wins a model that neither is the incumbent of.
	Created time.Time
	// Models of the spec that is to take effect.
	Models []v1alpha1.Model
	// Running are the models of the spec that is in effect, if any: they stay where there is no room for Models.
	Running []v1alpha1.Model
	// Incumbent are the models whose entry was last rolled out from this policy.
	Incumbent sets.Set[string]
}

// Result is a plane's effective configuration.
type Result struct {
	// Config is the plane's own part with the models of all policies, sorted by name.
	Config render.Config
	// Owners says from which policy each model's entry is.
	Owners map[string]types.NamespacedName
	// Conflicts are the models that a policy lists and another one has, by the losing policy and sorted by model.
	Conflicts map[types.NamespacedName][]Conflict
	// LeftOut are the policies that there is no room for, sorted by namespace and name.
	LeftOut []LeftOut
	// Size bounds what render.LargestSize says of Config, in bytes. It is above Limit only where the plane's own
	// part, or what is running already, does not fit: then nothing may be rolled out.
	Size int
	// Limit in bytes.
	Limit int
}

// Fits says whether a ConfigMap holds every file that a rollout of the configuration would render.
func (r Result) Fits() bool { return r.Size <= r.Limit }

// Conflict is a model that another policy has.
type Conflict struct {
	Model  string
	Winner types.NamespacedName
	// Because says why the winner has it.
	Because string
}

// Message for the status of the losing policy and for its author.
func (c Conflict) Message() string {
	return fmt.Sprintf("model %q stays with policy %s, %s; remove the model from one of the two policies", c.Model, c.Winner, c.Because)
}

// LeftOut is a policy that there is no room for in the plane's file.
type LeftOut struct {
	Policy types.NamespacedName
	// Models is the number of models of the policy, and Share what they take in the largest file, in bytes.
	Models, Share int
	// Total is the size in bytes that the largest file would have with the policy, and Limit what it may have.
	Total, Limit int
	// KeepsRunning says that the models of the spec that is in effect stay.
	KeepsRunning bool
}

// Message for the status of the policy and for its author.
func (l LeftOut) Message() string {
	stays := "none of them is rolled out"
	if l.KeepsRunning {
		stays = "its spec from before the change stays in effect"
	}
	return fmt.Sprintf("no room for the policy's %d models: they take %d bytes, with which the largest lb-config.json of the plane would have "+
		"%d bytes, and a ConfigMap can hold %d; %s; remove models, shorten seeds and request algorithms, or move models to another plane",
		l.Models, l.Share, l.Total, l.Limit, stays)
}

// Merge merges policies, in any order, onto a plane of which config has all but the models.
//
// A model that several policies list belongs to the incumbent, else to the older policy, else to the first by
// namespace and name. Where the whole does not fit the size of a ConfigMap, what is running stays, and there is
// room first for changes of running policies, then for new ones, the older first; a change that makes the
// file no larger always has room. So it is the newest that is left out, unless only an older one is too large.
func Merge(config render.Config, policies []Policy) Result {
	return merge(config, policies, MaxFileSize)
}

func merge(config render.Config, policies []Policy, limit int) Result {
	byAge := slices.SortedFunc(slices.Values(policies), func(a, b Policy) int {
		return cmp.Or(a.Created.Compare(b.Created), compareNames(a.NamespacedName, b.NamespacedName))
	})
	m := newMerger(config)
	for rank := range byAge {
		m.claim(&byAge[rank], rank, byAge[rank].Models)
	}
	var leftOut []LeftOut
	if m.size > limit {
		m = newMerger(config)
		leftOut = m.admit(byAge, limit)
	}
	result := m.result(config)
	result.LeftOut, result.Limit = leftOut, limit
	return result
}

// merger knows for every model who claims it, and the size of the largest file that the winners make.
type merger struct {
	claims map[string][]claim
	size   int
}

type claim struct {
	policy *Policy
	rank   int // by age
	model  *v1alpha1.Model
	size   int
}

func newMerger(config render.Config) *merger {
	config.Models = nil
	return &merger{claims: map[string][]claim{}, size: render.LargestSize(config) + render.ModelsObjectSize}
}

// admit claims what is running, and then what there is room for.
func (m *merger) admit(byAge []Policy, limit int) []LeftOut {
	var running, added []int
	for rank := range byAge {
		policy := &byAge[rank]
		m.claim(policy, rank, policy.Running)
		if len(policy.Running) > 0 || policy.Incumbent.Len() > 0 {
			running = append(running, rank)
		} else {
			added = append(added, rank)
		}
	}
	var leftOut []LeftOut
	for _, rank := range slices.Concat(running, added) {
		policy, before := &byAge[rank], m.size
		m.withdraw(policy, policy.Running)
		m.claim(policy, rank, policy.Models)
		if m.size <= max(limit, before) {
			continue
		}
		leftOut = append(leftOut, LeftOut{
			Policy: policy.NamespacedName,
			Models: len(policy.Models), Share: share(policy.Models),
			Total: m.size, Limit: limit,
			KeepsRunning: len(policy.Running) > 0,
		})
		m.withdraw(policy, policy.Models)
		m.claim(policy, rank, policy.Running)
	}
	slices.SortFunc(leftOut, func(a, b LeftOut) int { return compareNames(a.Policy, b.Policy) })
	return leftOut
}

func (m *merger) claim(policy *Policy, rank int, models []v1alpha1.Model) {
	for i := range models {
		model := &models[i]
		m.change(model.Name, func(claims []claim) []claim {
			return append(claims, claim{policy: policy, rank: rank, model: model, size: render.ModelSize(model)})
		})
	}
}

func (m *merger) withdraw(policy *Policy, models []v1alpha1.Model) {
	for i := range models {
		m.change(models[i].Name, func(claims []claim) []claim {
			return slices.DeleteFunc(claims, func(c claim) bool { return c.policy == policy })
		})
	}
}

// change changes the claims to a model and keeps account of the size.
func (m *merger) change(model string, change func([]claim) []claim) {
	claims := m.claims[model]
	m.size -= sizeOfWinner(claims)
	claims = change(claims)
	m.size += sizeOfWinner(claims)
	m.claims[model] = claims
}

func sizeOfWinner(claims []claim) int {
	if len(claims) == 0 {
		return 0
	}
	return slices.MinFunc(claims, compareClaims).size
}

func compareClaims(a, b claim) int {
	if a.incumbent() != b.incumbent() {
		if a.incumbent() {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.rank, b.rank)
}

func (c claim) incumbent() bool { return c.policy.Incumbent.Has(c.model.Name) }

func (m *merger) result(config render.Config) Result {
	result := Result{
		Config:    config,
		Owners:    make(map[string]types.NamespacedName, len(m.claims)),
		Conflicts: map[types.NamespacedName][]Conflict{},
		Size:      m.size,
	}
	result.Config.Models = make([]v1alpha1.Model, 0, len(m.claims))
	for _, name := range slices.Sorted(maps.Keys(m.claims)) {
		claims := m.claims[name]
		if len(claims) == 0 {
			continue
		}
		slices.SortFunc(claims, compareClaims)
		winner := claims[0]
		result.Config.Models = append(result.Config.Models, *winner.model)
		result.Owners[name] = winner.policy.NamespacedName
		for _, loser := range claims[1:] {
			key := loser.policy.NamespacedName
			result.Conflicts[key] = append(result.Conflicts[key], Conflict{Model: name, Winner: winner.policy.NamespacedName, Because: because(winner, loser)})
		}
	}
	return result
}

func because(winner, loser claim) string {
	switch {
	case winner.incumbent() && !loser.incumbent():
		return "which has it already"
	case winner.policy.Created.Before(loser.policy.Created):
		return "which is older"
	default:
		return "which is as old and comes first by namespace and name"
	}
}

func share(models []v1alpha1.Model) int {
	total := 0
	for i := range models {
		total += render.ModelSize(&models[i])
	}
	return total
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
