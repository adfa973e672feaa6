// Package routing decides as Stargate does which cluster serves a request: its six load-balancing algorithms,
// the session-aware mode included, as a library without clock, network or randomness of its own.
//
// The rules are those of Stargate generation V3. A Router stands for one Stargate replica. It makes a Call per
// request, and a Call decides: the candidates as the replica sees them (a Snapshot), the time since arrival and
// a random source in, a Decision out.
//
//	router, err := routing.NewRouter(plane, routing.Options{})
//	call, err := router.NewCall(request)          // err: Stargate answers 4xx
//	step := call.Next(snapshot, elapsed, rng)     // Send, Retry after step.After, or Fail
//
// Call.Decide is the decision alone; Call.Next adds what Stargate's proxy does around it: the admission limit,
// the end of the routing wait and the pace of retries.
//
// The affinity order of a key depends on nothing but the seed, the routing key, the model, the key and the
// clusters with their weights, so that all replicas agree on it. It is kept in bounded caches that see by the
// snapshot's fingerprints when clusters or weights have changed. A decision on a cached order allocates nothing.
//
// Where Stargate's documentation leaves a choice open, this package has made one:
//
//   - Times are whole nanoseconds; a prefill time is rounded to the nearest.
//   - The gap of a time-to-first-token bucket is measured from the start of the bucket before it.
//   - A cluster whose time to first token is infinite is never selected by bucket, whatever the unlock factor.
//   - The admission limit compares the work of the whole pool: the tokens that are queued on all candidates and
//     those of the request, over the sum of the valid mean throughputs.
//   - Round-robin goes by cluster ID.
package routing
