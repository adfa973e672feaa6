package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// observation is what one pass has seen.
type observation struct {
	plane *v1alpha1.RoutingPlane
	world rollout.World
	// sites are what execution has to know of each workload beside the world, by the workload's key.
	sites  map[string]site
	merged merged
	// unknown are policies that are to be looked at first.
	unknown []types.NamespacedName
	memory  *memory
}

// manages tells whether the plane has anything in a workload that it would have to take back.
func (o *observation) manages() bool {
	return o.world.Stargate.Managed || slices.ContainsFunc(o.world.Gateways, func(g rollout.Workload) bool { return g.Managed })
}

// site is a workload's template as it is stored, and what the operator sets in it.
type site struct {
	artefact string
	spec     *corev1.PodSpec
	// updated: the operator owns fields by a patch, from before it could apply.
	updated bool
	// noPreflight says why no preflight pod can be made of the template.
	noPreflight string
}

// gatherer collects an observation.
type gatherer struct {
	*PlaneReconciler
	ctx    context.Context
	plane  *v1alpha1.RoutingPlane
	memory *memory
	seen   *observation

	// foreign are ConfigMaps of charts that were read live in this pass, and err is the first that could not be.
	foreign map[string]*corev1.ConfigMap
	err     error
	// named are the revisions that ReplicaSets and ControllerRevisions name.
	named sets.Set[string]
}

func (r *PlaneReconciler) gather(ctx context.Context, plane *v1alpha1.RoutingPlane, m *memory, now time.Time) (*observation, error) {
	g := &gatherer{
		PlaneReconciler: r, ctx: ctx, plane: plane, memory: m,
		seen:    &observation{plane: plane, sites: map[string]site{}, memory: m},
		foreign: map[string]*corev1.ConfigMap{},
		named:   sets.New[string](),
	}
	w := &g.seen.world
	w.Now = now
	w.Plane = rollout.Settings(plane)
	for _, collect := range []func() error{g.namespace, g.revisions, g.configuration, g.workloads, g.analysis} {
		if err := collect(); err != nil {
			return nil, err
		}
	}
	if g.err != nil {
		return nil, g.err
	}
	for name := range g.named {
		if revision, ok := w.Revisions[name]; ok {
			revision.Referenced = true
			w.Revisions[name] = revision
		}
	}
	return g.seen, nil
}

func (g *gatherer) namespace() error {
	var namespace corev1.Namespace
	if err := g.Get(g.ctx, types.NamespacedName{Name: g.plane.Namespace}, &namespace); err != nil {
		return fmt.Errorf("reading namespace %s: %w", g.plane.Namespace, err)
	}
	g.seen.world.Plane.NamespaceTerminating = namespace.DeletionTimestamp != nil
	return nil
}

// configuration merges the accepted specs and notes whether that changed anything.
func (g *gatherer) configuration() error {
	policies, err := g.acceptedPolicies()
	if err != nil {
		return err
	}
	if g.seen.unknown, err = g.unlookedAt(policies); err != nil {
		return err
	}
	w := &g.seen.world
	g.seen.merged = g.merge(policies)
	w.Config, w.Owners = g.seen.merged.Config, g.seen.merged.Owners
	everything, err := render.LBConfig(w.Config, render.Desired(w.Config), release.Newest)
	if err != nil {
		return fmt.Errorf("rendering the effective configuration: %w", err)
	}
	isNew := g.plane.Status.ObservedGeneration <= 0
	g.memory.quiet.observe(shortHash(string(everything.Data)), w.Now, isNew, w.Plane.QuietPeriod)
	w.ConfigChanged, w.ConfigChanging, w.Appeared = g.memory.quiet.changed, g.memory.quiet.changing, g.memory.quiet.appeared
	return nil
}

// revisions reads the plane's revisions.
func (g *gatherer) revisions() error {
	var list corev1.ConfigMapList
	if err := g.List(g.ctx, &list, client.InNamespace(g.plane.Namespace), client.MatchingLabels(revisionLabels(g.plane.Name))); err != nil {
		return fmt.Errorf("listing revisions: %w", err)
	}
	g.seen.world.Revisions = make(map[string]rollout.Revision, len(list.Items))
	live := sets.New[types.UID]()
	for i := range list.Items {
		cm := &list.Items[i]
		live.Insert(cm.UID)
		g.seen.world.Revisions[cm.Name] = observeRevision(cm, g.memory.content(g.plane.Name, cm))
	}
	forgetAllBut(g.memory.contents, live)
	return nil
}

