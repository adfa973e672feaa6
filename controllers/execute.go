package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	applyappsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/patch"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// Finalizer on planes: their workloads are to be unwound before they go.
const Finalizer = "routing.nvcf.io/unwind"

const planeKind = "RoutingPlane"

// errStale says that the API server is ahead of what was planned from; the next pass plans again.
var errStale = errors.New("the cluster has changed since it was observed")

// refusedError is a write that the API server will go on to refuse until a person changes something.
type refusedError struct {
	reason string
	err    error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// executor does the steps of one plan.
type executor struct {
	*PlaneReconciler
	seen *observation
	// verified: the workloads are still as they were planned from.
	verified bool
	// versions of revisions that this pass has written, by name.
	versions map[string]string
}

// execute does the steps in order up to the first that fails, and returns those that were done.
func (r *PlaneReconciler) execute(ctx context.Context, seen *observation, steps []rollout.Step) (done []rollout.Step, err error) {
	e := &executor{PlaneReconciler: r, seen: seen, versions: map[string]string{}}
	if seen.plane.DeletionTimestamp == nil && !seen.world.Plane.NamespaceTerminating && seen.manages() {
		if err := e.finalize(ctx, controllerutil.AddFinalizer); err != nil { // somebody took it, or the plane came from a backup
			return nil, err
		}
	}
	checked := false
	for i := range steps {
		var err error
		if !checked && steps[i].Kind != rollout.StepRecord { // a record is of one revision, and guarded by its version
			err = e.current(ctx)
			checked = true
		}
		if err == nil {
			err = e.step(ctx, &steps[i])
		}
		if err != nil {
			return steps[:i], classify(err, &steps[i])
		}
	}
	return steps, nil
}

func (e *executor) step(ctx context.Context, step *rollout.Step) error {
	switch step.Kind {
	case rollout.StepEnsureRevision:
		return e.ensureRevision(ctx, step)
	case rollout.StepApply:
		return e.apply(ctx, step)
	case rollout.StepLetGo:
		return e.letGo(ctx, step)
	case rollout.StepDisown:
		return e.disown(ctx, step)
	case rollout.StepRecord:
		return e.record(ctx, step)
	case rollout.StepDeletePod:
		return e.deletePod(ctx, step)
	case rollout.StepPreflight:
		return e.startPreflight(ctx, step)
	case rollout.StepDeletePreflight:
		return e.deletePreflight(ctx, step)
	case rollout.StepDeleteRevision:
		return e.deleteRevision(ctx, step.Revision)
	case rollout.StepRemoveFinalizer:
		return e.finalize(ctx, controllerutil.RemoveFinalizer)
	}
	return fmt.Errorf("unknown kind of step %q", step.Kind)
}

// classify tells what is to be planned again, what a person has to mend, and what may pass by itself.
func classify(err error, step *rollout.Step) error {
	var refused *refusedError
	if errors.Is(err, errStale) || errors.As(err, &refused) {
		return err
	}
	what := step.Revision
	if step.Workload != nil {
		what = step.Workload.Kind + " " + step.Workload.Name
	}
	err = fmt.Errorf("%s of %s: %w", step.Kind, what, err)
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return &refusedError{"FieldConflict", err}
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", errStale, err)
	case apierrors.IsInvalid(err):
		return &refusedError{"WriteInvalid", err}
	case apierrors.IsForbidden(err):
		return &refusedError{"WriteForbidden", err}
	}
	return err
}

// verify is current once more, right before the first change to a workload.
func (e *executor) verify(ctx context.Context) error {
	if e.verified {
		return nil
	}
	err := e.current(ctx)
	e.verified = err == nil
	return err
}

// current compares the plane and all of its workloads with the API server: a cache that lags could make two workloads roll
// at once, or take a file for gone that is still in use. The plane's status has the records, so that an operator which
// has lost the lead and does not know yet finds out here that another one went on. What happens to the changed workload
// after that is caught by the resourceVersion in the write.
func (e *executor) current(ctx context.Context) error {
	w := &e.seen.world
	plane := rollout.Workload{Kind: planeKind, Name: w.Plane.Name, Found: true, ResourceVersion: e.seen.plane.ResourceVersion}
	all := append([]rollout.Workload{plane, w.Stargate}, w.Gateways...)
	for _, observed := range append(all, w.Former...) {
		kind := appsv1.SchemeGroupVersion.WithKind(observed.Kind)
		if observed.Kind == planeKind {
			kind = v1alpha1.GroupVersion.WithKind(planeKind)
		}
		live, err := liveMetadata(ctx, e.Live, kind, types.NamespacedName{Namespace: w.Plane.Namespace, Name: observed.Name})
		if err != nil {
			return err
		}
		if observed.Found != (live != nil) || observed.Found && live.ResourceVersion != observed.ResourceVersion {
			return fmt.Errorf("%w: %s %s", errStale, observed.Kind, observed.Name)
		}
		if err := e.known(ctx, observed.Template.Revision); err != nil {
			return err
		}
	}
	return nil
}

