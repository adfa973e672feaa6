package simulate

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Workload is the traffic that comes to a site. In a file every field may be left out; ReadWorkload fills in the
// defaults.
type Workload struct {
	// Duration is the time in which requests arrive. Those that are on their way at its end run to theirs. Default 10m;
	// with a trace: to the end of its last second.
	Duration *Duration `json:"duration,omitempty"`
	// Warmup is a time at the beginning whose requests are simulated and left out of the figures. Default 0s.
	Warmup *Duration `json:"warmup,omitempty"`
	// GoodputTTFT is the time to first token within which a request counts for the goodput. Default 2s.
	GoodputTTFT *Duration `json:"goodputTTFT,omitempty"`
	// Traffic by model. Default: one entry without a model.
	Traffic []Traffic `json:"traffic,omitempty"`
}

// Traffic is the sessions and requests for a model. Beside a trace, which brings its own sessions, only its routingKey,
// routingMethod, priority, requestSLO and maxWait count.
type Traffic struct {
	// Model that the requests are for. Left out: one such traffic for each model of the policies that has no entry.
	Model string `json:"model,omitempty"`
	// RoutingKey of the requests. Default none.
	RoutingKey string `json:"routingKey,omitempty"`
	// RoutingMethod is the algorithm that the requests ask for in x-routing-method. Default none.
	RoutingMethod string `json:"routingMethod,omitempty"`
	// Priority of the requests. Default 0.
	Priority uint32 `json:"priority,omitempty"`
	// RequestSLO is the SLO that the requests carry, for policies with a queue SLO. Default none.
	RequestSLO *Duration `json:"requestSLO,omitempty"`
	// MaxWait is x-max-wait-ms of the requests. Default none.
	MaxWait *Duration `json:"maxWait,omitempty"`

	// SessionsPerSecond that begin. Default 1.
	SessionsPerSecond *float64 `json:"sessionsPerSecond,omitempty"`
	// Arrivals of sessions: poisson (independent of each other) or even (at equal distances). Default poisson.
	Arrivals Arrivals `json:"arrivals,omitempty"`
	// Rate changes SessionsPerSecond over time, in order of time.
	Rate []RateChange `json:"rate,omitempty"`

	// Turns of a session, which is the number of its requests, at least 1. Default mean 8, cv 0.7.
	Turns Amount `json:"turns,omitzero"`
	// ThinkTime between the end of an answer and the session's next request. Default mean 15s, cv 1.
	ThinkTime Span `json:"thinkTime,omitzero"`
	// FirstInputTokens of a session's first request. Default mean 2000, cv 1.
	FirstInputTokens Amount `json:"firstInputTokens,omitzero"`
	// InputTokens that each further request adds to the context. Default mean 400, cv 1.
	InputTokens Amount `json:"inputTokens,omitzero"`
	// OutputTokens of an answer. Default mean 250, cv 0.8.
	OutputTokens Amount `json:"outputTokens,omitzero"`
	// MaxContextTokens ends a session whose next request would be longer. Default 128000.
	MaxContextTokens *int64 `json:"maxContextTokens,omitempty"`
	// PrefixReuse is the share of the context so far, from its beginning, that the next request repeats unchanged, so that a KV
	// cache can serve it. Default 1.
	PrefixReuse *float64 `json:"prefixReuse,omitempty"`
	// KeylessShare is the share of sessions without a cache affinity key. Default 0.
	KeylessShare *float64 `json:"keylessShare,omitempty"`
	// HotSet is the cache affinity keys that many sessions share.
	HotSet HotSet `json:"hotSet,omitzero"`
}

// Arrivals is a kind of arrival process.
type Arrivals string

// The arrival processes.
const (
	Poisson Arrivals = "poisson"
	Even    Arrivals = "even"
)

// RateChange is a change of the rate of sessions.
type RateChange struct {
	// At is the time of the change.
	At Duration `json:"at"`
	// Factor by which sessionsPerSecond is multiplied from then on. Required.
	Factor *float64 `json:"factor"`
}

