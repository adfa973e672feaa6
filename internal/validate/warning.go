package validate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
)

// Warning is about something that is accepted and surprises people.
type Warning struct {
	// Path of the field, or of the entry where it is about more than one field.
	Path *field.Path
	// Message says what happens and what to do.
	Message string
	// Note says that the file may be just as it is meant: what the message says depends on the site, or on the release
	// that runs, and no change of the file that means the same answers it. Every other warning can be answered in the
	// file: by a correction, or by writing out a default, which says that it is meant.
	Note bool
}

func (w Warning) String() string { return w.Path.String() + ": " + w.Message }

// WithoutNotes are the warnings that their author has something to do about.
func WithoutNotes(warnings []Warning) []Warning {
	return slices.DeleteFunc(slices.Clone(warnings), func(w Warning) bool { return w.Note })
}

// Lines makes warnings readable: those with the same message become one line that names the first path and
// counts the others, in the order of first appearance. Beyond the limit the last line counts the rest; a limit
// of 0 or less is none.
func Lines(warnings []Warning, limit int) []string {
	others := make(map[string]int, len(warnings))
	var first []Warning
	for _, w := range warnings {
		if _, ok := others[w.Message]; ok {
			others[w.Message]++
			continue
		}
		others[w.Message] = 0
		first = append(first, w)
	}
	lines := make([]string, 0, len(first))
	for i, w := range first {
		if limit > 0 && i == limit-1 && len(first) > limit {
			return append(lines, fmt.Sprintf("and %d more warnings", len(first)-i))
		}
		if n := others[w.Message]; n > 0 {
			lines = append(lines, fmt.Sprintf("%s (and %d more): %s", w.Path, n, w.Message))
			continue
		}
		lines = append(lines, w.String())
	}
	return lines
}

// Generations is the range of Stargate generations that may run a configuration, both inclusive: what is true of
// the whole range is said outright, what is true of a part of it with "from ... on" or "before ...".
type Generations struct {
	Oldest, Newest release.Generation
}

// AnyGeneration is the range where nothing is known of the release.
var AnyGeneration = Generations{release.V0, release.Newest}

// Only is the range of one generation. A generation that is unknown or unsupported may behave like any.
func Only(g release.Generation) Generations {
	if g < release.V0 {
		return AnyGeneration
	}
	return Generations{g, g}
}

// since returns the words that limit a statement to generations from g on, and whether it concerns the range.
func (r Generations) since(g release.Generation) (string, bool) {
	if r.Oldest >= g {
		return "", true
	}
	return fmt.Sprintf("from %s on, ", g), r.Newest >= g
}

// before returns the words that limit a statement to generations before g, and whether it concerns the range.
func (r Generations) before(g release.Generation) (string, bool) {
	if r.Newest < g {
		return "", true
	}
	return fmt.Sprintf("before %s, ", g), r.Oldest < g
}

// PolicyWarnings returns what is worth a second look in the spec of a RoutingPolicy, model by model. It
// assumes a spec that Policy accepts. Root is the path of the spec.
func PolicyWarnings(spec *v1alpha1.RoutingPolicySpec, root *field.Path, generations Generations) []Warning {
	w := warner{generations: generations}
	if len(spec.Models) == 0 {
		w.add(root.Child("models"), "no model is listed, so the policy does nothing; list the models that it configures")
	}
	for i := range spec.Models {
		model, path := &spec.Models[i], root.Child("models").Index(i)
		switch {
		case model.Name == "":
			w.add(path.Child("name"), "an empty name matches only requests with an empty model ID; write the model ID that requests carry")
		case strings.TrimSpace(model.Name) != model.Name:
			w.add(path.Child("name"), "the name has white space at an end, and model IDs are not trimmed: only requests with the same white space match; remove it if they have none")
		}
		w.settings(&model.AlgorithmSettings, path)
		for j := range model.RequestAlgorithms {
			if a := model.RequestAlgorithms[j].Algorithm; a == model.Algorithm {
				w.addf(path.Child("requestAlgorithms").Index(j).Child("algorithm"),
					"an entry for the model's own algorithm %s is never used: the model's configuration answers first; remove it", a)
			}
		}
		w.requestAlgorithms(model.RequestAlgorithms, path.Child("requestAlgorithms"))
	}
	return w.warnings
}