// known asks the API server for a revision in a template that the cache does not have: it may be gone, or so new that the
// cache is yet to have it. To plan without its flags would be to take them back.
func (e *executor) known(ctx context.Context, revision string) error {
	if _, ok := e.seen.world.Revisions[revision]; ok || revision == "" {
		return nil
	}
	live, err := liveMetadata(ctx, e.Live, corev1.SchemeGroupVersion.WithKind("ConfigMap"), types.NamespacedName{Namespace: e.seen.plane.Namespace, Name: revision})
	if err != nil {
		return err
	}
	if live != nil && labels.SelectorFromSet(revisionLabels(e.seen.plane.Name)).Matches(labels.Set(live.Labels)) {
		return fmt.Errorf("%w: revision %s", errStale, revision)
	}
	return nil
}

// liveMetadata reads the metadata that the API server has of an object, nil where there is none, before something is done
// that the caches speak for.
func liveMetadata(ctx context.Context, server client.Reader, kind schema.GroupVersionKind, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(kind)
	if err := server.Get(ctx, key, live); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading %s %s before a change: %w", kind.Kind, key.Name, err)
	}
	return live, nil
}

func (e *executor) target(w *rollout.Workload) patch.Target {
	return patch.Target{Kind: w.Kind, Namespace: e.seen.plane.Namespace, Name: w.Name, ResourceVersion: w.ResourceVersion}
}

func (e *executor) fields(step *rollout.Step) patch.Fields {
	return patch.Fields{
		Plane: e.seen.plane.Name, Artefact: step.Artefact, Revision: step.Revision,
		Container: step.Workload.Container, ConfigPath: e.seen.world.Plane.ConfigPath,
	}
}

func (e *executor) apply(ctx context.Context, step *rollout.Step) error {
	if err := e.verify(ctx); err != nil {
		return err
	}
	if err := e.finalize(ctx, controllerutil.AddFinalizer); err != nil {
		return err
	}
	target, site, fields := e.target(step.Workload), e.seen.sites[step.Workload.Key()], e.fields(step)
	if step.Force && patch.NeedsMending(site.spec, fields) {
		return e.mend(ctx, target, fields)
	}
	if site.updated {
		if err := e.own(ctx, &target); err != nil {
			return err
		}
	}
	config, err := patch.Apply(target, fields)
	if err != nil {
		return err
	}
	options := []client.ApplyOption{client.FieldOwner(workload.FieldManager)}
	if step.Force {
		options = append(options, client.ForceOwnership)
	}
	return e.Apply(ctx, config, options...)
}

// mend takes entries back whole, by one change of the template, and then owns them as if they had been applied.
func (e *executor) mend(ctx context.Context, target patch.Target, fields patch.Fields) error {
	object, template, err := e.stored(ctx, target)
	if err != nil {
		return err
	}
	before := object.DeepCopyObject().(client.Object)
	patch.Mend(template, fields)
	object.SetAnnotations(withAnnotation(object.GetAnnotations(), workload.AnnotationPlane, fields.Plane))
	change := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := e.Patch(ctx, object, change, client.FieldOwner(workload.FieldManager)); err != nil {
		return err
	}
	// The workload's controller writes its status meanwhile, and moving does not depend on it.
	err = retry.RetryOnConflict(wait.Backoff{Steps: 15, Duration: 20 * time.Millisecond}, func() error {
		object, _, err := e.whole(ctx, target)
		if err != nil {
			return err
		}
		return e.move(ctx, object)
	})
	if apierrors.IsConflict(err) {
		return nil // the entries are taken back; the next apply moves them first
	}
	return err
}

func withAnnotation(annotations map[string]string, key, value string) map[string]string {
	changed := maps.Clone(annotations)
	if changed == nil {
		changed = map[string]string{}
	}
	changed[key] = value
	return changed
}

// whole reads the workload as the cache does not have it.
func (e *executor) whole(ctx context.Context, target patch.Target) (client.Object, *corev1.PodTemplateSpec, error) {
	object, template, err := newWorkload(target)
	if err != nil {
		return nil, nil, err
	}
	if err := e.Live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return nil, nil, fmt.Errorf("reading the workload: %w", err)
	}
	return object, template, nil
}

