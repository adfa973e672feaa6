package review

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/effective"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/manifests"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/tenancy"
)

// together finds what the objects mean to each other.
func together(result *Result, documents []*manifests.Document) []Problem {
	problems := repeated(documents)
	problems = append(problems, sharedWorkloads(result.Planes)...)
	problems = append(problems, unknownPlanes(result)...)
	for _, site := range result.Sites {
		problems = append(problems, site.conflicts()...)
		problems = append(problems, site.room()...)
	}
	return problems
}

// repeated finds objects that stand in the files twice: whoever applies them gets the last one.
func repeated(documents []*manifests.Document) (problems []Problem) {
	first := map[string]*manifests.Document{}
	for _, document := range documents {
		name := nameOf(document.Object)
		if !strings.Contains(name, " ") || strings.HasSuffix(name, "/") {
			continue // a generated name, or no kind
		}
		earlier, ok := first[name]
		if !ok {
			first[name] = document
			continue
		}
		problems = append(problems, problem(document, Warning, "metadata.name", fmt.Sprintf(
			"the same object stands at %s:%d too; whichever is applied last counts, remove one", earlier.File, earlier.Position("metadata.name").Line)))
	}
	return problems
}

// sharedWorkloads finds workloads that two planes name.
func sharedWorkloads(planes []Plane) (problems []Problem) {
	type key struct {
		namespace string
		workload  v1alpha1.WorkloadReference
	}
	first := map[key]*Plane{}
	for i := range planes {
		plane := &planes[i]
		refs := []v1alpha1.WorkloadReference{plane.Spec.Stargate.WorkloadRef}
		paths := []*field.Path{field.NewPath("spec", "stargate", "workloadRef")}
		for j := range plane.Spec.Gateways {
			refs = append(refs, plane.Spec.Gateways[j].WorkloadRef)
			paths = append(paths, field.NewPath("spec", "gateways").Index(j).Child("workloadRef"))
		}
		for j, ref := range refs {
			k := key{plane.Namespace, ref}
			if other, ok := first[k]; !ok {
				first[k] = plane
			} else if other.Name != plane.Name {
				problems = append(problems, problem(plane.Document, Warning, paths[j].String(), fmt.Sprintf(
					"RoutingPlane %s names %s %s too; the one that manages it keeps it and the other waits: take the workload out of one of them", other.Name, ref.Kind, ref.Name)))
			}
		}
	}
	return problems
}

// unknownPlanes finds policies for planes that are not there or do not take them. Where no plane is among the files at
// all, they are somebody else's, and nothing can be said.
func unknownPlanes(result *Result) (problems []Problem) {
	if len(result.Planes) == 0 {
		return nil
	}
	for i := range result.Policies {
		policy := &result.Policies[i]
		key := history.PlaneOf(policy.Namespace, &policy.Spec)
		at := slices.IndexFunc(result.Planes, func(p Plane) bool { return p.Namespace == key.Namespace && p.Name == key.Name })
		if at < 0 {
			severity := Warning
			if key.Namespace != "" && !slices.ContainsFunc(result.Planes, func(p Plane) bool { return p.Namespace == key.Namespace }) {
				severity = Note // the files have nothing of that namespace, so the plane may well be in others
			}
			problems = append(problems, problem(policy.Document, severity, "spec.planeRef", fmt.Sprintf(
				"there is no RoutingPlane %s in these files; the policy waits until there is one, correct the reference if it is misspelt", strings.TrimPrefix(key.String(), "/"))))
			continue
		}
		if plane := &result.Planes[at]; !allows(plane.RoutingPlane, policy.Namespace) {
			problems = append(problems, problem(policy.Document, Warning, "spec.planeRef", fmt.Sprintf(
				"RoutingPlane %s takes no policies from namespace %s (its spec.allowedPolicies.namespaces.from is %s); have its owner allow the namespace, or move the policy",
				key, policy.Namespace, plane.Spec.AllowedPolicies.Namespaces.From)))
		}
	}
	return problems
}