// PlaneWarnings returns what is worth a second look in the spec of a RoutingPlane, in the order of the spec. It
// assumes a spec that Plane accepts. Root is the path of the spec.
func PlaneWarnings(spec *v1alpha1.RoutingPlaneSpec, root *field.Path, generations Generations) []Warning {
	w := warner{generations: generations}
	stargate := root.Child("stargate")
	w.defaultAlgorithm(spec.Stargate.DefaultAlgorithm, stargate.Child("defaultAlgorithm"))
	w.requestAlgorithms(spec.Stargate.RequestAlgorithms, stargate.Child("requestAlgorithms"))
	if len(spec.Gateways) == 0 {
		w.note(root.Child("gateways"), "without a gateway no lastClusterAffinity flag is switched on; list the gateways in front of the router")
	}
	rollout := root.Child("rollout")
	if warmup, ttl := spec.Rollout.GatewayWarmup, spec.LastCluster.TTL; warmup != nil && ttl != nil && warmup.Duration < ttl.Duration {
		w.note(rollout.Child("gatewayWarmup"), fmt.Sprintf(
			"shorter than lastCluster.ttl (%s): sessions whose last request was before the memory came on are taken for new and lose their affinity wait; leave gatewayWarmup out to wait for one ttl", ttl.Duration))
	}
	// A Stargate pod is ready after 60 s by default, and the one that it replaces drains for 30 s.
	const leastProgress = 90 * time.Second
	if d := spec.Rollout.ProgressDeadline; d != nil && d.Duration < leastProgress {
		w.add(rollout.Child("progressDeadline"),
			"a Stargate pod warms up for 60s by default and its predecessor drains for 30s: below 1m30s a healthy rollout can count as stuck; raise it")
	}
	namespaces := spec.AllowedPolicies.Namespaces
	if s := namespaces.Selector; namespaces.From == v1alpha1.NamespacesFromSelector && s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		w.add(root.Child("allowedPolicies", "namespaces", "selector"), "an empty selector matches every namespace; write from: All if that is meant")
	}
	return w.warnings
}

type warner struct {
	generations Generations
	warnings    []Warning
}

func (w *warner) add(path *field.Path, message string) {
	w.warnings = append(w.warnings, Warning{Path: path, Message: message})
}

func (w *warner) note(path *field.Path, message string) {
	w.warnings = append(w.warnings, Warning{Path: path, Message: message, Note: true})
}

// limited adds what is true of the whole range of generations, or as a note, of the part that when names.
func (w *warner) limited(when string, path *field.Path, format string, args ...any) {
	w.warnings = append(w.warnings, Warning{Path: path, Message: when + fmt.Sprintf(format, args...), Note: when != ""})
}

func (w *warner) addf(path *field.Path, format string, args ...any) {
	w.add(path, fmt.Sprintf(format, args...))
}

func (w *warner) requestAlgorithms(list []v1alpha1.RequestAlgorithm, path *field.Path) {
	for i := range list {
		w.settings(&list[i].AlgorithmSettings, path.Index(i))
	}
	if len(list) > 0 {
		w.note(path, "newer Stargate builds let function metadata override fields per request (x-routing-method: pulsar;seed=x), "+
			"so what runs can differ from the file and nothing in the cluster shows it; keep such overrides out of function metadata")
	}
}

// defaultAlgorithm: the default has no settings, so what is said of it cannot be answered where it stands.
func (w *warner) defaultAlgorithm(a v1alpha1.Algorithm, path *field.Path) {
	if a != v1alpha1.Pulsar && a != v1alpha1.PulsarWaitAndWiden {
		return
	}
	bare, d := &v1alpha1.AlgorithmSettings{Algorithm: a}, warner{generations: w.generations}
	d.weight(bare, path, "with rendezvousWeight: last-mean-input-tps they stay")
	if a == v1alpha1.PulsarWaitAndWiden {
		d.shortcut(bare, path)
	}
	d.seed(bare, path, "a seed of its own tells one from the other")
	for _, warning := range d.warnings {
		w.note(path, warning.Message+"; defaultAlgorithm has no settings: to set any of this, list the models in a policy")
	}
}

// settings of one entry: a model's, or a request algorithm's.
func (w *warner) settings(s *v1alpha1.AlgorithmSettings, path *field.Path) {
	w.everyAlgorithm(s, path)
	switch s.Algorithm {
	case v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden:
		w.weight(s, path.Child("rendezvousWeight"), "if there are any, set rendezvousWeight: last-mean-input-tps, if there are none, max-input-tps")
		w.seed(s, path.Child("seed"), "set a seed of its own on one of them to tell them apart")
		if isTrue(s.ConsiderKvFreeTokens) {
			w.note(path.Child("considerKvFreeTokens"), "a cluster without KV statistics is never eligible; set it only where every cluster reports them")
		}
	}
	switch s.Algorithm {
	case v1alpha1.WaitAndWiden:
		w.waitAndWiden(s, path)
	case v1alpha1.PulsarWaitAndWiden:
		w.pulsarWaitAndWiden(s, path)
	}
	w.newerFields(s, path)
}