// stored is whole for a workload that is still the version that was planned from.
func (e *executor) stored(ctx context.Context, target patch.Target) (client.Object, *corev1.PodTemplateSpec, error) {
	object, template, err := e.whole(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	if object.GetResourceVersion() != target.ResourceVersion {
		return nil, nil, errStale
	}
	return object, template, nil
}

// own moves fields that an earlier pass patched and did not get to move.
func (e *executor) own(ctx context.Context, target *patch.Target) error {
	object, _, err := e.stored(ctx, *target)
	if err != nil {
		return err
	}
	err = e.move(ctx, object)
	target.ResourceVersion = object.GetResourceVersion()
	return err
}

// move makes of fields that the operator patched fields that it applied, so that later applies update them and let
// them go.
func (e *executor) move(ctx context.Context, object client.Object) error {
	data, err := csaupgrade.UpgradeManagedFieldsPatch(object, sets.New(workload.FieldManager), workload.FieldManager)
	if err != nil || data == nil {
		return err
	}
	if err := e.Patch(ctx, object, client.RawPatch(types.JSONPatchType, data), client.FieldOwner(workload.FieldManager)); err != nil {
		return fmt.Errorf("moving managed fields: %w", err)
	}
	return nil
}

func newWorkload(target patch.Target) (client.Object, *corev1.PodTemplateSpec, error) {
	meta := metav1.ObjectMeta{Namespace: target.Namespace, Name: target.Name}
	switch target.Kind {
	case v1alpha1.KindDeployment:
		d := &appsv1.Deployment{ObjectMeta: meta}
		return d, &d.Spec.Template, nil
	case v1alpha1.KindStatefulSet:
		s := &appsv1.StatefulSet{ObjectMeta: meta}
		return s, &s.Spec.Template, nil
	}
	return nil, nil, fmt.Errorf("kind %q is neither Deployment nor StatefulSet", target.Kind)
}

// letGo gives up the fields in the template and, once that is rolled out, the annotation: a workload without it is out
// of sight, and another one could be rolled beside it.
func (e *executor) letGo(ctx context.Context, step *rollout.Step) error {
	if err := e.verify(ctx); err != nil {
		return err
	}
	target := e.target(step.Workload)
	if e.seen.sites[step.Workload.Key()].updated {
		if err := e.own(ctx, &target); err != nil {
			return err
		}
	}
	plane := ""
	if step.Workload.Template.Touched {
		plane = e.seen.plane.Name
	}
	config, err := patch.LetGo(target, plane)
	if err != nil {
		return err
	}
	if err := e.Apply(ctx, config, client.FieldOwner(workload.FieldManager)); err != nil {
		return err
	}
	// After a restore from a backup the annotation may belong to whoever restored it; it is the operator's all the same.
	if version, stays := annotated(config, e.seen.plane.Name); stays && plane == "" {
		target.ResourceVersion = version
		return e.unannotate(ctx, target)
	}
	return nil
}

// disown has the workload name the plane no longer, and leaves what is in its template.
func (e *executor) disown(ctx context.Context, step *rollout.Step) error {
	if err := e.verify(ctx); err != nil {
		return err
	}
	return e.unannotate(ctx, e.target(step.Workload))
}

// unannotate takes the annotation off the workload, whoever owns it.
func (e *executor) unannotate(ctx context.Context, target patch.Target) error {
	object, _, err := newWorkload(target)
	if err != nil {
		return err
	}
	data := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{%q:null}}}`, target.ResourceVersion, workload.AnnotationPlane)
	return e.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(data)), client.FieldOwner(workload.FieldManager))
}

// annotated tells whether the workload that an apply returned still names the plane.
func annotated(applied runtime.ApplyConfiguration, plane string) (version string, stays bool) {
	switch o := applied.(type) {
	case *applyappsv1.DeploymentApplyConfiguration:
		return ptr.Deref(o.ResourceVersion, ""), o.Annotations[workload.AnnotationPlane] == plane
	case *applyappsv1.StatefulSetApplyConfiguration:
		return ptr.Deref(o.ResourceVersion, ""), o.Annotations[workload.AnnotationPlane] == plane
	}
	return "", false
}

// ensureRevision makes the revision, or writes onto it that the workload is about to get it.
func (e *executor) ensureRevision(ctx context.Context, step *rollout.Step) error {
	existing, exists := e.seen.world.Revisions[step.Revision]
	switch {
	case exists && existing.Deleting:
		return fmt.Errorf("%w: revision %s is being deleted", errStale, step.Revision)
	case exists && existing.Intact:
		return e.annotate(ctx, step.Revision, withRecord(existing.Records, step), map[string]string{annotationWave: strconv.Itoa(step.Wave)})
	case exists:
		if err := e.deleteRevision(ctx, step.Revision); err != nil {
			return fmt.Errorf("deleting the damaged revision: %w", err)
		}
	}
	cm, err := newRevision(e.seen.plane.Namespace, e.seen.plane.Name, step)
	if err != nil {
		return err
	}
	err = e.Create(ctx, cm.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return e.takeOver(ctx, cm)
}

// takeOver accepts a ConfigMap of the revision's name that the cache does not have since it lost its labels. One that has
// them is in the cache soon, with records that are to be kept.
func (e *executor) takeOver(ctx context.Context, wanted *corev1.ConfigMap) error {
	var live corev1.ConfigMap
	if err := e.Live.Get(ctx, client.ObjectKeyFromObject(wanted), &live); err != nil {
		return err
	}
	if !readContent(e.seen.plane.Name, &corev1.ConfigMap{ObjectMeta: wanted.ObjectMeta, Data: live.Data, Immutable: live.Immutable}).intact {
		return &refusedError{"RevisionOccupied", fmt.Errorf(
			"ConfigMap %s, which a revision of the plane needs, exists with other content and without the operator's labels; delete it: kubectl delete configmap %s -n %s",
			live.Name, live.Name, live.Namespace)}
	}
	if labels.SelectorFromSet(wanted.Labels).Matches(labels.Set(live.Labels)) {
		return fmt.Errorf("%w: revision %s", errStale, live.Name)
	}
	updated := live.DeepCopy()
	updated.Labels, updated.Annotations = wanted.Labels, wanted.Annotations
	return e.Patch(ctx, updated, client.MergeFromWithOptions(&live, client.MergeFromWithOptimisticLock{}), client.FieldOwner(workload.FieldManager))
}

// record writes onto the revision what became of the workload on it.
func (e *executor) record(ctx context.Context, step *rollout.Step) error {
	return e.annotate(ctx, step.Revision, withRecord(e.seen.world.Revisions[step.Revision].Records, step), nil)
}

// annotate sets the records and further annotations of a revision, if it is still the one that was observed.
func (e *executor) annotate(ctx context.Context, name string, records map[string]rollout.Record, annotations map[string]string) error {
	text, err := rollout.EncodeRecords(records)
	if err != nil {
		return err
	}
	observed := e.seen.world.Revisions[name]
	before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.seen.plane.Namespace, Name: name, ResourceVersion: observed.ResourceVersion,
	}}
	if version, ok := e.versions[name]; ok {
		before.ResourceVersion = version
	}
	after := before.DeepCopy()
	after.Annotations = map[string]string{annotationRecords: text}
	maps.Copy(after.Annotations, annotations)
	err = e.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(workload.FieldManager))
	if err != nil {
		return err
	}
	// A later step of the pass may write on: another workload's record, of a revision that they share.
	e.versions[name] = after.ResourceVersion
	observed.Records = records
	e.seen.world.Revisions[name] = observed
	return nil
}

func (e *executor) deleteRevision(ctx context.Context, name string) error {
	observed := e.seen.world.Revisions[name]
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.seen.plane.Namespace, Name: name}}
	return client.IgnoreNotFound(e.Delete(ctx, cm, preconditions(observed.UID, observed.ResourceVersion)))
}

func (e *executor) deletePod(ctx context.Context, step *rollout.Step) error {
	if err := e.verify(ctx); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.seen.plane.Namespace, Name: step.Pod.Name}}
	return client.IgnoreNotFound(e.Delete(ctx, pod, preconditions(step.Pod.UID, step.Pod.ResourceVersion)))
}

func preconditions(uid, version string) client.Preconditions {
	return client.Preconditions{UID: new(types.UID(uid)), ResourceVersion: &version}
}

// finalize adds the finalizer before the first change to a workload, and removes it after the last: a plane that
// has touched nothing holds nothing up.
func (e *executor) finalize(ctx context.Context, change func(o client.Object, finalizer string) bool) error {
	plane := e.seen.plane
	before := plane.DeepCopy()
	if !change(plane, Finalizer) {
		return nil
	}
	err := e.Patch(ctx, plane, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(workload.FieldManager))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // a plane that is gone must not be given anything
		return fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return fmt.Errorf("changing the plane's finalizers: %w", err)
	}
	return nil
}