// allows tells whether the plane takes policies from the namespace. Where that depends on the namespace's labels, it is
// taken to: they are not in the files.
func allows(plane *v1alpha1.RoutingPlane, namespace string) bool {
	if plane.Spec.AllowedPolicies.Namespaces.From == v1alpha1.NamespacesFromSelector {
		return true
	}
	allowed, err := tenancy.Allows(plane, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	return allowed && err == nil
}

// Site is what the files have of one plane.
type Site struct {
	// Key of the plane; its namespace is empty where the files leave that to whoever applies them.
	Key types.NamespacedName
	// Plane is nil where it is not in the files.
	Plane *Plane
	// Policies on the plane that it takes and that would not be refused, sorted by namespace and name.
	Policies []*Policy
	// Merged is their effective configuration.
	Merged effective.Result
}

func sites(r *Result) []*Site {
	sites := map[types.NamespacedName]*Site{}
	site := func(key types.NamespacedName) *Site {
		if sites[key] == nil {
			sites[key] = &Site{Key: key}
		}
		return sites[key]
	}
	for i := range r.Planes {
		plane := &r.Planes[i]
		site(types.NamespacedName{Namespace: plane.Namespace, Name: plane.Name}).Plane = plane
	}
	last := map[types.NamespacedName]*Policy{}
	for i := range r.Policies {
		last[types.NamespacedName{Namespace: r.Policies[i].Namespace, Name: r.Policies[i].Name}] = &r.Policies[i]
	}
	for _, name := range sortedNames(last) {
		policy := last[name]
		s := site(history.PlaneOf(policy.Namespace, &policy.Spec))
		if policy.Valid && (s.Plane == nil || allows(s.Plane.RoutingPlane, policy.Namespace)) {
			s.Policies = append(s.Policies, policy)
		}
	}
	var all []*Site
	for _, key := range sortedNames(sites) {
		s := sites[key]
		s.merge()
		all = append(all, s)
	}
	return all
}

// merge does what the operator does with policies that are all as old.
func (s *Site) merge() {
	var own render.Config
	if s.Plane != nil {
		own.DefaultAlgorithm = s.Plane.Spec.Stargate.DefaultAlgorithm
		own.RequestAlgorithms = s.Plane.Spec.Stargate.RequestAlgorithms
	}
	policies := make([]effective.Policy, len(s.Policies))
	for i, policy := range s.Policies {
		policies[i] = effective.Policy{
			NamespacedName: types.NamespacedName{Namespace: policy.Namespace, Name: policy.Name},
			Created:        policy.CreationTimestamp.Time,
			Models:         policy.Spec.Models,
		}
	}
	s.Merged = effective.Merge(own, policies)
}

// conflicts finds models that more than one policy lists.
func (s *Site) conflicts() (problems []Problem) {
	type claim struct {
		policy *Policy
		path   string
	}
	first := map[string]claim{}
	for _, policy := range s.Policies {
		for i := range policy.Spec.Models {
			name := policy.Spec.Models[i].Name
			path := fmt.Sprintf("spec.models[%d]", i)
			earlier, ok := first[name]
			if !ok {
				first[name] = claim{policy, path}
				continue
			}
			problems = append(problems, problem(policy.Document, Warning, path, fmt.Sprintf(
				"policy %s lists model %q too (%s:%d); the plane takes it from the policy that has it already, else from the older one: take it out of one of them",
				earlier.policy.Name, name, earlier.policy.Document.File, earlier.policy.Document.Position(earlier.path).Line)))
		}
	}
	return problems
}

// room finds policies that a ConfigMap does not hold beside the others.
func (s *Site) room() (problems []Problem) {
	for _, leftOut := range s.Merged.LeftOut {
		i := slices.IndexFunc(s.Policies, func(p *Policy) bool { return p.Namespace == leftOut.Policy.Namespace && p.Name == leftOut.Policy.Name })
		problems = append(problems, problem(s.Policies[i].Document, Warning, "spec.models", leftOut.Message()))
	}
	return problems
}

func sortedNames[T any](m map[types.NamespacedName]T) []types.NamespacedName {
	names := make([]types.NamespacedName, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return names
}
