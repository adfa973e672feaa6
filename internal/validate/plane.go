package validate

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
)

// DefaultPathPrefix is the directory under which configPath must lie where the administrator says nothing else.
const DefaultPathPrefix = "/etc/routing-operator"

// defaultConfigPath is the schema's default of configPath.
const defaultConfigPath = DefaultPathPrefix + "/lb-config.json"

// Options of the operator that bear on what is accepted.
type Options struct {
	// AllowedPathPrefixes are the directories in which, or below which, the directory of configPath must lie. The
	// operator mounts over that directory, so nothing that a container needs may be there. Default:
	// DefaultPathPrefix.
	AllowedPathPrefixes []string
}

// Limits of the schema for planes.
const (
	maxGateways      = 16
	maxReleases      = 64
	maxWaves         = 32
	maxPathLength    = 1024
	maxImageLength   = 1024
	maxVersionLength = 128
	maxPrefixLength  = 64
	maxHistoryLimit  = 100
	maxPort          = 65535
)

// Plane returns everything that makes the spec of a RoutingPlane unacceptable, in the order of the spec. Root is
// the path of the spec. A field that the API server would default may be unset.
func Plane(spec *v1alpha1.RoutingPlaneSpec, root *field.Path, options Options) field.ErrorList {
	errs := checkStargate(&spec.Stargate, root.Child("stargate"), options)
	errs = append(errs, checkGateways(spec, root.Child("gateways"))...)
	errs = append(errs, checkLastCluster(&spec.LastCluster, root.Child("lastCluster"))...)
	errs = append(errs, checkRollout(&spec.Rollout, root.Child("rollout"))...)
	errs = append(errs, checkNamespaces(&spec.AllowedPolicies.Namespaces, root.Child("allowedPolicies", "namespaces"))...)
	if limit := spec.RevisionHistoryLimit; limit != nil && (*limit < 0 || *limit > maxHistoryLimit) {
		errs = append(errs, field.Invalid(root.Child("revisionHistoryLimit"), *limit, "revisionHistoryLimit must be from 0 to 100"))
	}
	errs = append(errs, checkChoice(spec.DeletionPolicy, root.Child("deletionPolicy"), v1alpha1.DeletionUnwind, v1alpha1.DeletionRetain)...)
	return errs
}

// PlaneChange returns what makes a change of the spec of a RoutingPlane unacceptable, whatever the new spec is by itself.
// Root is the path of the spec. In both, a field that the API server would default may be unset.
func PlaneChange(before, after *v1alpha1.RoutingPlaneSpec, root *field.Path) field.ErrorList {
	was, is := cmp.Or(before.Stargate.ConfigPath, defaultConfigPath), cmp.Or(after.Stargate.ConfigPath, defaultConfigPath)
	if was == is {
		return nil
	}
	return field.ErrorList{field.Invalid(root.Child("stargate", "configPath"), is,
		"configPath cannot be changed: the file would go from the old path, which Stargate's arguments may still name, and no new pod would start; "+
			"to move, have the arguments name a file of the chart's, delete the plane and create it anew with the other path")}
}

func checkStargate(s *v1alpha1.StargateSpec, path *field.Path, options Options) field.ErrorList {
	errs := checkWorkload(&s.WorkloadRef, path.Child("workloadRef"), v1alpha1.KindDeployment, v1alpha1.KindStatefulSet)
	errs = append(errs, checkContainer(s.Container, path.Child("container"))...)
	errs = append(errs, checkConfigPath(s.ConfigPath, path.Child("configPath"), options)...)
	errs = append(errs, checkChoice(s.ConfigPathCheck, path.Child("configPathCheck"), v1alpha1.ConfigPathCheckArguments, v1alpha1.ConfigPathCheckSkip)...)
	errs = append(errs, checkReleases(s.Releases, path.Child("releases"))...)
	if s.DefaultAlgorithm != "" {
		errs = append(errs, checkAlgorithm(s.DefaultAlgorithm, path.Child("defaultAlgorithm"))...)
	}
	errs = append(errs, checkRequestAlgorithms(s.RequestAlgorithms, path)...)
	errs = append(errs, checkPort(s.Metrics.Port, path.Child("metrics", "port"))...)
	errs = append(errs, checkMetricPrefix(s.Metrics.Prefix, path.Child("metrics", "prefix"))...)
	return errs
}

