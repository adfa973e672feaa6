package webhooks

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/release"
)

// indexer takes the indexes of internal/index for a fake client.
type indexer struct{ builder *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, object client.Object, name string, keys client.IndexerFunc) error {
	i.builder.WithIndex(object, name, keys)
	return nil
}

// newSite is an API server with objects, whose SubjectAccessReviews are answered by may.
func newSite(t *testing.T, may func(authorizationv1.SubjectAccessReviewSpec) (bool, error), broken interceptor.Funcs, objects ...client.Object) site {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	broken.Create = func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		review, ok := o.(*authorizationv1.SubjectAccessReview)
		if !ok {
			return c.Create(ctx, o, options...)
		}
		allowed, err := may(review.Spec)
		review.Status.Allowed = allowed
		return err
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(broken)
	if err := index.Setup(t.Context(), indexer{builder}); err != nil {
		t.Fatal(err)
	}
	return site{client: builder.Build(), options: Options{Generations: release.DefaultTable()}}
}

func anybody(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return true, nil }

func namespaceObject(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func planeIn(namespace string) *v1alpha1.RoutingPlane {
	return &v1alpha1.RoutingPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "llm"},
		Spec: v1alpha1.RoutingPlaneSpec{
			Stargate: v1alpha1.StargateSpec{
				WorkloadRef: v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: "router"},
				ConfigPath:  "/etc/routing-operator/lb-config.json",
			},
			Gateways: []v1alpha1.GatewaySpec{{WorkloadRef: v1alpha1.WorkloadReference{Kind: v1alpha1.KindDeployment, Name: "gateway"}}},
		},
	}
}

func router(image string, mounts ...corev1.VolumeMount) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "router"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "stargate", Image: image, VolumeMounts: mounts}},
		}}},
	}
}

func policyOf(name string, models ...v1alpha1.Model) *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1000, 0))},
		Spec:       v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: "llm"}, Models: models},
	}
}

func model(name string, algorithm v1alpha1.Algorithm) v1alpha1.Model {
	return v1alpha1.Model{Name: name, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: algorithm}}
}

// wrong is a model with a field that its algorithm does not take.
func wrong(name string) v1alpha1.Model {
	m := model(name, v1alpha1.Random)
	m.LastClusterAffinity = new(false)
	return m
}

// causes of a refusal, by path.
func causes(t *testing.T, err error) (paths []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, not an error of the kind Invalid", err)
	}
	for _, cause := range status.Status().Details.Causes {
		paths = append(paths, cause.Field)
	}
	return paths
}

func expectEqual(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func expectWarning(t *testing.T, warnings admission.Warnings, part string) {
	t.Helper()
	if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, part) }) {
		t.Errorf("no warning says %q: %q", part, warnings)
	}
}

func TestPolicyThatTheSchemaLetThroughIsRefusedWithEveryCause(t *testing.T) {
	v := policyValidator{newSite(t, anybody, interceptor.Funcs{}, namespaceObject("nvcf"))}
	_, err := v.ValidateCreate(t.Context(), policyOf("p", wrong("a"), model("b", "powerOf2"), wrong("c")))
	expectEqual(t, "causes", causes(t, err), []string{"spec.models[0].lastClusterAffinity", "spec.models[1].algorithm", "spec.models[2].lastClusterAffinity"})
}