func (g *gatherer) workloads() error {
	spec, w := &g.plane.Spec, &g.seen.world
	pods := sets.New[types.UID]()
	var err error
	if w.Stargate, err = g.workload(spec.Stargate.WorkloadRef, g.stargateRole(), pods); err != nil {
		return err
	}
	for i := range spec.Gateways {
		gateway := &spec.Gateways[i]
		observed, err := g.workload(gateway.WorkloadRef, g.gatewayRole(gateway), pods)
		if err != nil {
			return err
		}
		w.Gateways = append(w.Gateways, observed)
	}
	if err := g.former(pods); err != nil {
		return err
	}
	if err := g.preflights(pods); err != nil {
		return err
	}
	g.memory.loaded = g.memory.loaded.Intersection(pods)
	forgetAllBut(g.memory.logs, pods)
	return nil
}

func (g *gatherer) stargateRole() role {
	spec := &g.plane.Spec.Stargate
	return role{artefact: render.ArtefactStargate, container: spec.Container, release: func(image string) release.Release {
		return g.Releases.OfImage(image, spec.Releases)
	}}
}

func (g *gatherer) gatewayRole(gateway *v1alpha1.GatewaySpec) role {
	return role{artefact: render.ArtefactGateway, container: gateway.Container, release: func(image string) release.Release {
		return gatewayRelease(g.Releases, image, gateway.Releases)
	}}
}

// gatewayRelease: a gateway's releases are counted in its own way, so that its tag names its release and tells
// nothing of its generation. That takes a statement.
func gatewayRelease(table release.Table, image string, stated []v1alpha1.ReleaseOverride) release.Release {
	found := table.OfImage(image, stated)
	if !slices.ContainsFunc(stated, func(s v1alpha1.ReleaseOverride) bool { return s.Image == image }) {
		found.Generation = release.Unknown
	}
	return found
}

// former finds the workloads that carry the plane's annotation and are not in its spec.
func (g *gatherer) former(pods sets.Set[types.UID]) error {
	named := sets.New(g.seen.world.Stargate.Key())
	for i := range g.seen.world.Gateways {
		named.Insert(g.seen.world.Gateways[i].Key())
	}
	specs, err := workloadsNaming(g.ctx, g, g.plane)
	if err != nil {
		return err
	}
	for ref, spec := range specs {
		if named.Has(workloadKey(ref)) {
			continue
		}
		former, err := g.workload(ref, g.formerRole(spec), pods)
		if err != nil {
			return err
		}
		g.seen.world.Former = append(g.seen.world.Former, former)
	}
	slices.SortFunc(g.seen.world.Former, func(a, b rollout.Workload) int { return strings.Compare(a.Key(), b.Key()) })
	return nil
}

// workloadsNaming are the pod specs of the workloads whose annotation names the plane.
func workloadsNaming(ctx context.Context, c client.Reader, plane *v1alpha1.RoutingPlane) (map[v1alpha1.WorkloadReference]*corev1.PodSpec, error) {
	named := []client.ListOption{client.InNamespace(plane.Namespace), client.MatchingFields{indexManaged: plane.Name}}
	var deployments appsv1.DeploymentList
	if err := c.List(ctx, &deployments, named...); err != nil {
		return nil, fmt.Errorf("listing the Deployments of the plane: %w", err)
	}
	var statefulSets appsv1.StatefulSetList
	if err := c.List(ctx, &statefulSets, named...); err != nil {
		return nil, fmt.Errorf("listing the StatefulSets of the plane: %w", err)
	}
	specs := map[v1alpha1.WorkloadReference]*corev1.PodSpec{}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		specs[v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: d.Name}] = &d.Spec.Template.Spec
	}
	for i := range statefulSets.Items {
		s := &statefulSets.Items[i]
		specs[v1alpha1.WorkloadReference{Kind: v1alpha1.KindStatefulSet, Name: s.Name}] = &s.Spec.Template.Spec
	}
	return specs, nil
}