func checkGateways(spec *v1alpha1.RoutingPlaneSpec, path *field.Path) field.ErrorList {
	if len(spec.Gateways) > maxGateways {
		return field.ErrorList{field.TooMany(path, len(spec.Gateways), maxGateways)}
	}
	var errs field.ErrorList
	refs := sets.New[v1alpha1.WorkloadReference]()
	for i := range spec.Gateways {
		gateway, at := &spec.Gateways[i], path.Index(i)
		refs.Insert(gateway.WorkloadRef)
		errs = append(errs, checkWorkload(&gateway.WorkloadRef, at.Child("workloadRef"), v1alpha1.KindDeployment)...)
		errs = append(errs, checkContainer(gateway.Container, at.Child("container"))...)
		errs = append(errs, checkReleases(gateway.Releases, at.Child("releases"))...)
		errs = append(errs, checkPort(gateway.Metrics.Port, at.Child("metrics", "port"))...)
	}
	if refs.Has(spec.Stargate.WorkloadRef) {
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			fmt.Sprintf("%s %s is the plane's Stargate workload and cannot be a gateway too; name the gateway's own workload",
				spec.Stargate.WorkloadRef.Kind, spec.Stargate.WorkloadRef.Name)))
	}
	if len(refs) < len(spec.Gateways) {
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "two entries name one workload; keep one entry for each workload"))
	}
	return errs
}

func checkWorkload(ref *v1alpha1.WorkloadReference, path *field.Path, kinds ...string) field.ErrorList {
	errs := checkChoiceOf(ref.Kind, path.Child("kind"), kinds)
	return append(errs, checkSubdomain(ref.Name, path.Child("name"))...)
}

func checkContainer(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	return checkLabel(name, path)
}

// plainPath: absolute, at least two directories deep, every segment of letters that need no quoting in an
// argument, and none that begins with "..", which a volume refuses.
var plainPath = regexp.MustCompile(`^(/[.]?[A-Za-z0-9_-][A-Za-z0-9._-]*){3,}$`)

// occupied are directories that the container runtime or the kubelet fills.
var occupied = []string{"/dev", "/proc", "/run", "/sys", "/var/run"}

func checkConfigPath(file string, at *field.Path, options Options) field.ErrorList {
	if file == "" {
		return nil
	}
	if errs := checkLength(file, maxPathLength, at); len(errs) > 0 {
		return errs
	}
	if !plainPath.MatchString(file) {
		return field.ErrorList{field.Invalid(at, file, "configPath must be the absolute path of a file at least two directories deep, "+
			"in letters, digits, '.', '_' and '-' and without '..', for example /etc/routing-operator/lb-config.json: the operator mounts over the file's directory")}
	}
	dir := path.Dir(file)
	if slices.ContainsFunc(occupied, func(d string) bool { return within(dir, d) }) {
		return field.ErrorList{field.Invalid(at, file,
			"configPath must not lie in /dev, /proc, /run, /sys or /var/run: the operator mounts over the file's directory")}
	}
	allowed := options.AllowedPathPrefixes
	if len(allowed) == 0 {
		allowed = []string{DefaultPathPrefix}
	}
	if !slices.ContainsFunc(allowed, func(prefix string) bool { return within(dir, path.Clean(prefix)) }) {
		return field.ErrorList{field.Invalid(at, file, fmt.Sprintf(
			"configPath must lie in a directory that the operator is allowed to mount over: %s; choose one there or have the administrator allow this one", join(allowed)))}
	}
	return nil
}

