package webhooks

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// resources of the kinds that a plane may name.
var resources = map[string]string{
	v1alpha1.KindDeployment:  "deployments",
	v1alpha1.KindStatefulSet: "statefulsets",
}

// authorize asks the API server whether the author of the request may patch the workloads that the plane names
// and did not name in the same way before. Without that a right to write planes would be one to restart anything
// in the namespace and to mount over its files.
func (v *planeValidator) authorize(ctx context.Context, old, plane *v1alpha1.RoutingPlane) (field.ErrorList, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("find out who wrote the plane: %w", err)
	}
	var errs field.ErrorList
	for _, reference := range references(plane) {
		resource, ok := resources[reference.workload.Kind]
		if !ok || old != nil && slices.ContainsFunc(references(old), reference.asks) {
			continue
		}
		review := &authorizationv1.SubjectAccessReview{Spec: subject(request.UserInfo)}
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: "patch", Group: "apps", Version: "v1", Resource: resource, Namespace: plane.Namespace, Name: reference.workload.Name,
		}
		// A review is answered and stored nowhere, so no cache will ever have seen it.
		if err := v.client.Create(ctx, review, client.DisableReadYourWritesConsistency); err != nil {
			return nil, fmt.Errorf("review the access of user %q to %s.apps %s/%s: %w", request.UserInfo.Username, resource, plane.Namespace, reference.workload.Name, err)
		}
		if !review.Status.Allowed {
			errs = append(errs, field.Forbidden(reference.at.Child("workloadRef"), fmt.Sprintf(
				"user %q may not patch %s.apps %q in namespace %q, which the operator would do for the plane; get that right from an administrator, or name a workload that you may patch",
				request.UserInfo.Username, resource, reference.workload.Name, plane.Namespace)))
		}
	}
	return errs, nil
}

// asks tells whether another reference lets the operator do the same to the same workload.
func (r reference) asks(other reference) bool {
	return r.workload == other.workload && r.container == other.container && r.configPath == other.configPath
}

func subject(user authenticationv1.UserInfo) authorizationv1.SubjectAccessReviewSpec {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	return authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra}
}
