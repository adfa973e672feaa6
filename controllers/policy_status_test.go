package controllers

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
)

func TestAPolicysConditionsFollowTheConventions(t *testing.T) {
	invalid := field.ErrorList{field.Invalid(field.NewPath("spec", "models").Index(0).Child("sampleCount"), 99, "sampleCount must be from 1 to 64")}
	of := func(states ...v1alpha1.ModelState) policyOutcome {
		o := policyOutcome{accepted: "llama-1"}
		for i, state := range states {
			o.models = append(o.models, v1alpha1.ModelStatus{Name: string(rune('a' + i)), State: state, Message: "because"})
		}
		return o
	}
	full := of(v1alpha1.ModelPending, v1alpha1.ModelPending)
	full.noRoom = "no room"
	type want struct{ accepted, programmed, ready, reconciling, stalled, reason string }
	for name, test := range map[string]struct {
		judgement
		want
		message string
	}{
		"in effect": {judgement{accepted: "x", outcome: of(v1alpha1.ModelProgrammed, v1alpha1.ModelProgrammed)}, want{"True", "True", "True", "False", "False", "Programmed"}, "every Stargate pod"},
		"in effect in part of its fields": {judgement{accepted: "x", outcome: of(v1alpha1.ModelProgrammed, v1alpha1.ModelLimited)},
			want{"True", "True", "True", "False", "False", "Limited"}, `model "b"`},
		"on its way":       {judgement{accepted: "x", outcome: of(v1alpha1.ModelProgrammed, v1alpha1.ModelPending)}, want{"True", "False", "False", "True", "False", "Pending"}, `model "b"`},
		"with a flag held": {judgement{accepted: "x", outcome: of(v1alpha1.ModelFlagHeld, v1alpha1.ModelProgrammed)}, want{"True", "False", "False", "True", "False", "FlagsHeld"}, `model "a"`},
		"held at an earlier version": {judgement{accepted: "x", outcome: of(v1alpha1.ModelHeld, v1alpha1.ModelPending)},
			want{"True", "False", "False", "True", "False", "EarlierVersionKept"}, `model "a"`},
		"in conflict, and else in effect": {judgement{accepted: "x", outcome: of(v1alpha1.ModelConflict, v1alpha1.ModelProgrammed)},
			want{"False", "True", "False", "True", "False", "ModelConflict"}, "because"},
		"without room": {judgement{accepted: "x", outcome: full}, want{"False", "False", "False", "True", "False", "NoRoom"}, "no room"},
		"without a plane": {judgement{accepted: "x", reason: reasonPlaneNotFound, message: "there is none"},
			want{"False", "False", "False", "True", "False", "PlaneNotFound"}, "there is none"},
		"invalid from the start": {judgement{invalid: invalid}, want{"False", "False", "False", "False", "True", "Invalid"}, "nothing of the policy is in effect"},
		"invalid, with a version that runs": {judgement{invalid: invalid, accepted: "x", outcome: of(v1alpha1.ModelProgrammed, v1alpha1.ModelProgrammed)},
			want{"False", "False", "False", "False", "True", "Invalid"}, "spec.models[0].sampleCount"},
	} {
		t.Run(name, func(t *testing.T) {
			j := test.judgement
			j.policy = &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: v1alpha1.RoutingPolicySpec{Models: []v1alpha1.Model{
				{Name: "a", AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}}, {Name: "b", AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}},
			}}}
			j.plane, j.generations = types.NamespacedName{Namespace: "nvcf", Name: "llm"}, validate.AnyGeneration
			var status v1alpha1.RoutingPolicyStatus
			clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			j.fill(&status, clock)
			get := func(kind string) *metav1.Condition { return meta.FindStatusCondition(status.Conditions, kind) }
			got := want{
				string(get("Accepted").Status), string(get("Programmed").Status), string(get("Ready").Status),
				string(get("Reconciling").Status), string(get("Stalled").Status), get("Ready").Reason,
			}
			if got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
			if !strings.Contains(get("Ready").Message, test.message) {
				t.Errorf("message %q", get("Ready").Message)
			}
			if status.ObservedGeneration != 7 || len(status.Models) != 2 {
				t.Errorf("status %+v", status)
			}
			for _, c := range status.Conditions {
				if c.ObservedGeneration != 7 || c.Reason == "" {
					t.Errorf("condition %+v", c)
				}
			}

			again := *status.DeepCopy()
			clock.SetTime(time.Unix(2000, 0))
			j.fill(&again, clock)
			if !equality.Semantic.DeepEqual(status, again) {
				t.Error("the same judgement, later, changes the status")
			}
		})
	}
}

func TestAnInvalidPolicySaysWhatIsKeptOfItsModels(t *testing.T) {
	j := judgement{
		policy:  &v1alpha1.RoutingPolicy{Spec: v1alpha1.RoutingPolicySpec{Models: []v1alpha1.Model{{Name: "a"}, {Name: "new"}, {Name: "a"}}}},
		invalid: field.ErrorList{field.Duplicate(field.NewPath("spec"), "a")}, accepted: "x",
		outcome: policyOutcome{models: []v1alpha1.ModelStatus{{Name: "a", State: v1alpha1.ModelProgrammed}}},
	}
	models := j.models()
	if len(models) != 2 || models[0].State != v1alpha1.ModelHeld || models[1].State != v1alpha1.ModelPending {
		t.Errorf("got %+v", models)
	}
}
