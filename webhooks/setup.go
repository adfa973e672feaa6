// Package webhooks answers admission reviews of RoutingPolicies and RoutingPlanes: the rules of internal/validate,
// and what can only be known from other objects and from who is asking.
package webhooks

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// maxWarnings of one answer; API servers cut what is longer than 4 KiB in all.
const maxWarnings = 16

// Options are what the administrator decides.
type Options struct {
	// Validate has the folders in which planes may have their configPath.
	Validate validate.Options
	// Generations of Stargate by release.
	Generations release.Table
}

// SetupWithManager registers the validators with the manager's webhook server. They read through its cache, which
// needs the indexes of internal/index.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, options Options) error {
	for _, read := range []client.Object{
		&v1alpha1.RoutingPlane{}, &v1alpha1.RoutingPolicy{}, &corev1.Namespace{}, &appsv1.Deployment{}, &appsv1.StatefulSet{},
	} {
		// Filled before the replica counts as ready, not by the first review.
		if _, err := mgr.GetCache().GetInformer(ctx, read, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("cache %T: %w", read, err)
		}
	}
	site := site{client: mgr.GetClient(), options: options}
	if err := ctrl.NewWebhookManagedBy(mgr, &v1alpha1.RoutingPolicy{}).WithValidator(&policyValidator{site}).Complete(); err != nil {
		return fmt.Errorf("register the validator of policies: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &v1alpha1.RoutingPlane{}).WithValidator(&planeValidator{site}).Complete(); err != nil {
		return fmt.Errorf("register the validator of planes: %w", err)
	}
	return nil
}

// site is what the validators look at beside the object under review.
type site struct {
	client  client.Client
	options Options
}

var specPath = field.NewPath("spec")

// answer is an error that carries every cause with its path to the client, or the warnings alone. Notes are left to the
// status: whoever applies an object that is right as it is sees nothing.
func answer(kind, name string, errs field.ErrorList, warnings []validate.Warning) (admission.Warnings, error) {
	lines := validate.Lines(validate.WithoutNotes(warnings), maxWarnings)
	if len(errs) == 0 {
		return lines, nil
	}
	return lines, apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(kind).GroupKind(), name, errs)
}

// ratchet splits errors into those that the change brought and, as warnings, those that the object had before:
// nobody who mends or labels one thing has to mend another. Name tells what a path means independently of the
// order of a list.
func ratchet(now, before field.ErrorList, nameNow, nameBefore func(string) string) (refused field.ErrorList, tolerated []validate.Warning) {
	had := func(err *field.Error) bool {
		return slices.ContainsFunc(before, func(b *field.Error) bool {
			return b.Type == err.Type && b.ErrorBody() == err.ErrorBody() && nameBefore(b.Field) == nameNow(err.Field)
		})
	}
	for _, err := range now {
		if !had(err) {
			refused = append(refused, err)
			continue
		}
		tolerated = append(tolerated, validate.Warning{
			Path:    field.NewPath(err.Field),
			Message: err.ErrorBody() + " (tolerated, since this change did not bring it; mend it, or the operator goes on with what it accepted last)",
		})
	}
	return refused, tolerated
}

// same is the name of paths that mean the same before and after.
func same(path string) string { return path }
