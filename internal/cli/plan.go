package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/controllers"
	"github.com/routing-operator/routing-operator/internal/effective"
	"github.com/routing-operator/routing-operator/internal/forecast"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/preview"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/review"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/statusview"
	"github.com/routing-operator/routing-operator/internal/tenancy"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// exitChange tells a plan with changes from one without, as kubectl diff does.
const exitChange = 1

type planOptions struct {
	*app
	cluster  *clusterFlags
	files    filesFlags
	from, to []string
	prune    bool
	output   string
}

func (a *app) planCommand() *cobra.Command {
	o := &planOptions{app: a}
	c := &cobra.Command{
		Use:   "plan (-f FILE | --from FILE --to FILE)",
		Short: "Show what a change means, which workloads restart for it, and how long it takes",
		Long: `Compares the files with the live plane, or one revision of files with another: what changes in meaning, field by field;
which sessions move to other clusters; which workloads restart, how often, in which order and for how long. The
order is found by the operator's own planner; the time, by how long the workloads' pods took to get ready.

Policies on the plane that are not in the files stay as they are, or count as deleted with --prune. Nothing is changed.

Ends with 0 where nothing changes, with 1 where something does, with 2 where that could not be found out.`,
		Example: `  # Against the live plane
  kubectl routing plan -f routing/ --context production

  # In a pull request, without a cluster
  git worktree add ../base origin/main
  kubectl routing plan --from ../base/routing --to routing --stargate-version 0.18.0`,
		Args: noArguments("-f, or --from and --to"),
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.StringArrayVarP(&o.files.names, "filename", "f", nil, "`file` or folder to compare with the live planes, or - for standard input; repeatable")
	f.StringArrayVar(&o.from, "from", nil, "`file` or folder before the change; repeatable; needs no cluster")
	f.StringArrayVar(&o.to, "to", nil, "`file` or folder after the change; repeatable")
	f.BoolVar(&o.prune, "prune", false, "count live policies that are not in the files as deleted")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	o.files.addSite(c, "default: what runs; without a cluster the newest generation")
	o.cluster = a.clusterFlags(c)
	c.MarkFlagsOneRequired("filename", "from")
	c.MarkFlagsMutuallyExclusive("filename", "from")
	c.MarkFlagsRequiredTogether("from", "to")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// planned is what a plan says of one plane.
type planned struct {
	key      types.NamespacedName
	changes  []preview.Change
	settings []preview.Setting
	remaps   []preview.Remap
	// forecast is nil where nobody can tell: the plane is in neither the files nor the cluster.
	forecast *forecast.Forecast
	notes    []string
	warnings []string
}

func (p *planned) changed() bool { return len(p.changes)+len(p.settings) > 0 }

func (o *planOptions) run(ctx context.Context) error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("--output: %q is none; there are text and json", o.output)
	}
	var plans []*planned
	var err error
	if len(o.from) > 0 {
		plans, err = o.betweenFiles()
	} else {
		plans, err = o.live(ctx)
	}
	if err != nil {
		return err
	}
	if o.output == "json" {
		err = o.printJSON(plans)
	} else {
		err = o.printText(plans)
	}
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if slices.ContainsFunc(plans, (*planned).changed) {
		return &exit{code: exitChange}
	}
	return nil
}

// review reads files; a plan of files that would be refused is none.
func (o *planOptions) review(names []string, options review.Options) (review.Result, error) {
	_, result, err := o.files.review(names, o.In, options)
	if err != nil {
		return result, err
	}
	if err := o.refuseErrors(&result); err != nil {
		return result, &exit{exitUsage, errors.Unwrap(err)}
	}
	return result, nil
}

// betweenFiles plans from one revision of files to another.
func (o *planOptions) betweenFiles() ([]*planned, error) {
	generation, stated, err := o.files.stargate.generation()
	if err != nil {
		return nil, err
	}
	stargate := release.Release{Version: o.files.stargate.version, Generation: generation}
	if !stated {
		stargate = release.Release{Version: release.Newest.String(), Generation: release.Newest}
		fmt.Fprintf(o.ErrOut, "note: planned for the newest generation of Stargate, %s; --stargate-version names the one that runs\n", release.Newest)
	}
	options := review.Options{Generations: validate.Only(stargate.Generation)}
	before, err := o.review(o.from, options)
	if err != nil {
		return nil, err
	}
	after, err := o.review(o.to, options)
	if err != nil {
		return nil, err
	}
	sites := map[types.NamespacedName][2]*review.Site{}
	for i, result := range []review.Result{before, after} {
		for _, site := range result.Sites {
			pair := sites[site.Key]
			pair[i] = site
			sites[site.Key] = pair
		}
	}
	var plans []*planned
	for _, key := range slices.SortedFunc(maps.Keys(sites), compareKeys) {
		plan, err := planFiles(key, sites[key][0], sites[key][1], stargate, o.clock.Now())
		if err != nil {
			return nil, fmt.Errorf("plane %s: %w", key, err)
		}
		plan.warnings = append(plan.warnings, newWarnings(&before, &after, key)...)
		plans = append(plans, plan)
	}
	return plans, nil
}

