package routing

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Request is what Stargate reads of a request.
type Request struct {
	// RoutingKey and Model are the routing target. An absent routing key is empty.
	RoutingKey, Model string
	// Method is the algorithm asked for in x-routing-method; empty: none.
	Method string
	// AffinityKey is x-cache-affinity-key; blank counts as absent.
	AffinityKey string
	// InputTokens is x-input-tokens.
	InputTokens uint64
	// Priority of the request, default 0.
	Priority uint32
	// SLO of the request; not positive: none.
	SLO time.Duration
	// LastCluster is x-stargate-last-cluster-id; a blank value or one that is not UTF-8 counts as absent.
	LastCluster string
	// MaxWait is x-max-wait-ms; nil: absent.
	MaxWait *time.Duration
}

// SessionState is what the session-aware mode takes a request for.
type SessionState int

const (
	// SessionNone says that the request is not subject to the mode.
	SessionNone SessionState = iota
	// SessionNew says that the request has no hint, so its session has no cache anywhere.
	SessionNew
	// SessionReturning says that the hint names a candidate.
	SessionReturning
	// SessionStale says that the hint names a cluster that is no candidate.
	SessionStale
)

func (s SessionState) String() string {
	return [...]string{"", "new", "returning", "stale"}[s]
}

// ErrAffinityKeyRequired is the reason why a request without a cache affinity key is refused (400).
var ErrAffinityKeyRequired = errors.New("cache affinity key is required")

const (
	// MaxRoutingWait is the time after its arrival when a request that still waits for a cluster fails.
	MaxRoutingWait = 60 * time.Second
	// RetryPause is the longest time between two decisions of a request that waits.
	RetryPause = 25 * time.Millisecond
)

// Call is one request on its way through a router. It keeps what its retries share: the configuration, the excluded
// clusters and the session state, which the first decision finds. It is not for concurrent use.
type Call struct {
	router     *Router
	target     *target
	config     *Config
	request    Request
	excluded   []string
	started    bool
	classified bool
	session    SessionState
}

// NewCall takes a request in. It fails when Stargate would refuse the request whatever the clusters' state:
// ErrMethodNotSelectable, ErrAffinityKeyRequired.
func (r *Router) NewCall(request Request) (Call, error) {
	if strings.TrimSpace(request.AffinityKey) == "" {
		request.AffinityKey = ""
	}
	request.LastCluster = strings.TrimSpace(request.LastCluster)
	if !utf8.ValidString(request.LastCluster) {
		request.LastCluster = ""
	}
	config, err := r.table.resolve(request.Model, request.Method)
	if err != nil {
		return Call{}, err
	}
	if config.RequireAffinityKey && request.AffinityKey == "" {
		return Call{}, fmt.Errorf("request for model %q: %w by its configuration; send x-cache-affinity-key", request.Model, ErrAffinityKeyRequired)
	}
	return Call{
		router:  r,
		target:  r.target(config, request.RoutingKey, request.Model),
		config:  config,
		request: request,
	}, nil
}

// Config is the configuration that the call resolved to.
func (c *Call) Config() Config { return *c.config }

// Exclude leaves a cluster out of all further decisions, as Stargate does after an attempt on it failed.
func (c *Call) Exclude(clusterID string) {
	if !slices.Contains(c.excluded, clusterID) {
		c.excluded = append(c.excluded, clusterID)
	}
}

// Session is what the call was taken for at its first decision.
func (c *Call) Session() SessionState { return c.session }

// classify settles the session state at the first decision; later ones keep it.
func (c *Call) classify(s *Snapshot) {
	if c.classified {
		return
	}
	c.classified = true
	switch {
	case !c.config.sessionAware() || c.request.AffinityKey == "":
	case c.request.LastCluster == "":
		c.session = SessionNew
	case s.Index(c.request.LastCluster) < 0:
		c.session = SessionStale
	default:
		c.session = SessionReturning
	}
}

// Action says what becomes of a call after a decision.
type Action int

const (
	// Send the request to the selected cluster.
	Send Action = iota
	// Retry the decision after Step.After.
	Retry
	// Fail the request; Step.Err says why.
	Fail
)

// The reasons for which Next fails a request.
var (
	// ErrOverloaded: the admission limit max_input_work_seconds is exceeded (503, newer builds 529).
	ErrOverloaded = errors.New("the pool's input work exceeds the admission limit")
	// ErrUnavailable: no cluster can take the request and waiting promises nothing.
	ErrUnavailable = errors.New("no cluster can take the request")
	// ErrWaitedTooLong: the routing wait reached its limit.
	ErrWaitedTooLong = errors.New("the routing wait has reached its limit")
)

// Step is a decision and what the proxy makes of it.
type Step struct {
	Decision
	Action Action
	// After is the time until the next decision of a Retry.
	After time.Duration
	// Err of a Fail: ErrOverloaded, ErrUnavailable or ErrWaitedTooLong.
	Err error
}

// Next decides, elapsed after the request's arrival, and applies what the proxy does around the decision: the
// admission limit once, before the first decision; a retry at least every RetryPause; and the end of the wait at
// MaxRoutingWait or at the request's MaxWait, if that is shorter. With a MaxWait also an unavailable request waits, while any
// candidate is left that was not excluded.
func (c *Call) Next(s *Snapshot, elapsed time.Duration, rng *rand.Rand) Step {
	if !c.started {
		c.started = true
		if !c.admits(s) {
			return Step{Decision: Decision{Outcome: Unavailable}, Action: Fail, Err: ErrOverloaded}
		}
	}
	d := c.Decide(s, elapsed, rng)
	limit, pause := MaxRoutingWait, d.Wait
	if c.request.MaxWait != nil {
		limit = min(limit, *c.request.MaxWait)
	}
	switch d.Outcome {
	case Selected:
		return Step{Decision: d}
	case Unavailable:
		if c.request.MaxWait == nil || !c.candidateLeft(s) {
			return Step{Decision: d, Action: Fail, Err: ErrUnavailable}
		}
		pause = RetryPause
	}
	if elapsed >= limit {
		return Step{Decision: d, Action: Fail, Err: ErrWaitedTooLong}
	}
	return Step{Decision: d, Action: Retry, After: min(pause, RetryPause, limit-elapsed)}
}

// admits applies the admission limit: the seconds that the pool needs for the tokens queued and the request's own.
func (c *Call) admits(s *Snapshot) bool {
	if math.IsInf(c.config.MaxInputWork, 1) {
		return true
	}
	tokens, tps := float64(c.request.InputTokens), 0.0
	for i := range s.candidates {
		tokens += float64(s.candidates[i].QueuedInputTokens)
		if validTPS(s.candidates[i].LastMeanInputTPS) {
			tps += s.candidates[i].LastMeanInputTPS
		}
	}
	return validTPS(tps) && tokens/tps <= c.config.MaxInputWork
}

func (c *Call) candidateLeft(s *Snapshot) bool {
	return slices.ContainsFunc(s.candidates, func(candidate Candidate) bool {
		return !slices.Contains(c.excluded, candidate.ID)
	})
}