func TestPolicyUpdateToleratesWhatWasWrongBefore(t *testing.T) {
	for name, test := range map[string]struct {
		old, now  []v1alpha1.Model
		refused   []string
		tolerated int
	}{
		"nothing about the models changed":             {[]v1alpha1.Model{wrong("a")}, []v1alpha1.Model{wrong("a")}, nil, 1},
		"a model came before the wrong one":            {[]v1alpha1.Model{wrong("b")}, []v1alpha1.Model{model("a", v1alpha1.Random), wrong("b")}, nil, 1},
		"the wrong model was mended":                   {[]v1alpha1.Model{wrong("a")}, []v1alpha1.Model{model("a", v1alpha1.Random)}, nil, 0},
		"the wrong model was mended and another broke": {[]v1alpha1.Model{wrong("a"), model("b", v1alpha1.Random)}, []v1alpha1.Model{model("a", v1alpha1.Random), wrong("b")}, []string{"spec.models[1].lastClusterAffinity"}, 0},
		"another model broke as well":                  {[]v1alpha1.Model{wrong("a"), model("b", v1alpha1.Random)}, []v1alpha1.Model{wrong("a"), wrong("b")}, []string{"spec.models[1].lastClusterAffinity"}, 1},
		"the wrong model got a new name":               {[]v1alpha1.Model{wrong("a")}, []v1alpha1.Model{wrong("b")}, []string{"spec.models[0].lastClusterAffinity"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := policyValidator{newSite(t, anybody, interceptor.Funcs{}, namespaceObject("nvcf"))}
			warnings, err := v.ValidateUpdate(t.Context(), policyOf("p", test.old...), policyOf("p", test.now...))
			expectEqual(t, "causes", causes(t, err), test.refused)
			tolerated := slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return !strings.Contains(w, "tolerated") })
			if len(tolerated) != test.tolerated {
				t.Errorf("got %d tolerated errors in %q, want %d", len(tolerated), warnings, test.tolerated)
			}
		})
	}
}

func TestPolicyThatIsBeingDeletedIsLetThrough(t *testing.T) {
	v := policyValidator{newSite(t, anybody, interceptor.Funcs{})}
	policy := policyOf("p", wrong("a"))
	policy.DeletionTimestamp = new(metav1.Now())
	if warnings, err := v.ValidateUpdate(t.Context(), policyOf("p"), policy); err != nil || len(warnings) > 0 {
		t.Errorf("got %q and %v", warnings, err)
	}
}

func TestPolicyIsTakenWhereItsPlaneCannotBeRead(t *testing.T) {
	broken := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("cache is not there")
	}}
	v := policyValidator{newSite(t, anybody, broken)}
	warnings, err := v.ValidateCreate(t.Context(), policyOf("p", model("a", v1alpha1.Random)))
	if err != nil {
		t.Errorf("refused: %v", err)
	}
	expectWarning(t, warnings, "could not be looked at: read RoutingPlane nvcf/llm: cache is not there")
}

func TestModelOfTwoPoliciesStaysWithTheOneThatHasIt(t *testing.T) {
	later := metav1.NewTime(time.Unix(2000, 0))
	has := func(p *v1alpha1.RoutingPolicy, plane string, state v1alpha1.ModelState) *v1alpha1.RoutingPolicy {
		p.Status.Plane, p.Status.Models = plane, []v1alpha1.ModelStatus{{Name: "a", State: state}}
		return p
	}
	younger := func(p *v1alpha1.RoutingPolicy) *v1alpha1.RoutingPolicy { p.CreationTimestamp = later; return p }
	const keepsIt, losesIt = "this policy has it and keeps it", `model "a" stays with policy nvcf/other`
	for name, test := range map[string]struct {
		reviewed, other *v1alpha1.RoutingPolicy
		warning         string
	}{
		"the one whose entry runs, though younger":              {younger(has(policyOf("p"), "nvcf/llm", v1alpha1.ModelFlagHeld)), policyOf("other"), keepsIt},
		"the one whose entry runs before one that waits":        {has(policyOf("p"), "nvcf/llm", v1alpha1.ModelPending), younger(has(policyOf("other"), "nvcf/llm", v1alpha1.ModelProgrammed)), losesIt},
		"the one that waits before one that lost":               {has(policyOf("p"), "nvcf/llm", v1alpha1.ModelConflict), younger(has(policyOf("other"), "nvcf/llm", v1alpha1.ModelPending)), losesIt},
		"the older one, whatever runs on another plane":         {has(younger(policyOf("p")), "nvcf/elsewhere", v1alpha1.ModelProgrammed), policyOf("other"), losesIt},
		"the older one where nothing runs":                      {policyOf("p"), younger(policyOf("other")), keepsIt},
		"the first by name where both are of the same age":      {policyOf("p"), policyOf("other"), losesIt},
		"the first by name among those whose entry runs (once)": {has(policyOf("p"), "nvcf/llm", v1alpha1.ModelProgrammed), has(policyOf("other"), "nvcf/llm", v1alpha1.ModelHeld), losesIt},
	} {
		t.Run(name, func(t *testing.T) {
			test.reviewed.Spec.Models = []v1alpha1.Model{model("a", v1alpha1.Random)}
			test.other.Spec.Models = []v1alpha1.Model{model("a", v1alpha1.Pulsar)}
			v := policyValidator{newSite(t, anybody, interceptor.Funcs{}, namespaceObject("nvcf"), planeIn("nvcf"), test.other, test.reviewed)}
			warnings, err := v.ValidateUpdate(t.Context(), test.reviewed, test.reviewed)
			if err != nil {
				t.Errorf("refused: %v", err)
			}
			expectWarning(t, warnings, test.warning)
		})
	}
}

