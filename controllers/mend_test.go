package controllers

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/patch"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/workload"
)

func TestWhatIsTakenBackIsOwnedAlsoWhereTheWorkloadsStatusKeepsChanging(t *testing.T) {
	for name, test := range map[string]struct {
		// changes of the status, one before each attempt to own.
		changes int
		owned   metav1.ManagedFieldsOperationType
	}{
		"it stays":         {0, metav1.ManagedFieldsOperationApply},
		"it changes":       {6, metav1.ManagedFieldsOperationApply},
		"it never settles": {1000, metav1.ManagedFieldsOperationUpdate},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "router"}}
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "router", Image: "router:1"}}
			left := test.changes
			server := interceptor.NewClient(apiServer(t, d), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
					if p.Type() == types.JSONPatchType && left > 0 {
						left--
						var live appsv1.Deployment
						if err := c.Get(ctx, client.ObjectKeyFromObject(o), &live); err != nil {
							return err
						}
						live.Status.ObservedGeneration++
						if err := c.Status().Update(ctx, &live); err != nil {
							return err
						}
					}
					return c.Patch(ctx, o, p, options...)
				},
			})
			if err := server.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				t.Fatal(err)
			}
			e := &executor{PlaneReconciler: &PlaneReconciler{Client: server, Live: server}}
			target := patch.Target{Kind: v1alpha1.KindDeployment, Namespace: d.Namespace, Name: d.Name, ResourceVersion: d.ResourceVersion}
			err := e.mend(t.Context(), target, patch.Fields{
				Plane: "llm", Artefact: render.ArtefactStargate, Revision: "llm-stargate-1", Container: "router", ConfigPath: "/etc/routing-operator/lb-config.json",
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				t.Fatal(err)
			}
			if len(d.Spec.Template.Spec.Volumes) == 0 {
				t.Error("the template is not mended")
			}
			var owned []metav1.ManagedFieldsOperationType
			for _, entry := range d.ManagedFields {
				if entry.Manager == workload.FieldManager && entry.Subresource == "" {
					owned = append(owned, entry.Operation)
				}
			}
			if !slices.Equal(owned, []metav1.ManagedFieldsOperationType{test.owned}) {
				t.Errorf("owned by %v", owned)
			}
		})
	}
}
