// Package simulate tries a routing configuration on a model of a site before it is applied: a discrete-event simulation
// of clusters, sessions, Stargate replicas and the gateway's memory in virtual time.
//
// A Run takes a Site, a Workload or a trace of requests, a Variant of the configuration and a seed, and gives a
// Result. It decides with package routing, one Router for each replica. The same input gives the same Result; what a session
// asks for and when it thinks depends on the seed and the session alone, so that variants see the same sessions.
//
// How the model works, and what it leaves out, is told in docs/simulation.md.
package simulate
