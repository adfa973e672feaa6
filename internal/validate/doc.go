// Package validate holds the rules about the specs of RoutingPolicy and RoutingPlane: what is refused, what is
// accepted with a warning, and which field is for which algorithm, since which generation of Stargate.
//
// A policy is refused exactly when Stargate would refuse the file rendered from it, or when the object
// contradicts itself; everything else that is unwise is a warning. Whatever can be said of one object alone is
// said by the CRDs' CEL rules too, in the same words; the tests compare the two.
package validate
