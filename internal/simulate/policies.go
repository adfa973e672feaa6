package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/manifests"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/routing"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// Policies is what the RoutingPolicies of some files, and the RoutingPlane among them if there is one, add up to.
type Policies struct {
	// Label that tells the policies from those that they are compared with.
	Label string

	// skipped is how many objects of other kinds there were.
	skipped  int
	policies []v1alpha1.RoutingPolicy
	plane    *v1alpha1.RoutingPlane
}

// ReadPolicies takes the RoutingPolicies and the RoutingPlane of the manifests. It refuses what the operator would refuse, a
// key that stands twice, two policies for one model, and a second plane.
func ReadPolicies(label string, set manifests.Set) (*Policies, error) {
	p := &Policies{Label: label, skipped: set.Skipped}
	var all []error
	for _, broken := range set.Broken {
		all = append(all, fmt.Errorf("%s:%d: %s", broken.File, broken.Line, broken.Message))
	}
	owner := map[string]string{}
	for _, document := range set.Documents {
		for _, twice := range document.Duplicates() {
			all = append(all, fmt.Errorf("%s:%d: the key %q stands in this mapping twice; remove one", document.File, twice.Line, twice.Key))
		}
		all = append(all, p.read(document, owner))
	}
	if err := errors.Join(all...); err != nil {
		return nil, fmt.Errorf("reading policies: %w", err)
	}
	if len(p.policies) == 0 && p.plane == nil {
		return nil, fmt.Errorf("reading policies: no RoutingPolicy and no RoutingPlane of %s in %s; name a file that holds one", v1alpha1.GroupVersion, label)
	}
	for i := range p.policies {
		if policy := &p.policies[i]; p.plane != nil && planeOf(policy) != nameOf(p.plane) {
			return nil, fmt.Errorf("reading policies: RoutingPolicy %s is on plane %s, and the plane in the files is %s; simulate one plane at a time", nameOf(policy), planeOf(policy), nameOf(p.plane))
		}
	}
	return p, nil
}

func nameOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func planeOf(p *v1alpha1.RoutingPolicy) string {
	return cmp.Or(p.Spec.PlaneRef.Namespace, p.Namespace) + "/" + p.Spec.PlaneRef.Name
}

// read takes one document in. Owner maps each model to the place of its policy.
func (p *Policies) read(document *manifests.Document, owner map[string]string) error {
	source := fmt.Sprintf("%s:%d", document.File, document.Position("").Line)
	root := field.NewPath("spec")
	version, _ := document.Object["apiVersion"].(string)
	kind, _ := document.Object["kind"].(string)
	switch {
	case version != v1alpha1.GroupVersion.String():
		return fmt.Errorf("%s: apiVersion: %q: must be %s", source, version, v1alpha1.GroupVersion)
	case kind == "RoutingPolicy":
		policy := v1alpha1.RoutingPolicy{}
		if err := decode(document.JSON, source, &policy); err != nil {
			return err
		}
		if err := inFile(source, validate.Policy(&policy.Spec, root)); err != nil {
			return err
		}
		for i, model := range policy.Spec.Models {
			if other, ok := owner[model.Name]; ok {
				return fmt.Errorf("%s: %s: model %q is in %s already; give the alternative with --compare", source, root.Child("models").Index(i).Child("name"), model.Name, other)
			}
			owner[model.Name] = source
		}
		p.policies = append(p.policies, policy)
		return nil
	case kind == "RoutingPlane":
		plane := v1alpha1.RoutingPlane{}
		if err := decode(document.JSON, source, &plane); err != nil {
			return err
		}
		if p.plane != nil {
			return fmt.Errorf("%s: a second RoutingPlane, %s beside %s; simulate one plane at a time", source, nameOf(&plane), nameOf(p.plane))
		}
		p.plane = &plane
		// Where the operator may mount its file is for its administrator to say, and no concern here.
		anywhere := validate.Options{AllowedPathPrefixes: []string{validate.DefaultPathPrefix, path.Dir(plane.Spec.Stargate.ConfigPath)}}
		return inFile(source, validate.Plane(&plane.Spec, root, anywhere))
	}
	return fmt.Errorf("%s: kind: %q: must be RoutingPolicy or RoutingPlane", source, kind)
}

