package routing

import (
	"math"
	"math/rand/v2"
	"time"

	"pgregory.net/rapid"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

var (
	inf = math.Inf(1)
	nan = math.NaN()
)

const (
	ms    = time.Millisecond
	model = "model-a"
)

// seeded1 is a source of randomness that is the same every time.
func seeded1() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// routerOf is a router whose model has the configuration.
func routerOf(t rapid.TB, config Config) *Router {
	t.Helper()
	r, err := NewRouter(Plane{Models: map[string]ModelConfig{model: {Config: config}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func callOf(t rapid.TB, r *Router, request Request) *Call {
	t.Helper()
	call, err := r.NewCall(request)
	if err != nil {
		t.Fatal(err)
	}
	return &call
}

// decide is the first decision of a request, with fresh randomness.
func decide(t rapid.TB, r *Router, request Request, s *Snapshot, elapsed time.Duration) Decision {
	t.Helper()
	return callOf(t, r, request).Decide(s, elapsed, seeded1())
}

// edited is a default configuration with changes.
func edited(algorithm v1alpha1.Algorithm, edit func(*Config)) Config {
	c := DefaultConfig(algorithm)
	edit(&c)
	return c
}