// planFiles compares two sites, either of which may not be there.
func planFiles(key types.NamespacedName, before, after *review.Site, stargate release.Release, now time.Time) (*planned, error) {
	config := func(s *review.Site) render.Config {
		if s == nil {
			return render.Config{}
		}
		return s.Merged.Config
	}
	plane := func(s *review.Site) *v1alpha1.RoutingPlane {
		if s == nil || s.Plane == nil {
			return nil
		}
		return s.Plane.RoutingPlane
	}
	p := &planned{key: key}
	from, to := plane(before), plane(after)
	if err := p.compare(from, to, config(before), config(after)); err != nil {
		return nil, err
	}
	if from == nil && to == nil {
		p.notes = append(p.notes, "the plane is not in the files, so nothing is said about its workloads")
		return p, nil
	}
	start := config(before)
	if from == nil {
		from = to
	}
	world, err := forecast.Site(from, start, stargate, now)
	if err != nil {
		return nil, err
	}
	if before == nil || before.Plane == nil {
		world.Stargate.Template.Revision, world.Stargate.Template.Touched, world.Stargate.Managed = "", false, false
		world.Revisions = nil
	}
	if to == nil {
		to = from.DeepCopy()
		if to.Spec.Rollout.Paused { // the operator writes nothing then, and does not wait for anybody
			to.Spec.Rollout.Paused, to.Spec.DeletionPolicy = false, v1alpha1.DeletionRetain
		}
		world.Plane = rollout.Settings(to)
		world.Plane.Deleted = now
		p.remaps = nil // the last file stays until somebody points Stargate elsewhere
		p.notes = append(p.notes, deletion(&to.Spec))
	} else {
		world.Plane = rollout.Settings(to)
		world.Config = config(after)
	}
	p.notes = append(p.notes, "the times are those of three replicas with "+forecast.Assumed.String()+" for each pod")
	return p, p.foresee(world, forecast.ByAssumption, &to.Spec)
}

// deletion says what becomes of the workloads of a plane that is deleted.
func deletion(spec *v1alpha1.RoutingPlaneSpec) string {
	if spec.DeletionPolicy == v1alpha1.DeletionRetain {
		return "the plane is deleted: the operator leaves its workloads as they are"
	}
	return "the plane is deleted: the operator takes its flags and the gateways' memory off, and lets go of its workloads; a file that Stargate's arguments name stays"
}

// compare fills in what changes in meaning. A plane that is nil is not there.
func (p *planned) compare(from, to *v1alpha1.RoutingPlane, before, after render.Config) error {
	p.changes = preview.Diff(before, after)
	p.remaps = preview.Remaps(before, after)
	switch {
	case from == nil && to == nil:
	case from == nil:
		p.settings = []preview.Setting{{Path: "the plane", To: "is new"}}
	case to == nil:
		p.settings = []preview.Setting{{Path: "the plane", From: "is there"}}
	default:
		var err error
		p.settings, err = preview.Settings(&from.Spec, &to.Spec)
		return err
	}
	return nil
}

// foresee fills in what would be rolled out.
func (p *planned) foresee(world *rollout.World, takes func(*rollout.Workload) time.Duration, spec *v1alpha1.RoutingPlaneSpec) (err error) {
	if p.forecast, err = forecast.Make(world, takes); err != nil {
		return err
	}
	if spec.Rollout.Paused {
		p.notes = append(p.notes, "the plane is paused: this is what happens once it is resumed")
	}
	if spec.Rollout.Pin != "" {
		p.notes = append(p.notes, fmt.Sprintf("the plane is pinned to %s: no policy takes effect until it is unpinned", spec.Rollout.Pin))
	}
	if analysis := spec.Rollout.Analysis; analysis != nil && p.forecast.Judged {
		p.notes = append(p.notes, "every wave is taken to be found good by its metrics: one that is not is withdrawn by one more rollout, and the plane is Stalled")
		if analysis.TooFewSamples == v1alpha1.TooFewSamplesHold {
			p.notes = append(p.notes, "the traffic is taken to be enough: a wave with fewer than spec.rollout.analysis.minSamples waits for more")
		}
	}
	for _, omitted := range p.forecast.Omitted {
		p.warnings = append(p.warnings, fmt.Sprintf("%s: %s is left out: it takes Stargate of generation %s", omitted.Place, omitted.Field, omitted.Since))
	}
	p.warnings = append(p.warnings, p.forecast.Warnings...)
	return nil
}