func TestPolicyOnAPlaneThatIsBeingDeletedIsWarned(t *testing.T) {
	plane := planeIn("nvcf")
	plane.Finalizers, plane.DeletionTimestamp = []string{"example.com/unwind"}, new(metav1.Now())
	v := policyValidator{newSite(t, anybody, interceptor.Funcs{}, namespaceObject("nvcf"), plane)}
	warnings, err := v.ValidateCreate(t.Context(), policyOf("p", model("a", v1alpha1.Random)))
	if err != nil {
		t.Errorf("refused: %v", err)
	}
	expectWarning(t, warnings, "RoutingPlane nvcf/llm is being deleted")
}

// by is the context of a review that jane asked for.
func by(t *testing.T) context.Context {
	return admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UserInfo: authenticationv1.UserInfo{Username: "jane", UID: "1", Groups: []string{"sre"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"a", "b"}}},
	}})
}

func TestAccessIsReviewedForTheAuthorWithGroupsAndExtra(t *testing.T) {
	var asked []authorizationv1.SubjectAccessReviewSpec
	v := planeValidator{newSite(t, func(s authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		asked = append(asked, s)
		return s.ResourceAttributes.Name != "gateway", nil
	}, interceptor.Funcs{})}
	_, err := v.ValidateCreate(by(t), planeIn("nvcf"))
	expectEqual(t, "causes", causes(t, err), []string{"spec.gateways[0].workloadRef"})
	if !strings.Contains(err.Error(), `spec.gateways[0].workloadRef: Forbidden: user "jane" may not patch deployments.apps "gateway" in namespace "nvcf"`) {
		t.Errorf("the refusal says %q", err)
	}
	if len(asked) != 2 {
		t.Fatalf("%d reviews, not one for each workload", len(asked))
	}
	s := asked[0]
	if s.User != "jane" || s.UID != "1" || !slices.Equal(s.Groups, []string{"sre"}) || !slices.Equal(s.Extra["scope"], []string{"a", "b"}) {
		t.Errorf("the review is for another subject: %+v", s)
	}
	if want := (authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "nvcf", Name: "router"}); *s.ResourceAttributes != want {
		t.Errorf("the review asks for %+v, not %+v", *s.ResourceAttributes, want)
	}
}

