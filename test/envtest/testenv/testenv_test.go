package testenv

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestControlPlane(t *testing.T) {
	ctx := t.Context()
	started := time.Now()
	env, err := Start(ctx, Options{Webhooks: []string{"config/webhook/validating_webhook.yaml"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("etcd, kube-apiserver and the CRDs took %s", time.Since(started))
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(env.dir); !os.IsNotExist(err) {
			t.Errorf("the folder is still there: %v", err)
		}
	})

	t.Run("kubectl knows the operator's kinds", func(t *testing.T) {
		out, err := env.Kubectl(ctx, "get", "rpl,rp", "-A").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "No resources found") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("webhooks have more time than in a cluster", func(t *testing.T) {
		list, err := client(t, env.Config).AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || len(list.Items[0].Webhooks) != 2 {
			t.Fatalf("%v: %v, want the operator's two webhooks", err, list)
		}
		for _, w := range list.Items[0].Webhooks {
			if *w.TimeoutSeconds != 30 {
				t.Errorf("%s has %d s", w.Name, *w.TimeoutSeconds)
			}
		}
	})
	t.Run("a user is bound by RBAC", func(t *testing.T) {
		config, err := env.User("somebody")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client(t, config).CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing pods: %v, want a refusal", err)
		}
	})
	t.Run("writes are counted by user agent, reads and others' writes are not", func(t *testing.T) { testWrites(ctx, t, env) })
}

func testWrites(ctx context.Context, t *testing.T, env *Environment) {
	ns, err := env.Namespace(ctx, "writes")
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(env.Config)
	config.UserAgent = "operator/1"
	c := client(t, config).CoreV1().ConfigMaps(ns)
	mark, err := env.Mark()
	if err != nil {
		t.Fatal(err)
	}

	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	_, createErr := c.Create(ctx, cm, metav1.CreateOptions{})
	_, getErr := c.Get(ctx, "mine", metav1.GetOptions{})
	_, otherErr := client(t, env.Config).CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	_, dryErr := c.Update(ctx, cm, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	for _, err := range []error{createErr, getErr, otherErr, dryErr} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Create(ctx, cm, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}

	writes, err := env.Writes(mark, "operator/")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range writes {
		got = append(got, w.Verb+" "+w.Resource)
		if w.Namespace != ns || w.UserAgent != "operator/1" || w.User != "admin" || w.DryRun != (w.Verb == "update") {
			t.Errorf("unexpected write %s", w)
		}
	}
	if want := "create configmaps,update configmaps,create configmaps"; strings.Join(got, ",") != want {
		t.Errorf("writes %v, want %s", got, want)
	}
}

// child is set in the environment of the process that TestNothingIsLeftOfAKilledProcess kills.
const child = "TESTENV_TEST_CHILD"

func TestNothingIsLeftOfAKilledProcess(t *testing.T) {
	if os.Getenv(child) != "" {
		env, err := Start(t.Context(), Options{ControllerManager: true, WithoutCRDs: true})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(child, env.dir)
		select {}
	}

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNothingIsLeftOfAKilledProcess$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		dir, _ = strings.CutPrefix(lines.Text(), child+" ")
	}
	files, err := filepath.Glob(filepath.Join(dir, "run", "*.pid"))
	if err != nil || len(files) != 3 {
		t.Fatalf("process ids in %q: %v, %v, want three", dir, files, err)
	}
	var pids []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || syscall.Kill(pid, 0) != nil {
			t.Fatalf("%s does not hold the id of a process that runs: %s", file, data)
		}
		pids = append(pids, pid)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says only that it was killed
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		alive := slices.ContainsFunc(pids, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
		_, statErr := os.Stat(dir)
		return !alive && os.IsNotExist(statErr), nil
	})
	if err != nil {
		t.Errorf("processes %v or the folder %s are still there", pids, dir)
	}
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
