// Package rollout decides what happens next on a plane. Plan is a pure function from what was observed and
// what is wanted to a list of steps, the conditions and the reasons: it holds no client, reads no clock and
// changes nothing.
//
// # Invariants
//
// Under every interleaving of failures, restarts, edits and failovers:
//
//   - I1: no flag is switched on unless there is a gateway, every pod (terminating ones too), template and
//     non-empty ReplicaSet of every gateway has the memory on, and every one of Stargate knows the flag.
//   - I2: no gateway's memory is switched on unless every Stargate pod (terminating ones too), template and
//     non-empty ReplicaSet knows the header.
//   - I3: at most one workload of a plane is rolled by the operator at a time.
//   - I4: no file is given to a template whose Stargate release would refuse it.
//   - I5: a change that failed is not tried again until somebody changes it or asks for a retry.
//   - I6: in a steady state nothing is written.
package rollout