// formerRole tells by the operator's fields what a workload was to the plane.
func (g *gatherer) formerRole(spec *corev1.PodSpec) role {
	unknown := func(image string) release.Release { return g.Releases.OfImage(image, nil) }
	found := role{artefact: render.ArtefactGateway, release: unknown}
	for i := range spec.Containers {
		for _, artefact := range []string{render.ArtefactStargate, render.ArtefactGateway} {
			candidate := role{artefact: artefact, container: spec.Containers[i].Name, release: unknown}
			if reader := g.reader(candidate); reader.Template(spec).Touched {
				return candidate
			}
		}
		found.container = spec.Containers[i].Name
	}
	return found
}

// role is what a workload is to the plane.
type role struct {
	artefact, container string
	release             func(image string) release.Release
}

func (g *gatherer) reader(r role) *workload.Reader {
	settings := &g.seen.world.Plane
	return &workload.Reader{
		Plane: settings.Name, Artefact: r.artefact, Container: r.container,
		ConfigPath: settings.ConfigPath, ConfigPathCheck: settings.ConfigPathCheck,
		Release: r.release, Lookup: g.lookup,
	}
}

// lookup reads a ConfigMap: a revision, which is immutable, from the cache, a chart's live, once per pass.
func (g *gatherer) lookup(name string) *corev1.ConfigMap {
	if revision, ok := g.seen.world.Revisions[name]; ok {
		return &corev1.ConfigMap{Data: revision.Data}
	}
	if cm, ok := g.foreign[name]; ok {
		return cm
	}
	cm := &corev1.ConfigMap{}
	switch err := g.Live.Get(g.ctx, types.NamespacedName{Namespace: g.plane.Namespace, Name: name}, cm); {
	case apierrors.IsNotFound(err):
		cm = nil
	case err != nil:
		if g.err == nil {
			g.err = fmt.Errorf("reading ConfigMap %s, which a pod template of the plane names: %w", name, err)
		}
		return nil
	}
	g.foreign[name] = cm
	return cm
}

// workload observes a workload with everything that its controller made of it.
func (g *gatherer) workload(ref v1alpha1.WorkloadReference, r role, seenPods sets.Set[types.UID]) (rollout.Workload, error) {
	observed := rollout.Workload{Kind: ref.Kind, Name: ref.Name}
	var err error
	var children children
	var object client.Object
	var template *corev1.PodTemplateSpec
	var state workload.State
	key := types.NamespacedName{Namespace: g.plane.Namespace, Name: ref.Name}
	switch ref.Kind {
	case v1alpha1.KindDeployment:
		var d appsv1.Deployment
		err = g.Get(g.ctx, key, &d)
		object, template, state = &d, &d.Spec.Template, workload.DeploymentState(&d)
		if err == nil {
			children, err = g.replicaSets(&d)
		}
	case v1alpha1.KindStatefulSet:
		var s appsv1.StatefulSet
		err = g.Get(g.ctx, key, &s)
		object, template, state = &s, &s.Spec.Template, workload.StatefulSetState(&s)
		if err == nil {
			children, err = g.controllerRevisions(&s)
		}
	default:
		observed.Problem = fmt.Sprintf("kind %q is neither Deployment nor StatefulSet", ref.Kind)
		return observed, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return observed, fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
	}
	reader := g.reader(r)
	if err == nil {
		observed.Found = true
		if reader.Container, observed.Problem = workload.ResolveContainer(&template.Spec, r.container); observed.Problem == "" {
			observed.Problem = reader.Problem(&template.Spec)
		}
		if err := g.describe(&observed, object, template, state, reader); err != nil {
			return observed, err
		}
	}
	for i := range children.templates {
		other := reader.Template(&children.templates[i].Spec)
		if children.inUse[i] {
			observed.OtherTemplates = append(observed.OtherTemplates, other)
		}
		if other.Revision != "" {
			g.named.Insert(other.Revision)
		}
	}
	return observed, g.pods(&observed, children, reader, seenPods)
}