func TestPlaneIsRefusedWhereTheReviewFails(t *testing.T) {
	broken := interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
		return errors.New("no answer")
	}}
	for name, site := range map[string]site{
		"since the access cannot be reviewed": newSite(t, func(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return true, errors.New("no answer") }, interceptor.Funcs{}),
		"since the workload cannot be read":   newSite(t, anybody, broken),
	} {
		t.Run(name, func(t *testing.T) {
			v := planeValidator{site}
			if _, err := v.ValidateCreate(by(t), planeIn("nvcf")); !apierrors.IsInternalError(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestMountsThatOverlap(t *testing.T) {
	for name, test := range map[string]struct {
		mount    corev1.VolumeMount
		overlaps bool
	}{
		"the same directory":                    {corev1.VolumeMount{Name: "chart", MountPath: "/etc/routing-operator"}, true},
		"the same directory, spelt differently": {corev1.VolumeMount{Name: "chart", MountPath: "/etc//routing-operator/"}, true},
		"the file itself":                       {corev1.VolumeMount{Name: "chart", MountPath: "/etc/routing-operator/lb-config.json"}, true},
		"a directory below":                     {corev1.VolumeMount{Name: "chart", MountPath: "/etc/routing-operator/more"}, true},
		"a directory above":                     {corev1.VolumeMount{Name: "chart", MountPath: "/etc"}, true},
		"the root":                              {corev1.VolumeMount{Name: "chart", MountPath: "/"}, true},
		"a neighbour":                           {corev1.VolumeMount{Name: "chart", MountPath: "/etc/llm-request-router"}, false},
		"a name that begins alike":              {corev1.VolumeMount{Name: "chart", MountPath: "/etc/routing-operator-2"}, false},
		"the operator's own mount":              {corev1.VolumeMount{Name: "routing-lb-config", MountPath: "/etc/routing-operator"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := planeValidator{newSite(t, anybody, interceptor.Funcs{}, router("router:0.18.0", test.mount))}
			_, err := v.ValidateCreate(by(t), planeIn("nvcf"))
			var want []string
			if test.overlaps {
				want = []string{"spec.stargate.configPath"}
			}
			expectEqual(t, "causes", causes(t, err), want)
		})
	}
}

func TestMountThatCameLaterIsToleratedWithAWarning(t *testing.T) {
	v := planeValidator{newSite(t, anybody, interceptor.Funcs{}, router("router:0.18.0", corev1.VolumeMount{Name: "chart", MountPath: "/etc"}))}
	edited := planeIn("nvcf")
	edited.Spec.Rollout.Paused = true
	warnings, err := v.ValidateUpdate(by(t), planeIn("nvcf"), edited)
	if err != nil {
		t.Errorf("refused: %v", err)
	}
	expectWarning(t, warnings, "tolerated")
}

func TestAConfigPathThatMovesIsRefusedWhateverElseIsTolerated(t *testing.T) {
	v := planeValidator{newSite(t, anybody, interceptor.Funcs{}, router("router:0.18.0", corev1.VolumeMount{Name: "chart", MountPath: "/etc"}))}
	edited := planeIn("nvcf")
	edited.Spec.Stargate.ConfigPath = "/etc/routing-operator/v2/lb-config.json"
	_, err := v.ValidateUpdate(by(t), planeIn("nvcf"), edited)
	if want := "configPath cannot be changed"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestPlaneWarningsSpeakOfTheReleaseThatRuns(t *testing.T) {
	weight := "last-mean-input-tps"
	plane := planeIn("nvcf")
	plane.Spec.Stargate.RequestAlgorithms = []v1alpha1.RequestAlgorithm{{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Pulsar, RendezvousWeight: &weight}}}
	v := planeValidator{newSite(t, anybody, interceptor.Funcs{}, router("router:0.18.0"))}
	warnings, err := v.ValidateCreate(by(t), plane)
	if err != nil {
		t.Errorf("refused: %v", err)
	}
	expectWarning(t, warnings, "spec.stargate.requestAlgorithms[0].rendezvousWeight: Stargate does not know rendezvousWeight")
	plane.Spec.Stargate.Releases = []v1alpha1.ReleaseOverride{{Image: "router:0.18.0", Version: "V3"}}
	warnings, _ = v.ValidateCreate(by(t), plane)
	if slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "does not know") }) {
		t.Errorf("the stated release knows the field, and the answer is %q", warnings)
	}
}

func TestRatchetTellsErrorsApart(t *testing.T) {
	path := field.NewPath("spec", "a")
	before := field.ErrorList{field.Invalid(path, 1, "too small")}
	for name, test := range map[string]struct {
		err     *field.Error
		refused bool
	}{
		"the same":       {field.Invalid(path, 1, "too small"), false},
		"another value":  {field.Invalid(path, 2, "too small"), true},
		"another rule":   {field.Invalid(path, 1, "too big"), true},
		"another kind":   {field.NotSupported(path, 1, []string{"2"}), true},
		"another place":  {field.Invalid(path.Child("b"), 1, "too small"), true},
		"another entry":  {field.Invalid(path.Index(1), 1, "too small"), true},
		"it is required": {field.Required(path, "too small"), true},
	} {
		t.Run(name, func(t *testing.T) {
			refused, tolerated := ratchet(field.ErrorList{test.err}, before, same, same)
			if (len(refused) == 1) != test.refused || len(refused)+len(tolerated) != 1 {
				t.Errorf("refused %v, tolerated %v", refused, tolerated)
			}
		})
	}
}
