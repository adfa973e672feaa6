package controllers

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// policyOutcome is what a plane's pass made of a policy.
type policyOutcome struct {
	key types.NamespacedName
	// accepted is the name of the accepted revision that the pass saw.
	accepted string
	models   []v1alpha1.ModelStatus
	// noRoom says why the policy does not fit; empty where it does.
	noRoom string
}

// outcomes carry what planes' passes found to the policies' reconciler, the only writer of policies' status.
type outcomes struct {
	mutex  sync.Mutex
	planes map[types.NamespacedName]map[types.UID]policyOutcome
	// queue of the policies' reconciler, once it runs. What changes before it finds when it starts.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newOutcomes() *outcomes {
	return &outcomes{planes: map[types.NamespacedName]map[types.UID]policyOutcome{}}
}

// start is the source by which policies are reconciled when their outcome has changed.
func (o *outcomes) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.queue = queue
	return nil
}

// publish replaces what is known of a plane; nil forgets it.
func (o *outcomes) publish(plane types.NamespacedName, policies map[types.UID]policyOutcome) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	before := o.planes[plane]
	if policies == nil {
		delete(o.planes, plane)
	} else {
		o.planes[plane] = policies
	}
	if o.queue == nil {
		return
	}
	for uid, outcome := range policies {
		if known, ok := before[uid]; !ok || !reflect.DeepEqual(known, outcome) {
			o.queue.Add(reconcile.Request{NamespacedName: outcome.key})
		}
	}
	for uid, outcome := range before {
		if _, ok := policies[uid]; !ok {
			o.queue.Add(reconcile.Request{NamespacedName: outcome.key})
		}
	}
}

// of a policy on a plane.
func (o *outcomes) of(plane types.NamespacedName, policy types.UID) (policyOutcome, bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	outcome, ok := o.planes[plane][policy]
	return outcome, ok
}