func (w *warner) everyAlgorithm(s *v1alpha1.AlgorithmSettings, path *field.Path) {
	if isTrue(s.RequireInputTokens) {
		w.add(path.Child("requireInputTokens"), "it changes nothing in practice, since the proxy always requires x-input-tokens; remove it")
	}
	if limit, ok := decimal(s.MaxInputWorkSeconds); ok && limit <= 0 {
		admits := "only requests without input work"
		if limit < 0 {
			admits = "no request at all"
		}
		w.addf(path.Child("maxInputWorkSeconds"), "a limit of %s admits %s; raise it, or remove it for no limit", *s.MaxInputWorkSeconds, admits)
	}
}

// widening is what wait-and-widen and pulsar-wait-and-widen have in common.
func (w *warner) widening(s *v1alpha1.AlgorithmSettings, path *field.Path) {
	floor, ceil := s.MaxQueueTimeFloorMs, s.MaxQueueTimeCeilMs
	switch {
	case floor != nil && ceil == nil:
		w.add(path.Child("maxQueueTimeFloorMs"), "no effect without maxQueueTimeCeilMs; set both or neither")
	case floor == nil && ceil != nil:
		w.add(path.Child("maxQueueTimeCeilMs"), "no effect without maxQueueTimeFloorMs; set both or neither")
	case floor != nil && *floor > *ceil:
		w.add(path.Child("maxQueueTimeFloorMs"), "above maxQueueTimeCeilMs: the two are not reordered, the limit shrinks as the request ages; swap them if that is not meant")
	}
	if factor, ok := decimal(s.NextBucketUnlockFactor); ok && (factor < 0 || factor > 1) {
		w.add(path.Child("nextBucketUnlockFactor"), "outside 0 to 1 buckets unlock before their time or later than the gap between them; keep it from 0 to 1")
	}
	if isZero(s.N) {
		w.add(path.Child("n"), "0 counts as 1; write 1, or leave it out for 2")
	}
}

func (w *warner) waitAndWiden(s *v1alpha1.AlgorithmSettings, path *field.Path) {
	w.widening(s, path)
	if s.CacheAffinityBackendSelectionCount == nil || isZero(s.CacheAffinityBackendSelectionCount) {
		const why = "no effect on wait-and-widen without an affinity group; set cacheAffinityBackendSelectionCount above 0, or remove it"
		for _, inert := range []struct {
			name string
			set  bool
		}{
			{"seed", s.Seed != nil && *s.Seed != ""},
			{"cacheAffinityVirtualNodes", s.CacheAffinityVirtualNodes != nil},
			{"cacheAffinityWaitMs", s.CacheAffinityWaitMs != nil},
			{"cacheAffinityInputTokensScale", s.CacheAffinityInputTokensScale != nil},
			{"lastClusterAffinity", isTrue(s.LastClusterAffinity)},
		} {
			if inert.set {
				w.add(path.Child(inert.name), inert.name+" has "+why)
			}
		}
		return
	}
	w.seed(s, path.Child("seed"), "set a seed of its own on one of them to tell them apart")
	if isZero(s.CacheAffinityVirtualNodes) {
		w.add(path.Child("cacheAffinityVirtualNodes"), "0 counts as 1; write 1, or leave it out for 150")
	}
	w.lastCluster(s, path.Child("lastClusterAffinity"))
}

