package controllers

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/internal/workload"
)

func TestAPodOfAStatefulSetIsOfThePresentTemplateThoughItsControllerHasNotSeenAScaling(t *testing.T) {
	template := func(image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "router", Image: image, Args: []string{"--port=1"}}}}}
	}
	revision := func(name, image string) *appsv1.ControllerRevision {
		raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": template(image)}})
		if err != nil {
			t.Fatal(err)
		}
		return &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: raw}, ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: name,
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "router", UID: "1", Controller: new(true)}}}}
	}
	for name, test := range map[string]struct {
		image    string // in the template
		observed int64  // generation of 2, by its controller
		of       string // the pod
		want     bool
	}{
		"a scaling that is not seen yet":                     {"v1", 1, "r1", true},
		"a pod that was left behind, and a scaling":          {"v1", 1, "r0", false},
		"a new template that is not seen yet":                {"v2", 1, "r1", false},
		"a template of before that is put back and not seen": {"v0", 1, "r1", false},
		"and a pod of it":                                    {"v0", 1, "r0", true},
		"everything is seen":                                 {"v1", 2, "r1", true},
		"everything is seen, and the pod is of before":       {"v1", 2, "r0", false},
	} {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "router", UID: "1", Generation: 2}}
			set.Spec.Template = template(test.image)
			set.Status.UpdateRevision, set.Status.CurrentRevision, set.Status.ObservedGeneration = "r1", "r1", test.observed
			objects := []client.Object{revision("r0", "v0"), revision("r1", "v1")}
			for _, o := range append(objects, set) { // as the cache has them
				if _, err := workload.Strip(o); err != nil {
					t.Fatal(err)
				}
			}
			g := &gatherer{PlaneReconciler: &PlaneReconciler{Client: apiServer(t, objects...)}, ctx: t.Context()}
			children, err := g.controllerRevisions(set)
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: test.of}}}
			if got := children.updated(pod); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