// within tells whether a clean directory is another one or below it.
func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, strings.TrimSuffix(parent, "/")+"/")
}

func checkReleases(list []v1alpha1.ReleaseOverride, path *field.Path) field.ErrorList {
	if len(list) > maxReleases {
		return field.ErrorList{field.TooMany(path, len(list), maxReleases)}
	}
	var errs field.ErrorList
	images := sets.New[string]()
	for i, r := range list {
		if images.Has(r.Image) {
			errs = append(errs, field.Duplicate(path.Index(i), map[string]any{"image": r.Image}))
		}
		images.Insert(r.Image)
		if r.Image == "" {
			errs = append(errs, field.Invalid(path.Index(i).Child("image"), r.Image, "image must be as the container names it, whole: 'llm-request-router:latest'"))
		}
		errs = append(errs, checkLength(r.Image, maxImageLength, path.Index(i).Child("image"))...)
		errs = append(errs, checkVersion(r.Version, path.Index(i).Child("version"))...)
	}
	return errs
}

func checkVersion(version string, path *field.Path) field.ErrorList {
	if errs := checkLength(version, maxVersionLength, path); len(errs) > 0 {
		return errs
	}
	// Which generation a release belongs to does not matter here, so any table will do.
	if _, err := release.DefaultTable().Parse(version); err != nil || strings.TrimSpace(version) != version {
		return field.ErrorList{field.Invalid(path, version, "version must be a release such as 0.22.0 or a generation from V0 to V3")}
	}
	return nil
}

func checkPort(port int32, path *field.Path) field.ErrorList {
	if port < 0 || port > maxPort {
		return field.ErrorList{field.Invalid(path, port, "port must be from 1 to 65535")}
	}
	return nil
}

var metricPrefix = regexp.MustCompile(`^([A-Za-z_:][A-Za-z0-9_:]*)?$`)

func checkMetricPrefix(prefix string, path *field.Path) field.ErrorList {
	if errs := checkLength(prefix, maxPrefixLength, path); len(errs) > 0 {
		return errs
	}
	if !metricPrefix.MatchString(prefix) {
		return field.ErrorList{field.Invalid(path, prefix, "prefix must be the beginning of a metric's name, such as stargate_: letters, digits, '_' and ':', not beginning with a digit")}
	}
	return nil
}

func checkLastCluster(s *v1alpha1.LastClusterSpec, path *field.Path) field.ErrorList {
	errs := checkAbove0("ttl", s.TTL, path)
	errs = append(errs, checkAbove0("lookupTimeout", s.LookupTimeout, path)...)
	if n := s.LocalMaxEntries; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(path.Child("localMaxEntries"), *n, "localMaxEntries must be 1 or more"))
	}
	return errs
}

func checkRollout(s *v1alpha1.RolloutSpec, path *field.Path) field.ErrorList {
	errs := checkNotNegative("quietPeriod", s.QuietPeriod, path)
	errs = append(errs, checkNotNegative("minInterval", s.MinInterval, path)...)
	errs = append(errs, checkNotNegative("gatewayWarmup", s.GatewayWarmup, path)...)
	errs = append(errs, checkWaves(s.Waves, path.Child("waves"))...)
	errs = append(errs, checkNotNegative("waveInterval", s.WaveInterval, path)...)
	errs = append(errs, checkAbove0("progressDeadline", s.ProgressDeadline, path)...)
	errs = append(errs, checkAnalysis(s.Analysis, path.Child("analysis"))...)
	if s.Pin != "" {
		errs = append(errs, checkSubdomain(s.Pin, path.Child("pin"))...)
	}
	return errs
}