func (w *warner) pulsarWaitAndWiden(s *v1alpha1.AlgorithmSettings, path *field.Path) {
	w.widening(s, path)
	w.shortcut(s, path)
	if s.CacheAffinityVirtualNodes != nil {
		w.add(path.Child("cacheAffinityVirtualNodes"), "accepted on pulsar-wait-and-widen and ignored there, since it has no hash ring; remove it")
	}
	if k := path.Child("cacheAffinityBackendSelectionCount"); isZero(s.CacheAffinityBackendSelectionCount) {
		w.add(k, "0 counts as 1 on pulsar-wait-and-widen; write 1, or leave it out")
	} else if s.CacheAffinityBackendSelectionCount != nil {
		if when, ok := w.generations.before(release.V1); ok {
			w.limited(when, k, "pulsar-wait-and-widen accepts and ignores it; it takes effect with a newer Stargate, remove it until then")
		}
	}
	if when, ok := w.generations.before(release.V2); ok {
		const ignored = "pulsar-wait-and-widen does not wait for affinity and ignores it; it takes effect with a newer Stargate, remove it until then"
		if s.CacheAffinityWaitMs != nil {
			w.limited(when, path.Child("cacheAffinityWaitMs"), ignored)
		}
		if s.CacheAffinityInputTokensScale != nil {
			w.limited(when, path.Child("cacheAffinityInputTokensScale"), ignored)
		}
	}
	w.lastCluster(s, path.Child("lastClusterAffinity"))
}

// shortcut: before V3 the first cluster of the ranking took every request where no queue SLO was configured.
func (w *warner) shortcut(s *v1alpha1.AlgorithmSettings, path *field.Path) {
	if s.MaxQueueTimeFloorMs != nil && s.MaxQueueTimeCeilMs != nil {
		return
	}
	const without = "pulsar-wait-and-widen without both maxQueueTimeFloorMs and maxQueueTimeCeilMs: "
	early, before := w.generations.before(release.V3)
	late, since := w.generations.since(release.V3)
	// A maxQueued of 0 that is written out is meant.
	since = since && s.MaxQueued == nil && (s.CacheAffinityWaitMs == nil || *s.CacheAffinityWaitMs == 0)
	var facts []string
	if before {
		facts = append(facts, early+"the rank-1 cluster takes every request whatever its load")
	}
	switch {
	case since:
		facts = append(facts, late+"requests overflow as soon as rank 1 has no free engine slot; to keep them there raise maxQueued and set cacheAffinityWaitMs, or use pulsar; if it is meant, write maxQueued: 0")
	case before:
		facts = append(facts, "set both to bound its queue, or use pulsar if that is meant")
	default:
		return
	}
	w.warnings = append(w.warnings, Warning{Path: path, Message: without + strings.Join(facts, "; "), Note: before && early != "" || since && late != ""})
}

// weight: since V2 a ranking needs the maximum input TPS, which old workers and relays do not report.
func (w *warner) weight(s *v1alpha1.AlgorithmSettings, path *field.Path, advice string) {
	if s.RendezvousWeight != nil {
		return // either is meant when it is written out
	}
	if when, ok := w.generations.since(release.V2); ok {
		w.limited(when, path, "%s ranks by the maximum input TPS, and clusters behind workers or relays too old to report it drop out of the ranking; %s", s.Algorithm, advice)
	}
}

func (w *warner) seed(s *v1alpha1.AlgorithmSettings, path *field.Path, advice string) {
	if s.Seed == nil || *s.Seed == "" {
		w.note(path, fmt.Sprintf("%s without a seed is fine, but two planes with the same models rank alike; %s", s.Algorithm, advice))
	}
}

// lastCluster: a new session is spared the affinity wait X and the discount s, so without them it is like any.
func (w *warner) lastCluster(s *v1alpha1.AlgorithmSettings, path *field.Path) {
	if !isTrue(s.LastClusterAffinity) {
		return
	}
	scale, ok := decimal(s.CacheAffinityInputTokensScale)
	if s.CacheAffinityWaitMs == nil && (!ok || scale == 1) { // a wait of 0 that is written out is meant
		w.addf(path, "with cacheAffinityWaitMs 0 and cacheAffinityInputTokensScale 1 a new session is treated the same as without the flag, "+
			"only the promotion of the last cluster changes; set cacheAffinityWaitMs to have %s wait for a returning session's cluster, or to 0 if the promotion alone is meant", s.Algorithm)
	}
}

func (w *warner) newerFields(s *v1alpha1.AlgorithmSettings, path *field.Path) {
	for i := range fields {
		f := &fields[i]
		if !f.IsSet(s) {
			continue
		}
		if when, ok := w.generations.before(f.Since); ok {
			w.limited(when, path.Child(f.Name), "Stargate does not know %s, which is left out of the file; it takes effect from %s on, remove it until then", f.Name, f.Since)
		}
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func isZero(n *int64) bool { return n != nil && *n == 0 }

func decimal(d *v1alpha1.Decimal) (float64, bool) {
	if d == nil {
		return 0, false
	}
	return ParseDecimal(*d)
}
