// Package tenancy says from which namespaces a plane takes policies.
package tenancy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Allows tells whether the plane takes policies from the namespace. It fails on a selector that is none.
func Allows(plane *v1alpha1.RoutingPlane, namespace *corev1.Namespace) (bool, error) {
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