// Amount is a random number, distributed log-normally.
type Amount struct {
	Mean *float64 `json:"mean,omitempty"`
	// CV is the coefficient of variation, the standard deviation over the mean. 0: always the mean.
	CV *float64 `json:"cv,omitempty"`
}

// Span is a random time, distributed log-normally.
type Span struct {
	Mean *Duration `json:"mean,omitempty"`
	// CV is the coefficient of variation, the standard deviation over the mean. 0: always the mean.
	CV *float64 `json:"cv,omitempty"`
}

// HotSet is cache affinity keys that many sessions share, such as those of one application with a long instruction. How
// often a key is used follows Zipf's law.
type HotSet struct {
	// Share of the sessions that use one of the keys. Default 0.
	Share *float64 `json:"share,omitempty"`
	// Keys in the set. Default 100.
	Keys *int `json:"keys,omitempty"`
	// Exponent of Zipf's law: the i-th key is used in proportion to i to the power of -Exponent. 0: all alike. Default 1.
	Exponent *float64 `json:"exponent,omitempty"`
	// PrefixTokens that all requests with one key begin with; they come on top of the other tokens. Default 2000.
	PrefixTokens *int64 `json:"prefixTokens,omitempty"`
}

// DefaultWorkload is the workload of an empty file.
func DefaultWorkload() Workload {
	w := Workload{}
	w.setDefaults()
	return w
}

// ReadWorkload reads a workload from YAML, strictly, and fills in the defaults. Source names the file in errors.
func ReadWorkload(data []byte, source string) (Workload, error) {
	w := Workload{}
	if err := decode(data, source, &w); err != nil {
		return Workload{}, fmt.Errorf("reading the workload: %w", err)
	}
	if err := inFile(source, w.validate()); err != nil {
		return Workload{}, fmt.Errorf("reading the workload: %w", err)
	}
	w.setDefaults()
	return w, nil
}

func (w *Workload) setDefaults() {
	// Without a duration a trace runs to its end, so it is set when the arrivals are known.
	byDefault(&w.Warmup, Duration{})
	byDefault(&w.GoodputTTFT, Duration{Duration: 2 * time.Second})
	if len(w.Traffic) == 0 {
		w.Traffic = []Traffic{{}}
	}
	for i := range w.Traffic {
		t := &w.Traffic[i]
		byDefault(&t.RequestSLO, Duration{})
		byDefault(&t.SessionsPerSecond, 1)
		if t.Arrivals == "" {
			t.Arrivals = Poisson
		}
		t.Turns.setDefaults(8, 0.7)
		byDefault(&t.ThinkTime.Mean, Duration{Duration: 15 * time.Second})
		byDefault(&t.ThinkTime.CV, 1)
		t.FirstInputTokens.setDefaults(2000, 1)
		t.InputTokens.setDefaults(400, 1)
		t.OutputTokens.setDefaults(250, 0.8)
		byDefault(&t.MaxContextTokens, 128_000)
		byDefault(&t.PrefixReuse, 1)
		byDefault(&t.KeylessShare, 0)
		byDefault(&t.HotSet.Share, 0)
		byDefault(&t.HotSet.Keys, 100)
		byDefault(&t.HotSet.Exponent, 1)
		byDefault(&t.HotSet.PrefixTokens, 2000)
	}
}

func (a *Amount) setDefaults(mean, cv float64) {
	byDefault(&a.Mean, mean)
	byDefault(&a.CV, cv)
}

func (w *Workload) validate() field.ErrorList {
	c := &checker{}
	c.time(field.NewPath("duration"), w.Duration, time.Second)
	c.time(field.NewPath("warmup"), w.Warmup, 0)
	c.time(field.NewPath("goodputTTFT"), w.GoodputTTFT, time.Millisecond)
	models := map[string]bool{}
	for i := range w.Traffic {
		path := field.NewPath("traffic").Index(i)
		w.Traffic[i].validate(c, path)
		if models[w.Traffic[i].Model] {
			c.errors = append(c.errors, field.Duplicate(path.Child("model"), w.Traffic[i].Model))
		}
		models[w.Traffic[i].Model] = true
	}
	return c.errors
}