// describe fills in what the workload itself says.
func (g *gatherer) describe(observed *rollout.Workload, object client.Object, template *corev1.PodTemplateSpec, state workload.State, reader *workload.Reader) error {
	observed.Deleting = object.GetDeletionTimestamp() != nil
	observed.UID, observed.ResourceVersion = string(object.GetUID()), object.GetResourceVersion()
	observed.Created = object.GetCreationTimestamp().Time
	observed.Container = reader.Container
	state.Fill(observed)
	observed.Template = reader.Template(&template.Spec)
	observed.Template.Foreign = hashesOf(object, template).Foreign

	switch plane, ok := object.GetAnnotations()[workload.AnnotationPlane]; {
	case !ok:
	case plane == g.plane.Name:
		observed.Managed = true
	default:
		other := types.NamespacedName{Namespace: g.plane.Namespace, Name: plane}
		err := g.Get(g.ctx, other, &v1alpha1.RoutingPlane{})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading plane %s, which the annotation of %s names: %w", other, observed.Key(), err)
		}
		if err == nil {
			observed.OtherPlane = other.String()
		}
	}

	owners, err := reader.OwnershipOf(object.GetManagedFields(), &template.Spec)
	if err != nil {
		return fmt.Errorf("%s: %w", observed.Key(), err)
	}
	observed.Rivals, observed.Sharers = owners.Rivals, owners.Sharers
	taken := g.memory.taken[observed.Key()]
	observed.Given = g.memory.given[observed.Key()]
	observed.Taken, observed.TakenBack, observed.TakenRetry = taken.times, taken.last, taken.retry
	g.seen.sites[observed.Key()] = site{
		artefact: reader.Artefact, spec: &template.Spec, updated: owners.Updated,
		noPreflight: workload.PreflightProblem(&metav1.ObjectMeta{Annotations: object.GetAnnotations()}, template, volumeClaims(object)),
	}
	return nil
}

func volumeClaims(object client.Object) []corev1.PersistentVolumeClaim {
	if set, ok := object.(*appsv1.StatefulSet); ok {
		return set.Spec.VolumeClaimTemplates
	}
	return nil
}

func hashesOf(object client.Object, template *corev1.PodTemplateSpec) workload.Hashes {
	return workload.HashesOf(&metav1.ObjectMeta{Annotations: object.GetAnnotations()}, template)
}

// children are what a workload's controller made: ReplicaSets or ControllerRevisions.
type children struct {
	templates []*corev1.PodTemplateSpec
	// inUse tells of each template whether pods are made from it.
	inUse []bool
	// owners of the workload's pods.
	owners sets.Set[types.UID]
	// updated tells whether a pod is of the present template.
	updated func(pod *corev1.Pod) bool
}

func (g *gatherer) replicaSets(d *appsv1.Deployment) (children, error) {
	var list appsv1.ReplicaSetList
	if err := g.List(g.ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{indexOwner: string(d.UID)}); err != nil {
		return children{}, fmt.Errorf("listing the ReplicaSets of Deployment %s: %w", d.Name, err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ReplicaSet) int { return strings.Compare(a.Name, b.Name) })
	present := hashesOf(d, &d.Spec.Template).Whole
	c := children{owners: sets.New[types.UID]()}
	current := sets.New[types.UID]()
	for i := range list.Items {
		rs := &list.Items[i]
		c.owners.Insert(rs.UID)
		if hashesOf(rs, &rs.Spec.Template).Whole == present {
			current.Insert(rs.UID)
			continue
		}
		c.templates = append(c.templates, &rs.Spec.Template)
		c.inUse = append(c.inUse, workload.InUse(rs))
	}
	c.updated = func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOfNoCopy(pod)
		return owner != nil && current.Has(owner.UID)
	}
	return c, nil
}

