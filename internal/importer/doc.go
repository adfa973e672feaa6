// Package importer turns what a running site routes by, an lb-config.json or the Helm values that hold it, into a
// RoutingPlane and RoutingPolicies that mean the same. It is pure.
package importer
