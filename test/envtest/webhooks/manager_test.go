package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/test/envtest/testenv"
)

// replica is the manager as the image has it: a process with the arguments of config/manager.
type replica struct {
	command                 *exec.Cmd
	ended                   chan error
	webhook, metrics, ready string

	mutex  sync.Mutex
	output bytes.Buffer
}

func (r *replica) Write(text []byte) (int, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.output.Write(text)
}

func (r *replica) log() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.output.String()
}

func startReplica(binary, kubeconfig string, arguments []string) *replica {
	r := &replica{ended: make(chan error, 1)}
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", freePort()) }
	r.webhook, r.metrics, r.ready = address(), address(), address()
	_, webhookPort, _ := strings.Cut(r.webhook, ":")
	r.command = exec.Command(binary, append(arguments, "--own-namespace="+ownNamespace, "--webhook-port="+webhookPort,
		"--webhook-hosts=127.0.0.1", "--metrics-bind-address="+r.metrics, "--health-probe-bind-address="+r.ready)...)
	r.command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	r.command.Stdout, r.command.Stderr = r, r
	Expect(r.command.Start()).To(Succeed())
	go func() { r.ended <- r.command.Wait() }()
	DeferCleanup(func() { _ = r.command.Process.Kill() })
	return r
}

// get returns the status of a page, with a bearer token or without.
func get(url, token string) (int, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	pages := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := pages.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// token of a service account in the operator's namespace, which it makes.
func token(ctx context.Context, account string) string {
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: account}}
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, object))).To(Succeed())
	clientset, err := kubernetes.NewForConfig(env.Config)
	Expect(err).NotTo(HaveOccurred())
	request, err := clientset.CoreV1().ServiceAccounts(ownNamespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return request.Status.Token
}

var _ = Describe("The manager's program", func() {
	It("runs with the rights of config/rbac: every replica is ready and serves, one leads and hands over", func(ctx context.Context) {
		folder := GinkgoT().TempDir()
		binary := filepath.Join(folder, "manager")
		build := exec.Command("go", "build", "-o", binary, "./cmd/manager")
		build.Dir = env.Root
		output, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", output)
		config, err := env.User(account, "system:serviceaccounts", "system:serviceaccounts:"+ownNamespace, "system:authenticated")
		Expect(err).NotTo(HaveOccurred())
		kubeconfig := filepath.Join(folder, "kubeconfig")
		Expect(testenv.WriteKubeConfig(config, kubeconfig)).To(Succeed())
		var arguments []string
		for _, object := range built("config/default") {
			if object.GetKind() == "Deployment" {
				arguments = deployment(object).Spec.Template.Spec.Containers[0].Args
			}
		}
		Expect(arguments).NotTo(BeEmpty())

		replicas := []*replica{startReplica(binary, kubeconfig, arguments), startReplica(binary, kubeconfig, arguments)}
		for _, r := range replicas {
			Eventually(get).WithArguments("http://"+r.ready+"/readyz", "").Should(Equal(http.StatusOK), r.log)
			Expect(get("http://"+r.ready+"/healthz", "")).To(Equal(http.StatusOK))
			connection, err := tls.Dial("tcp", r.webhook, &tls.Config{InsecureSkipVerify: true})
			Expect(err).NotTo(HaveOccurred())
			Expect(connection.Close()).To(Succeed())
		}

		By("showing metrics to those who may see them")
		metrics := "https://" + replicas[0].metrics + "/metrics"
		Eventually(get).WithArguments(metrics, "").Should(Equal(http.StatusUnauthorized), replicas[0].log)
		Expect(get(metrics, token(ctx, "stranger"))).To(Equal(http.StatusForbidden))
		Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "routing-operator-metrics-reader"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ownNamespace, Name: "prometheus"}},
		})).To(Succeed())
		Eventually(func() (bool, error) { // before the manager asks, which remembers a no
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:                  "system:serviceaccount:" + ownNamespace + ":prometheus",
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
			}}
			err := admin.Create(ctx, review)
			return review.Status.Allowed, err
		}).Should(BeTrue())
		Expect(get(metrics, token(ctx, "prometheus"))).To(Equal(http.StatusOK))

		By("handing the lease over at once when the leader is told to stop")
		holder := func() string {
			lease := &coordinationv1.Lease{}
			if err := admin.Get(ctx, client.ObjectKey{Namespace: ownNamespace, Name: "routing-operator"}, lease); err != nil {
				return ""
			}
			return ptr.Deref(lease.Spec.HolderIdentity, "")
		}
		leads := func(r *replica) bool { return strings.Contains(r.log(), "acquired lease") }
		Eventually(func() bool { return slices.ContainsFunc(replicas, leads) }).Should(BeTrue(), "its log comes after the lease")
		leader := replicas[slices.IndexFunc(replicas, leads)]
		first := holder()
		Expect(first).NotTo(BeEmpty())
		Expect(leader.command.Process.Signal(syscall.SIGTERM)).To(Succeed())
		Eventually(leader.ended).Should(Receive(BeNil()), leader.log)
		Eventually(holder).Should(And(Not(BeEmpty()), Not(Equal(first))))

		for _, r := range replicas {
			Expect(strings.ToLower(r.log())).NotTo(ContainSubstring("forbidden"))
		}
	})
})