// Flag is how a variant sets the lastClusterAffinity of the policies.
type Flag string

// The settings of the flag.
const (
	// AsWritten leaves it.
	AsWritten Flag = ""
	// FlagOff and FlagOn set it wherever a policy says anything about it.
	FlagOff Flag = "off"
	FlagOn  Flag = "on"
)

// Variant is a configuration to simulate.
type Variant struct {
	// Policy is the label of the policies.
	Policy string
	// Flag setting.
	Flag Flag
	// Written says that the policies have the flag like this.
	Written bool
	// Plane is the configuration of Stargate.
	Plane routing.Plane
	// TTL of the gateway's memory as the RoutingPlane has it; 0: it does not say.
	TTL time.Duration
}

// Name of the variant, unlike that of any other of the same policies.
func (v *Variant) Name() string {
	if v.Flag == AsWritten {
		return v.Policy
	}
	return v.Policy + ", flag " + string(v.Flag)
}

// Models of the configuration, sorted.
func (v *Variant) Models() []string {
	return slices.Sorted(maps.Keys(v.Plane.Models))
}

// Variants of the policies, as the operator would render them for a release of Stargate: as they are written, and where they
// say anything about lastClusterAffinity once with the flag off and once on. The warnings tell what the release does not
// know, what is not simulated of it, and what validation warns about.
func (p *Policies) Variants(r release.Release) (variants []Variant, warnings []string, err error) {
	if p.skipped > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: documents of other kinds are skipped, %d of them", p.Label, p.skipped))
	}
	add := func(kind string, o metav1.Object, found []validate.Warning) {
		for _, line := range validate.Lines(found, 0) {
			warnings = append(warnings, fmt.Sprintf("%s %s: %s", kind, nameOf(o), line))
		}
	}
	root, generation := field.NewPath("spec"), validate.Only(r.Generation)
	if p.plane != nil {
		add("RoutingPlane", p.plane, validate.PlaneWarnings(&p.plane.Spec, root, generation))
	}
	for i := range p.policies {
		add("RoutingPolicy", &p.policies[i], validate.PolicyWarnings(&p.policies[i].Spec, root, generation))
	}
	written := p.config(nil)
	flags := []*bool{nil}
	if hasFlag(written) && r.Generation >= release.V3 {
		flags = []*bool{new(false), new(true)}
		if on := render.Desired(written); len(on) > 0 && len(on) < len(render.Desired(p.config(flags[1]))) {
			flags = append(flags, nil)
		}
	}
	for _, flag := range flags {
		config := p.config(flag)
		on := render.Desired(config)
		v := Variant{Policy: p.Label, Written: on.Equal(render.Desired(written))}
		if flag != nil {
			v.Flag = map[bool]Flag{false: FlagOff, true: FlagOn}[*flag]
		}
		if p.plane != nil && p.plane.Spec.LastCluster.TTL != nil {
			v.TTL = p.plane.Spec.LastCluster.TTL.Duration
		}
		if v.Plane, err = planeFor(config, on, r.Generation); err != nil {
			return nil, nil, fmt.Errorf("variant %q: %w", v.Name(), err)
		}
		if flag == flags[0] {
			warnings = append(warnings, notSimulated(&v.Plane, r)...)
		}
		variants = append(variants, v)
	}
	return variants, warnings, nil
}