// maxSessionRate bounds the sessions per second.
const maxSessionRate = 1e6

// defaultDuration of a workload without a trace.
const defaultDuration = 10 * time.Minute

func (t *Traffic) validate(c *checker, path *field.Path) {
	c.time(path.Child("requestSLO"), t.RequestSLO, 0)
	c.time(path.Child("maxWait"), t.MaxWait, 0)
	number(c, path.Child("sessionsPerSecond"), t.SessionsPerSecond, 0, maxSessionRate)
	if t.Arrivals != "" {
		oneOf(c, path.Child("arrivals"), t.Arrivals, Poisson, Even)
	}
	var last time.Duration
	for i, change := range t.Rate {
		at := path.Child("rate").Index(i)
		c.time(at.Child("at"), &change.At, last)
		last = max(last, change.At.Duration)
		if change.Factor == nil {
			c.errors = append(c.errors, field.Required(at.Child("factor"), "the number that sessionsPerSecond is multiplied with"))
		}
		number(c, at.Child("factor"), change.Factor, 0, 1e6)
		if rate := ptr.Deref(t.SessionsPerSecond, 1) * ptr.Deref(change.Factor, 1); rate > maxSessionRate {
			c.invalid(at.Child("factor"), *change.Factor, fmt.Sprintf("makes %v sessions per second; must not make more than %v", rate, maxSessionRate))
		}
	}
	t.Turns.validate(c, path.Child("turns"), 1, 1e6)
	c.time(path.Child("thinkTime", "mean"), t.ThinkTime.Mean, 0)
	number(c, path.Child("thinkTime", "cv"), t.ThinkTime.CV, 0, maxCV)
	t.FirstInputTokens.validate(c, path.Child("firstInputTokens"), 1, 1e9)
	t.InputTokens.validate(c, path.Child("inputTokens"), 0, 1e9)
	t.OutputTokens.validate(c, path.Child("outputTokens"), 1, 1e9)
	number(c, path.Child("maxContextTokens"), t.MaxContextTokens, 1, maxTokens)
	number(c, path.Child("prefixReuse"), t.PrefixReuse, 0, 1)
	number(c, path.Child("keylessShare"), t.KeylessShare, 0, 1)
	number(c, path.Child("hotSet", "share"), t.HotSet.Share, 0, 1)
	number(c, path.Child("hotSet", "keys"), t.HotSet.Keys, 1, 1<<20)
	number(c, path.Child("hotSet", "exponent"), t.HotSet.Exponent, 0, 10)
	number(c, path.Child("hotSet", "prefixTokens"), t.HotSet.PrefixTokens, 0, maxTokens)
}

// maxCV bounds coefficients of variation.
const maxCV = 10

func (a *Amount) validate(c *checker, path *field.Path, least, most float64) {
	number(c, path.Child("mean"), a.Mean, least, most)
	number(c, path.Child("cv"), a.CV, 0, maxCV)
}

// logNormal is a log-normal distribution.
type logNormal struct{ mean, mu, sigma float64 }

func newLogNormal(mean, cv float64) logNormal {
	if mean == 0 || cv == 0 {
		return logNormal{mean: mean}
	}
	variance := math.Log1p(cv * cv)
	return logNormal{mean, math.Log(mean) - variance/2, math.Sqrt(variance)}
}

func (a Amount) distribution() logNormal { return newLogNormal(*a.Mean, *a.CV) }

func (s Span) distribution() logNormal { return newLogNormal(float64(s.Mean.Duration), *s.CV) }

// of is the value that belongs to a value of the standard normal distribution.
func (l logNormal) of(normal float64) float64 {
	if l.sigma == 0 {
		return l.mean
	}
	return math.Exp(l.mu + l.sigma*normal)
}
