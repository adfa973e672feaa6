// Package history keeps the specs of a policy that were accepted, each as an apps/v1 ControllerRevision: the one
// with the highest revision is the last accepted, and runs also while a later spec is not valid. It is pure.
package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Kind of the owner of a policy's revisions.
const Kind = "RoutingPolicy"

// Limit of the revisions that are kept of one policy.
const Limit = 5

// hashLength in characters of five bits.
const hashLength = 16

// Change is what to write so that the policy's present spec is its last accepted one. All fields are empty where
// nothing is to be done.
type Change struct {
	// Create a revision.
	Create *appsv1.ControllerRevision
	// Renumber an existing revision, whose content was accepted before, to Number.
	Renumber *appsv1.ControllerRevision
	Number   int64
	// Delete revisions past the limit, the oldest first.
	Delete []*appsv1.ControllerRevision
}

// IsEmpty tells whether there is nothing to write.
func (c *Change) IsEmpty() bool { return c.Create == nil && c.Renumber == nil && len(c.Delete) == 0 }

// Accept plans the change that records the policy's present spec as accepted, given its revisions. Name is the
// name of the revision that is the last accepted one afterwards.
func Accept(policy *v1alpha1.RoutingPolicy, revisions []*appsv1.ControllerRevision) (change Change, name string, err error) {
	data, err := json.Marshal(struct {
		Spec *v1alpha1.RoutingPolicySpec `json:"spec"`
	}{&policy.Spec})
	if err != nil {
		return Change{}, "", fmt.Errorf("encoding the spec of policy %s/%s: %w", policy.Namespace, policy.Name, err)
	}
	name = nameOf(policy, data)
	sorted := Sorted(revisions)
	last := int64(0)
	if len(sorted) > 0 {
		last = sorted[0].Revision
	}
	known := slices.IndexFunc(sorted, func(r *appsv1.ControllerRevision) bool { return r.Name == name })
	switch {
	case known < 0:
		change.Create = newRevision(policy, name, data, last+1)
	case known > 0:
		change.Renumber, change.Number = sorted[known], last+1
	}
	kept := 0
	if change.Create != nil {
		kept = 1
	}
	for _, r := range sorted {
		if kept++; kept > Limit && r.Name != name {
			change.Delete = append(change.Delete, r)
		}
	}
	slices.Reverse(change.Delete)
	return change, name, nil
}

// Sorted lists revisions with the last accepted first.
func Sorted(revisions []*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	sorted := slices.Clone(revisions)
	slices.SortFunc(sorted, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(b.Revision, a.Revision), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// Spec that the revision holds.
func Spec(r *appsv1.ControllerRevision) (*v1alpha1.RoutingPolicySpec, error) {
	if policy, ok := r.Data.Object.(*v1alpha1.RoutingPolicy); ok {
		return &policy.Spec, nil
	}
	var policy v1alpha1.RoutingPolicy
	if err := json.Unmarshal(r.Data.Raw, &policy); err != nil {
		return nil, fmt.Errorf("reading the policy spec in ControllerRevision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return &policy.Spec, nil
}

// Decode is a transform for caches: it reads the spec of a policy's revision once, so that Spec need not at every
// reconcile. A revision that cannot be read stays as it is.
func Decode(object any) (any, error) {
	r, ok := object.(*appsv1.ControllerRevision)
	if !ok || r.Data.Object != nil {
		return object, nil
	}
	if owner := metav1.GetControllerOfNoCopy(r); owner == nil || owner.Kind != Kind {
		return object, nil
	}
	if spec, err := Spec(r); err == nil {
		r.Data = runtime.RawExtension{Object: &v1alpha1.RoutingPolicy{Spec: *spec}}
	}
	return r, nil
}

// PlaneOf is the plane that a policy in the namespace is for.
func PlaneOf(namespace string, spec *v1alpha1.RoutingPolicySpec) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(spec.PlaneRef.Namespace, namespace), Name: spec.PlaneRef.Name}
}

func newRevision(policy *v1alpha1.RoutingPolicy, name string, data []byte, number int64) *appsv1.ControllerRevision {
	isController := true
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: policy.Namespace,
			Name:      name,
			Labels:    map[string]string{"app.kubernetes.io/managed-by": "routing-operator"},
			// It does not block the policy's deletion: that would take a permission on the policies' finalizers.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind, Name: policy.Name, UID: policy.UID, Controller: &isController,
			}},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}
}

// nameOf a revision: the policy's name, cut where need be, and a hash. The hash covers the owner, so that neither
// a cut name nor a policy that was deleted and made again meets somebody else's revision.
func nameOf(policy *v1alpha1.RoutingPolicy, data []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", policy.UID)
	h.Write(data)
	hash := strings.ToLower(base32.HexEncoding.EncodeToString(h.Sum(nil))[:hashLength])
	prefix := policy.Name
	if longest := validation.DNS1123SubdomainMaxLength - hashLength - 1; len(prefix) > longest {
		prefix = strings.TrimRight(prefix[:longest], "-.")
	}
	return prefix + "-" + hash
}
