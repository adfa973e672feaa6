package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// Options say what the objects are called and what the plane names.
type Options struct {
	// Plane and Namespace of the plane, and of the policies; Policy is the name of the policy, or the beginning of
	// the names of several.
	Plane, Namespace, Policy string
	// Split makes a policy of each model.
	Split bool
	// Paused makes a plane that changes nothing until it is resumed.
	Paused bool
	// Stargate and Gateways name the workloads.
	Stargate v1alpha1.StargateSpec
	Gateways []v1alpha1.GatewaySpec
	// LastCluster of the plane.
	LastCluster v1alpha1.LastClusterSpec
}

// Objects makes the plane and the policies of a configuration, sorted by model. They are what the API accepts, or the
// error says what the API cannot hold.
func Objects(config render.Config, o Options) (*v1alpha1.RoutingPlane, []*v1alpha1.RoutingPolicy, error) {
	plane := &v1alpha1.RoutingPlane{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RoutingPlane"},
		ObjectMeta: metav1.ObjectMeta{Name: o.Plane, Namespace: o.Namespace},
		Spec:       v1alpha1.RoutingPlaneSpec{Stargate: o.Stargate, Gateways: o.Gateways, LastCluster: o.LastCluster},
	}
	plane.Spec.Rollout.Paused = o.Paused
	plane.Spec.Stargate.DefaultAlgorithm = config.DefaultAlgorithm
	plane.Spec.Stargate.RequestAlgorithms = config.RequestAlgorithms
	spec := field.NewPath("spec")
	if errs := validate.Plane(&plane.Spec, spec, validate.Options{}); len(errs) > 0 {
		return nil, nil, fmt.Errorf("the plane would not be accepted: %w", errs.ToAggregate())
	}
	var policies []*v1alpha1.RoutingPolicy
	for _, part := range parts(config.Models, o) {
		policy := &v1alpha1.RoutingPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RoutingPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: part.name, Namespace: o.Namespace},
			Spec:       v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: o.Plane}, Models: part.models},
		}
		if errs := validate.Policy(&policy.Spec, spec); len(errs) > 0 {
			return nil, nil, fmt.Errorf("policy %s, which begins with model %q, would not be accepted: %w", part.name, part.models[0].Name, errs.ToAggregate())
		}
		policies = append(policies, policy)
	}
	return plane, policies, nil
}

// part is what one policy holds.
type part struct {
	name   string
	models []v1alpha1.Model
}

func parts(models []v1alpha1.Model, o Options) []part {
	switch {
	case o.Split:
		return split(models, o.Policy)
	case len(models) == 0:
		return nil
	case len(models) <= validate.MaxModels:
		return []part{{o.Policy, models}}
	}
	var all []part
	for i := 0; i < len(models); i += validate.MaxModels {
		all = append(all, part{fmt.Sprintf("%s-%d", o.Policy, len(all)+1), models[i:min(i+validate.MaxModels, len(models))]})
	}
	return all
}

// split names each model's policy after the model, with a hash where that alone would not tell two models apart: the
// name depends on nothing but the model IDs.
func split(models []v1alpha1.Model, prefix string) []part {
	times := map[string]int{}
	for i := range models {
		times[slug(models[i].Name)]++
	}
	var all []part
	for i := range models {
		name := slug(models[i].Name)
		if times[name] > 1 || name == "" {
			sum := sha256.Sum256([]byte(models[i].Name))
			name = strings.TrimPrefix(name+"-"+hex.EncodeToString(sum[:4]), "-")
		}
		all = append(all, part{prefix + "-" + name, models[i : i+1]})
	}
	return all
}

// longestSlug leaves room for prefix and hash in a name that people can still read.
const longestSlug = 100

// slug is a model ID in the characters of an object's name.
func slug(model string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(model) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	s := b.String()
	return strings.Trim(s[:min(len(s), longestSlug)], "-")
}