func checkAnalysis(s *v1alpha1.RolloutAnalysis, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := checkAbove0("interval", s.Interval, path)
	if n := s.MinSamples; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(path.Child("minSamples"), *n, "minSamples must be 1 or more"))
	}
	errs = append(errs, checkChoice(s.TooFewSamples, path.Child("tooFewSamples"), v1alpha1.TooFewSamplesContinue, v1alpha1.TooFewSamplesHold)...)
	for _, share := range []struct {
		name  string
		value *v1alpha1.Decimal
	}{
		{"maxNewShare", s.MaxNewShare}, {"minReturningPrimaryShare", s.MinReturningPrimaryShare}, {"maxServerErrorIncrease", s.MaxServerErrorIncrease},
	} {
		if share.value != nil {
			limits := Field{Name: share.name, Max: 1}
			errs = append(errs, limits.checkValue(share.value, path)...)
		}
	}
	return errs
}

// maxDuration is a year: longer waits are typing errors, and far from what a sum of durations can hold.
const maxDuration = 8760 * time.Hour

func checkAbove0(name string, d *metav1.Duration, parent *field.Path) field.ErrorList {
	if d == nil || d.Duration > 0 && d.Duration <= maxDuration {
		return nil
	}
	return field.ErrorList{field.Invalid(parent.Child(name), d.Duration.String(), name+" must be above 0 and at most 8760h, such as 10m, 1h30m or 20ms")}
}

func checkNotNegative(name string, d *metav1.Duration, parent *field.Path) field.ErrorList {
	if d == nil || d.Duration >= 0 && d.Duration <= maxDuration {
		return nil
	}
	return field.ErrorList{field.Invalid(parent.Child(name), d.Duration.String(), name+" must be from 0s to 8760h, such as 10m, 1h30m or 20ms")}
}

var percentage = regexp.MustCompile(`^([1-9][0-9]?|100)%$`)

func checkWaves(waves []intstr.IntOrString, path *field.Path) field.ErrorList {
	switch {
	case waves != nil && len(waves) == 0:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "list at least one wave, or leave waves out for the default")}
	case len(waves) > maxWaves:
		return field.ErrorList{field.TooMany(path, len(waves), maxWaves)}
	}
	const rule = "a wave must be a number of models, 1 or more, or a percentage from 1% to 100%"
	var errs field.ErrorList
	for i, wave := range waves {
		switch {
		case wave.Type == intstr.Int && wave.IntVal < 1:
			errs = append(errs, field.Invalid(path.Index(i), wave.IntVal, rule))
		case wave.Type == intstr.String && !percentage.MatchString(wave.StrVal):
			errs = append(errs, field.Invalid(path.Index(i), wave.StrVal, rule))
		}
	}
	return errs
}

func checkNamespaces(s *v1alpha1.AllowedNamespaces, path *field.Path) field.ErrorList {
	errs := checkChoice(s.From, path.Child("from"), v1alpha1.NamespacesFromSame, v1alpha1.NamespacesFromAll, v1alpha1.NamespacesFromSelector)
	selector := path.Child("selector")
	switch {
	case s.From == v1alpha1.NamespacesFromSelector && s.Selector == nil:
		errs = append(errs, field.Required(selector, "from: Selector needs a selector over the labels of namespaces"))
	case s.From != v1alpha1.NamespacesFromSelector && s.Selector != nil:
		errs = append(errs, field.Invalid(selector, field.OmitValueType{}, "selector is for from: Selector only; remove it or set from: Selector"))
	}
	return append(errs, metav1validation.ValidateLabelSelector(s.Selector, metav1validation.LabelSelectorValidationOptions{}, selector)...)
}

func checkChoice[S ~string](value S, path *field.Path, choices ...S) field.ErrorList {
	if value == "" {
		return nil
	}
	return checkChoiceOf(value, path, choices)
}

func checkChoiceOf[S ~string](value S, path *field.Path, choices []S) field.ErrorList {
	if slices.Contains(choices, value) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, "must be one of: "+join(choices))}
}
