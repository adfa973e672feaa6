package controllers

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/effective"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Observation is what a pass over a plane would go by.
type Observation struct {
	World rollout.World
	// Policies on the plane with the specs that were last accepted; each is the incumbent of the models that it has.
	Policies []effective.Policy
}

// Observe gathers what a pass over the plane would go by, with a client that has no cache. It changes nothing. Where
// the client may not list accepted specs in all namespaces, only policies of the plane's own are seen.
func Observe(ctx context.Context, c client.Client, plane *v1alpha1.RoutingPlane, releases release.Table, now time.Time) (*Observation, error) {
	reads := &uncached{Client: c, namespace: plane.Namespace, lists: map[string][]runtime.Object{}}
	r := &PlaneReconciler{Client: reads, Cache: reads, Live: c, Logs: noLogs{}, Releases: releases}
	m := newMemories().get(client.ObjectKeyFromObject(plane), plane.UID)
	seen, err := r.gather(ctx, plane, m, now)
	if err != nil {
		return nil, err
	}
	owned := map[types.NamespacedName]sets.Set[string]{}
	for model, owner := range seen.merged.Owners {
		if owned[owner] == nil {
			owned[owner] = sets.New[string]()
		}
		owned[owner].Insert(model)
	}
	observation := &Observation{World: seen.world}
	for i := range seen.merged.policies {
		policy := &seen.merged.policies[i]
		key := client.ObjectKeyFromObject(policy)
		observation.Policies = append(observation.Policies, effective.Policy{
			NamespacedName: key, Created: policy.CreationTimestamp.Time, Models: policy.spec.Models, Incumbent: owned[key],
		})
	}
	return observation, nil
}

// noLogs reads none: who looks from outside goes by what the plane's status says of an exit.
type noLogs struct{}

func (noLogs) Last(context.Context, *corev1.Pod, string) (string, error) { return "", nil }

func (noLogs) Contains(context.Context, *corev1.Pod, string, string) (bool, error) { return false, nil }

// uncached answers from the API server what the manager's cache answers by its indexes. It lists everything of a kind
// in a namespace once.
type uncached struct {
	client.Client
	namespace string
	lists     map[string][]runtime.Object
}

// List filters by the indexes here.
func (u *uncached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := client.ListOptions{}
	asked.ApplyOptions(options)
	if asked.FieldSelector == nil {
		return u.Client.List(ctx, list, options...)
	}
	key := fmt.Sprintf("%T %s", list, asked.Namespace)
	items, known := u.lists[key]
	if !known {
		var err error
		if items, err = u.all(ctx, list, asked.Namespace); err != nil {
			return err
		}
		u.lists[key] = items
	}
	var selected []runtime.Object
	for _, item := range items {
		if matches(item.(client.Object), &asked) {
			selected = append(selected, item)
		}
	}
	return meta.SetList(list, selected)
}

func (u *uncached) all(ctx context.Context, list client.ObjectList, namespace string) ([]runtime.Object, error) {
	err := u.Client.List(ctx, list, client.InNamespace(namespace))
	if namespace == "" && apierrors.IsForbidden(err) {
		err = u.Client.List(ctx, list, client.InNamespace(u.namespace))
	}
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

func matches(o client.Object, asked *client.ListOptions) bool {
	for _, requirement := range asked.FieldSelector.Requirements() {
		if !slices.Contains(keysOf(o, requirement.Field), requirement.Value) {
			return false
		}
	}
	return true
}

func keysOf(o client.Object, name string) []string {
	for _, index := range fieldIndexes {
		if index.name == name && reflect.TypeOf(index.object) == reflect.TypeOf(o) {
			return index.keys(o)
		}
	}
	return nil
}