// newWarnings are those about objects of the plane that the files before did not have too.
func newWarnings(before, after *review.Result, key types.NamespacedName) (warnings []string) {
	known := sets.New[string]()
	for i := range before.Problems {
		known.Insert(sentence(&before.Problems[i]))
	}
	names := sets.New("RoutingPlane " + keyText(key))
	for _, site := range after.Sites {
		if site.Key == key {
			for _, policy := range site.Policies {
				names.Insert("RoutingPolicy " + keyText(client.ObjectKeyFromObject(policy.RoutingPolicy)))
			}
		}
	}
	for i := range after.Problems {
		if p := &after.Problems[i]; p.Severity != review.Note && names.Has(p.Object) && !known.Has(sentence(p)) {
			warnings = append(warnings, sentence(p))
		}
	}
	return warnings
}

// live plans from what runs to what the files say.
func (o *planOptions) live(ctx context.Context) ([]*planned, error) {
	c, namespace, err := o.cluster.connect()
	if err != nil {
		return nil, err
	}
	table, err := o.files.stargate.table()
	if err != nil {
		return nil, err
	}
	result, err := o.review(o.files.names, review.Options{Namespace: namespace, ErrorsOnly: true})
	if err != nil {
		return nil, err
	}
	l := &livePlan{planOptions: o, client: c, result: &result, table: table}
	keys, err := l.planes(ctx)
	if err != nil {
		return nil, err
	}
	var plans []*planned
	for _, key := range keys {
		plan, err := l.plan(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("plane %s: %w", key, err)
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

// livePlan is a plan in the making.
type livePlan struct {
	*planOptions
	client client.Client
	result *review.Result
	table  release.Table
}

// planes are those that the files speak of, and those that policies of the files are on now.
func (l *livePlan) planes(ctx context.Context) ([]types.NamespacedName, error) {
	keys := sets.New[types.NamespacedName]()
	for _, site := range l.result.Sites {
		keys.Insert(site.Key)
		for _, policy := range site.Policies {
			var live v1alpha1.RoutingPolicy
			switch err := l.client.Get(ctx, client.ObjectKeyFromObject(policy.RoutingPolicy), &live); {
			case err == nil:
				keys.Insert(history.PlaneOf(live.Namespace, &live.Spec))
			case !apierrors.IsNotFound(err):
				return nil, fmt.Errorf("reading policy %s/%s: %w", policy.Namespace, policy.Name, err)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(keys), compareKeys), nil
}

func (l *livePlan) plan(ctx context.Context, key types.NamespacedName) (*planned, error) {
	p := &planned{key: key}
	live := &v1alpha1.RoutingPlane{}
	if err := l.client.Get(ctx, key, live); apierrors.IsNotFound(err) {
		live = nil
	} else if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	var site *review.Site
	for _, s := range l.result.Sites {
		if s.Key == key {
			site = s
		}
	}
	wanted := live
	if site != nil && site.Plane != nil {
		wanted = site.Plane.RoutingPlane.DeepCopy()
		if live != nil {
			wanted.ObjectMeta, wanted.Status = live.ObjectMeta, live.Status
		}
	}
	if wanted == nil {
		p.notes = append(p.notes, "there is no such plane, and the files have none: the policies wait until there is one")
		return p, nil
	}
	now := l.clock.Now()
	seen, err := controllers.Observe(ctx, l.client, wanted, l.table, now)
	if err != nil {
		return nil, err
	}
	if l.files.stargate.version != "" {
		stated, err := l.table.Parse(l.files.stargate.version)
		if err != nil {
			return nil, fmt.Errorf("--stargate-version: %w", err)
		}
		seen.World.Stargate.Template.Release = stated
	}
	before := render.Config{}
	if live != nil {
		before = effective.Merge(own(live), seen.Policies).Config
		if err := l.doubt(ctx, p, live, before, now); err != nil {
			return nil, err
		}
	}
	policies, err := l.policies(ctx, wanted, site, seen.Policies, now)
	if err != nil {
		return nil, err
	}
	merged := effective.Merge(own(wanted), policies)
	if !merged.Fits() {
		return nil, fmt.Errorf("the largest lb-config.json that a rollout would need has %d bytes, and a ConfigMap can hold %d; take models out, or shorten seeds and request algorithms", merged.Size, merged.Limit)
	}
	p.warnings = append(p.warnings, mergeWarnings(&merged)...)
	if err := p.compare(live, wanted, before, merged.Config); err != nil {
		return nil, err
	}
	p.warnings = append(p.warnings, l.objectWarnings(site, seen.World.Stargate.Template.Release)...)
	seen.World.Config = merged.Config
	return p, p.foresee(&seen.World, forecast.ByHistory(&seen.World), &wanted.Spec)
}

// doubt warns where the plugin would roll out what is in effect already: it knows other releases than the operator does.
func (l *livePlan) doubt(ctx context.Context, p *planned, live *v1alpha1.RoutingPlane, config render.Config, now time.Time) error {
	snapshot := statusview.Snapshot{Plane: live, Partial: true}
	if outcome, _ := snapshot.Judge(); outcome != statusview.Ready || l.files.stargate.version != "" {
		return nil
	}
	seen, err := controllers.Observe(ctx, l.client, live, l.table, now)
	if err != nil {
		return err
	}
	seen.World.Config = config
	unchanged, err := forecast.Make(&seen.World, forecast.ByHistory(&seen.World))
	if err != nil {
		return err
	}
	if len(unchanged.Restarts()) > 0 {
		p.warnings = append(p.warnings, fmt.Sprintf("the plane is Ready, and by the releases that the plugin knows Stargate %s would get another file: this plan is not what the operator will do; "+
			"give --stargate-generations what the operator's manager has", seen.World.Stargate.Template.Release.Version))
	}
	return nil
}

// own is the plane's part of the configuration.
func own(plane *v1alpha1.RoutingPlane) render.Config {
	return render.Config{DefaultAlgorithm: plane.Spec.Stargate.DefaultAlgorithm, RequestAlgorithms: plane.Spec.Stargate.RequestAlgorithms}
}

// policies are the live ones with the changes of the files. What is new is younger than all.
func (l *livePlan) policies(ctx context.Context, plane *v1alpha1.RoutingPlane, site *review.Site, live []effective.Policy, now time.Time) ([]effective.Policy, error) {
	inFiles := map[types.NamespacedName]bool{}
	for i := range l.result.Policies {
		inFiles[client.ObjectKeyFromObject(l.result.Policies[i].RoutingPolicy)] = true
	}
	known := map[types.NamespacedName]effective.Policy{}
	var policies []effective.Policy
	for _, policy := range live {
		known[policy.NamespacedName] = policy
		if !inFiles[policy.NamespacedName] && !l.prune {
			policies = append(policies, policy)
		}
	}
	if site == nil {
		return policies, nil
	}
	for _, policy := range site.Policies {
		allowed, err := l.allows(ctx, plane, policy.Namespace)
		if err != nil {
			return nil, err
		}
		if !allowed {
			continue
		}
		merged, ok := known[client.ObjectKeyFromObject(policy.RoutingPolicy)]
		if !ok {
			merged = effective.Policy{NamespacedName: client.ObjectKeyFromObject(policy.RoutingPolicy), Created: now}
		} else {
			merged.Running = merged.Models
		}
		merged.Models = policy.Spec.Models
		policies = append(policies, merged)
	}
	return policies, nil
}

// allows asks for the labels of the namespace only where they decide.
func (l *livePlan) allows(ctx context.Context, plane *v1alpha1.RoutingPlane, name string) (bool, error) {
	namespace := &corev1.Namespace{}
	namespace.Name = name
	if plane.Spec.AllowedPolicies.Namespaces.From == v1alpha1.NamespacesFromSelector {
		if err := l.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
			return false, client.IgnoreNotFound(fmt.Errorf("reading namespace %s, whose labels decide whether the plane takes its policies: %w", name, err))
		}
	}
	return tenancy.Allows(plane, namespace)
}

// objectWarnings are what a second look at the objects in the files brings, for the release that runs.
func (l *livePlan) objectWarnings(site *review.Site, stargate release.Release) (warnings []string) {
	if site == nil {
		return nil
	}
	generations := validate.Only(stargate.Generation)
	if site.Plane != nil {
		for _, line := range validate.Lines(validate.WithoutNotes(validate.PlaneWarnings(&site.Plane.Spec, specPath, generations)), 0) {
			warnings = append(warnings, fmt.Sprintf("RoutingPlane %s: %s", site.Key, line))
		}
	}
	for _, policy := range site.Policies {
		for _, line := range validate.Lines(validate.WithoutNotes(validate.PolicyWarnings(&policy.Spec, specPath, generations)), 0) {
			warnings = append(warnings, fmt.Sprintf("RoutingPolicy %s/%s: %s", policy.Namespace, policy.Name, line))
		}
	}
	return warnings
}