// config merges the policies. Flag is what every lastClusterAffinity is set to that is not left out, nil: as it is.
func (p *Policies) config(flag *bool) render.Config {
	c := render.Config{}
	set := func(s *v1alpha1.AlgorithmSettings) {
		if flag != nil && s.LastClusterAffinity != nil {
			s.LastClusterAffinity = flag
		}
	}
	setAll := func(list []v1alpha1.RequestAlgorithm) {
		for i := range list {
			set(&list[i].AlgorithmSettings)
		}
	}
	if p.plane != nil {
		spec := p.plane.Spec.DeepCopy()
		c.DefaultAlgorithm, c.RequestAlgorithms = spec.Stargate.DefaultAlgorithm, spec.Stargate.RequestAlgorithms
		setAll(c.RequestAlgorithms)
	}
	for i := range p.policies {
		for _, model := range p.policies[i].Spec.DeepCopy().Models {
			set(&model.AlgorithmSettings)
			setAll(model.RequestAlgorithms)
			c.Models = append(c.Models, model)
		}
	}
	return c
}

func hasFlag(c render.Config) bool {
	has := func(r v1alpha1.RequestAlgorithm) bool { return r.LastClusterAffinity != nil }
	return slices.ContainsFunc(c.RequestAlgorithms, has) || slices.ContainsFunc(c.Models, func(m v1alpha1.Model) bool {
		return m.LastClusterAffinity != nil || slices.ContainsFunc(m.RequestAlgorithms, has)
	})
}

// planeFor is what a Stargate of the generation makes of the file that the operator renders for it.
func planeFor(c render.Config, on render.Flags, g release.Generation) (routing.Plane, error) {
	rendered, err := render.LBConfig(c, on, g)
	if err != nil {
		return routing.Plane{}, fmt.Errorf("rendering %s: %w", render.LBConfigKey, err)
	}
	file, err := lbconfig.Read(rendered.Data, g)
	if err != nil {
		return routing.Plane{}, fmt.Errorf("Stargate would refuse the rendered %s: %w", render.LBConfigKey, err)
	}
	if c, err = render.FromFile(file); err != nil {
		return routing.Plane{}, fmt.Errorf("reading the rendered %s: %w", render.LBConfigKey, err)
	}
	plane := routing.PlaneFrom(&v1alpha1.StargateSpec{DefaultAlgorithm: c.DefaultAlgorithm, RequestAlgorithms: c.RequestAlgorithms}, c.Models)
	for algorithm, config := range plane.RequestAlgorithms {
		plane.RequestAlgorithms[algorithm] = asOf(g, config)
	}
	for name, model := range plane.Models {
		model.Config = asOf(g, model.Config)
		for algorithm, config := range model.RequestAlgorithms {
			model.RequestAlgorithms[algorithm] = asOf(g, config)
		}
		plane.Models[name] = model
	}
	return plane, nil
}

// asOf sets what an older generation does otherwise and a configuration of V3 can express.
func asOf(g release.Generation, c routing.Config) routing.Config {
	if g >= release.V2 {
		return c
	}
	byDefault := routing.DefaultConfig(c.Algorithm)
	c.Weight = routing.WeightLastMeanInputTPS
	if c.Algorithm == v1alpha1.PulsarWaitAndWiden {
		c.AffinityWait, c.AffinityScale = byDefault.AffinityWait, byDefault.AffinityScale
	}
	return c
}

// notSimulated tells what an older release does that the engine, which is of generation V3, does not.
func notSimulated(p *routing.Plane, r release.Release) []string {
	if r.Generation >= release.V3 {
		return nil
	}
	warnings := []string{fmt.Sprintf("Stargate %s is of generation %s, and decisions are simulated as V3 makes them, with the configuration that %s reads", r.Version, r.Generation, r.Version)}
	var widening, shortcut bool
	for _, m := range p.Models {
		widening = widening || m.Algorithm == v1alpha1.PulsarWaitAndWiden
		shortcut = shortcut || m.Algorithm == v1alpha1.PulsarWaitAndWiden && !m.QueueSLO
	}
	if shortcut {
		warnings = append(warnings, "not simulated: before V3 pulsar-wait-and-widen without a queue SLO sends every request to its rank-1 cluster, whatever the load")
	}
	if widening && r.Generation < release.V2 {
		warnings = append(warnings, "not simulated: before V2 pulsar-wait-and-widen tries rank 1, then ranks 2 to 3, 4 to 7 and so on, each band alone, and never waits")
	}
	return warnings
}
