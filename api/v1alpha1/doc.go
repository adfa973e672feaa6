// Package v1alpha1 holds the kinds of the routing.nvcf.io API: RoutingPolicy and RoutingPlane.
// It holds data only; rules about that data are in the CRDs' CEL rules and in internal/validate.
//
// +kubebuilder:object:generate=true
// +groupName=routing.nvcf.io
package v1alpha1
