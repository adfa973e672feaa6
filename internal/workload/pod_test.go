package workload_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/workload"
)

func pod(t *testing.T, status string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{Spec: *spec(t, router)}
	if err := yaml.UnmarshalStrict([]byte(status), &p.Status); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPodIsReadOffItsStatus(t *testing.T) {
	const c = "helm-nvcf-llm-request-router"
	type want struct {
		ready, started bool
		crash          *rollout.Crash
		waiting        string
	}
	for name, test := range map[string]struct {
		status string
		want
	}{
		"ready": {`{conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z"}], containerStatuses: [{name: ` + c + `, ready: true, state: {running: {}}}]}`,
			want{ready: true, started: true}},
		"warming up":                 {`{conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: ` + c + `, state: {running: {}}}]}`, want{started: true}},
		"being created":              {`{containerStatuses: [{name: ` + c + `, state: {waiting: {reason: ContainerCreating}}}]}`, want{}},
		"no node takes it":           {`{conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: 0/2 nodes}]}`, want{waiting: "Unschedulable"}},
		"its image cannot be pulled": {`{containerStatuses: [{name: ` + c + `, state: {waiting: {reason: ImagePullBackOff}}}]}`, want{waiting: "ImagePullBackOff"}},
		"an init container waits": {`{initContainerStatuses: [{name: init, state: {waiting: {reason: ErrImagePull}}}], containerStatuses: [{name: ` + c + `, state: {waiting: {reason: PodInitializing}}}]}`,
			want{waiting: "ErrImagePull"}},
		"its container has exited": {`{containerStatuses: [{name: ` + c + `, state: {terminated: {exitCode: 1, message: no such field}}}]}`,
			want{started: true, crash: &rollout.Crash{Container: c, Message: "no such field"}}},
		"its container has ended well once": {`{containerStatuses: [{name: ` + c + `, state: {terminated: {exitCode: 0}}}]}`, want{started: true}},
		"its container backs off": {`{containerStatuses: [{name: ` + c + `, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, message: bad file}}}]}`,
			want{started: true, crash: &rollout.Crash{Container: c, Restarts: 1, Message: "bad file"}}},
		"its container runs again after exits": {`{containerStatuses: [{name: ` + c + `, restartCount: 2, state: {running: {}}, lastState: {terminated: {exitCode: 0}}}]}`,
			want{started: true, crash: &rollout.Crash{Container: c, Restarts: 2}}},
		"its container runs again after one exit": {`{containerStatuses: [{name: ` + c + `, restartCount: 1, state: {running: {}}, lastState: {terminated: {exitCode: 1}}}]}`, want{started: true}},
		"exits of long ago do not count": {`{conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z"}], containerStatuses: [{name: ` + c + `, ready: true, restartCount: 9, state: {running: {}}}]}`,
			want{ready: true, started: true}},
		"only the sidecar exits": {`{containerStatuses: [{name: vault-agent, restartCount: 7, state: {waiting: {reason: CrashLoopBackOff}}}, {name: ` + c + `, ready: true, state: {running: {}}}]}`,
			want{started: true, waiting: "CrashLoopBackOff"}},
	} {
		t.Run(name, func(t *testing.T) {
			whole := pod(t, test.status)
			whole.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "d-abc", UID: "1", Controller: new(true)}}
			got := stargateReader().Pod(whole, true)
			if diff := cmp.Diff(got, stargateReader().Pod(strip(t, whole.DeepCopy()), true)); diff != "" {
				t.Errorf("off the cache's pod: %s", diff)
			}
			have := want{got.Ready, got.Started, got.Crash, got.Waiting}
			if diff := cmp.Diff(test.want, have, cmp.AllowUnexported(want{})); diff != "" {
				t.Error(diff)
			}
			if got.Ready && !got.ReadySince.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
				t.Errorf("ready since %s", got.ReadySince)
			}
		})
	}
}

func TestATerminatingPodIsNeverReady(t *testing.T) {
	p := pod(t, `{conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: helm-nvcf-llm-request-router, ready: true, state: {running: {}}}]}`)
	p.DeletionTimestamp = &p.Status.Conditions[0].LastTransitionTime
	if got := stargateReader().Pod(p, true); got.Ready || !got.Terminating || got.Revision != revision {
		t.Errorf("got %+v", got)
	}
}

func TestPodsThatEndedForGoodAreNotActive(t *testing.T) {
	for phase, active := range map[corev1.PodPhase]bool{
		corev1.PodPending: true, corev1.PodRunning: true, corev1.PodUnknown: true, corev1.PodFailed: false, corev1.PodSucceeded: false,
	} {
		if got := workload.Active(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}); got != active {
			t.Errorf("%s: got %v", phase, got)
		}
	}
}