func (g *gatherer) controllerRevisions(s *appsv1.StatefulSet) (children, error) {
	var list appsv1.ControllerRevisionList
	if err := g.List(g.ctx, &list, client.InNamespace(s.Namespace), client.MatchingFields{indexOwner: string(s.UID)}); err != nil {
		return children{}, fmt.Errorf("listing the ControllerRevisions of StatefulSet %s: %w", s.Name, err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return strings.Compare(a.Name, b.Name) })
	present := hashesOf(s, &s.Spec.Template).Whole
	c := children{owners: sets.New(s.UID)}
	current := s.Status.UpdateRevision
	observed := s.Status.ObservedGeneration >= s.Generation
	if !observed {
		current = ""
	}
	for i := range list.Items {
		revision := &list.Items[i]
		template, err := workload.TemplateOf(revision)
		if err != nil {
			return children{}, err
		}
		// A change that its controller has not seen yet may be one of the replicas only.
		if !observed && hashesOf(revision, template).Whole == present {
			current = revision.Name
		}
		c.templates = append(c.templates, template)
		// Pods below the partition, and those that die before their turn, are made from the current revision.
		c.inUse = append(c.inUse, revision.Name == s.Status.CurrentRevision && revision.Name != s.Status.UpdateRevision)
	}
	c.updated = func(pod *corev1.Pod) bool {
		return current != "" && pod.Labels[appsv1.ControllerRevisionHashLabelKey] == current
	}
	return c, nil
}

// pods observes the pods that the workload owns, and those that one of its name made before it was deleted.
func (g *gatherer) pods(observed *rollout.Workload, c children, reader *workload.Reader, seenPods sets.Set[types.UID]) error {
	found := map[types.UID]*corev1.Pod{}
	collect := func(key string, wanted func(owner *metav1.OwnerReference) (bool, error)) error {
		var list corev1.PodList
		if err := g.List(g.ctx, &list, client.InNamespace(g.plane.Namespace), client.MatchingFields{indexOwner: key}); err != nil {
			return fmt.Errorf("listing the pods of %s: %w", observed.Key(), err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			ok, err := wanted(metav1.GetControllerOfNoCopy(pod))
			if err != nil {
				return err
			}
			if ok && workload.Active(pod) {
				found[pod.UID] = pod
			}
		}
		return nil
	}
	for _, owner := range sets.List(c.owners) {
		if err := collect(string(owner), func(*metav1.OwnerReference) (bool, error) { return true, nil }); err != nil {
			return err
		}
	}
	if err := collect(observed.Key(), g.ownerIsGone); err != nil {
		return err
	}
	for uid, pod := range found {
		updated := c.updated != nil && c.updated(pod)
		observedPod := reader.Pod(pod, updated)
		seenPods.Insert(uid)
		g.lastWords(&observedPod, pod)
		observed.Pods = append(observed.Pods, observedPod)
	}
	slices.SortFunc(observed.Pods, func(a, b rollout.Pod) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// ownerIsGone tells whether the owner no longer exists, so that it cannot be said to belong to another workload.
func (g *gatherer) ownerIsGone(owner *metav1.OwnerReference) (bool, error) {
	var object client.Object = &appsv1.ReplicaSet{}
	if owner.Kind == v1alpha1.KindStatefulSet {
		object = &appsv1.StatefulSet{}
	}
	err := g.Get(g.ctx, types.NamespacedName{Namespace: g.plane.Namespace, Name: owner.Name}, object)
	if err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return object.GetUID() != owner.UID, nil
}

// lastWords adds what a container logged last to an exit without a message, once for each pod.
func (g *gatherer) lastWords(observed *rollout.Pod, pod *corev1.Pod) {
	if observed.Crash == nil || observed.Crash.Message != "" || observed.Revision == "" {
		return
	}
	words, known := g.memory.logs[pod.UID]
	if !known {
		var err error
		if words, err = g.Logs.Last(g.ctx, pod, observed.Crash.Container); err != nil {
			ctrl.LoggerFrom(g.ctx).V(1).Info("Cannot read the log of a container that exited", "pod", pod.Name, "reason", err.Error())
			return
		}
		g.memory.logs[pod.UID] = words
	}
	observed.Crash.Message = words
}

func forgetAllBut[T any](known map[types.UID]T, live sets.Set[types.UID]) {
	for uid := range known {
		if !live.Has(uid) {
			delete(known, uid)
		}
	}
}
