package cli

import (
	"encoding/json"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/test/envtest/operator"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

var _ = Describe("A plan", func() {
	It("says how often each workload restarts, and so they do", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m"))
		s.ready()
		for _, next := range []string{
			planeText("") + policyText("a", "m"),
			planeText("") + policyText("a", "m , seed: x", "k"),
			planeText(", waves: [1, 2]") + policyText("a", "m , seed: x"+flag, "k"+flag, "l"+flag, "o"+flag),
			planeText(", waves: [1, 2]") + policyText("a", "m , seed: x", "k"),
		} {
			before := s.rollouts()
			planned := s.plan(next, "-o", "json")
			var plan struct {
				Planes []struct {
					Changed bool
					Events  []struct{ Workload string }
					Changes []any
				}
			}
			Expect(json.Unmarshal([]byte(planned.out), &plan)).To(Succeed(), "%+v", planned)
			Expect(plan.Planes).To(HaveLen(1))
			Expect(planned.code).To(Equal(map[bool]int{true: 1}[plan.Planes[0].Changed]))
			var want [2]int
			for _, event := range plan.Planes[0].Events {
				switch event.Workload {
				case "Deployment/" + fixtures.Router:
					want[0]++
				case "Deployment/" + fixtures.Gateway:
					want[1]++
				}
			}
			s.apply(next)
			s.ready()
			after := s.rollouts()
			Expect([2]int{after[0] - before[0], after[1] - before[1]}).To(Equal(want), "planned: %s", planned.out)
			Expect(s.plan(next).code).To(Equal(0), "what is in effect is no change")
		}
	})

	It("says what changes and whose sessions move, and keeps policies that are not in the files", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m , seed: x") + policyText("b", "k"))
		s.ready()
		changed := policyText("a", "m , seed: v2") + policyText("c", "k")
		a := s.plan(changed)
		Expect(a.code).To(Equal(1), "%+v", a)
		Expect(a.out).To(ContainSubstring(`model "m": seed: x -> v2`))
		Expect(a.out).To(ContainSubstring(`model "m": seed "x" -> "v2": every session is placed anew`))
		Expect(a.out).To(ContainSubstring(`RoutingPolicy ` + s.namespace + `/c: model "k" stays with policy ` + s.namespace + `/b, which has it already`))
		Expect(a.out).NotTo(ContainSubstring(`model "k": algorithm`))
		pruned := s.plan(changed, "--prune")
		Expect(pruned.out).NotTo(ContainSubstring("stays with policy"))
		none := s.plan(strings.ReplaceAll(changed, "planeRef: {name: llm}", "planeRef: {name: other}"))
		Expect(none.out).To(ContainSubstring("there is no such plane"))
		Expect(none.out).To(ContainSubstring(`- model "m": algorithm: pulsar-wait-and-widen`), "the policy leaves its plane")
	})

	It("says so where the plugin knows other releases than the operator", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		text := planeText("") + policyText("a", "m"+flag)
		s.apply(text)
		s.ready()
		const doubt = "this plan is not what the operator will do; give --stargate-generations what the operator's manager has"
		Expect(s.plan(text).out).NotTo(ContainSubstring(doubt))
		other := routing(ctx, text, append([]string{"plan", "-f", "-"}, cluster(s.namespace)...)...)
		Expect(other.out).To(ContainSubstring(doubt))
	})

	It("of a new plane shows the first configuration, and the adoption that waits for the argument", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{Inline: `{"models":{"m":"random"}}`})
		a := s.plan(planeText("") + policyText("a", "m"))
		Expect(a.code).To(Equal(1), "%+v", a)
		Expect(a.out).To(ContainSubstring("the plane: unset -> is new"))
		Expect(a.out).To(ContainSubstring("Deployment/llm-request-router: 1 rollout"))
		Expect(a.out).To(ContainSubstring("Then it waits for somebody: Deployment llm-request-router points at /etc/llm-request-router/lb-config.json"))
	})
})

var _ = Describe("What is rendered", func() {
	It("is what the operator makes", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		text := planeText("") + policyText("a", "m"+flag, "k"+flag, "l")
		s.apply(text)
		s.ready()
		named := strings.ReplaceAll(text, "metadata: {", "metadata: {namespace: "+s.namespace+", ")
		for _, stage := range []string{"base", "gateway", "flags"} {
			a := routing(ctx, named, "render", "-f", "-", "--stage", stage, "--stargate-version", fixtures.TagV3, fixtures.GenerationsFlag())
			Expect(a.code).To(Equal(0), "%+v", a)
			for document := range strings.SplitSeq(a.out, "---\n") {
				var rendered, live corev1.ConfigMap
				Expect(yaml.UnmarshalStrict([]byte(document), &rendered)).To(Succeed())
				Expect(admin.Get(ctx, client.ObjectKeyFromObject(&rendered), &live)).To(Succeed())
				Expect(live.Data).To(Equal(rendered.Data))
				Expect(live.Labels).To(Equal(rendered.Labels))
				Expect(live.Immutable).To(Equal(rendered.Immutable))
				for key, value := range rendered.Annotations {
					Expect(live.Annotations).To(HaveKeyWithValue(key, value))
				}
			}
		}
	})
})

var _ = Describe("The status", func() {
	It("tells a pipeline Ready by 0, held by 3 and Stalled by 1", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m"))
		a := s.watch()
		Expect(a.code).To(Equal(0), "%+v", a)
		Expect(a.out).To(MatchRegexp(`(?m)^\S+Z  cli-\S+/llm, Ready, stage Settled, llm-request-router 2/2 pods up to date, llm-api-gateway 2/2 pods up to date: everything that the policies ask for is in effect$`))
		Expect(s.ok("status")).To(HavePrefix("plane " + s.namespace + "/llm  Ready, stage Settled\n"))
		Expect(s.ok("status", "llm")).To(ContainSubstring("2 of 2 ready  llm-stargate-"))

		By("paused, with something to do")
		Expect(s.ok("pause", "llm")).To(HavePrefix("plane " + s.namespace + "/llm is paused; resume it with: kubectl routing resume llm"))
		s.apply(policyText("a", "m", "k"))
		a = s.watch()
		Expect(a.code).To(Equal(3), "%+v", a)
		Expect(a.out).To(ContainSubstring("paused: "))
		a = s.routing("status", "llm", "--watch", "--timeout", "1ms")
		Expect(a.code).To(BeElementOf(3, 4), "%+v", a)
		Expect(s.ok("resume", "llm")).To(Equal("plane " + s.namespace + "/llm goes on\n"))
		s.ready()
		Expect(s.ok("resume", "llm")).To(Equal("plane " + s.namespace + "/llm was not paused\n"))

		By("stalled")
		s.kubectl("patch", "rpl", "llm", "--type=merge", "-p", `{"spec":{"rollout":{"pin":"nowhere"}}}`)
		a = s.watch()
		Expect(a.code).To(Equal(1), "%+v", a)
		Expect(a.out).To(ContainSubstring("Stalled"))
		Expect(a.out).To(ContainSubstring("spec.rollout.pin names nowhere"))

		By("a plane that is not there")
		a = s.routing("status", "nowhere", "--watch")
		Expect(a.code).To(Equal(2))
		Expect(a.err).To(Equal("error: there is no plane " + s.namespace + "/nowhere; kubectl get rpl -A lists those there are\n"))
	})

	It("names the policies that the plane does not take, and ends with 1 for them where that is asked for", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m"))
		s.ready()
		Expect(s.routing("status", "llm", "--watch", "--strict").code).To(Equal(0))
		s.apply(policyText("b", "m"))
		refused := "policy " + s.namespace + "/b is not in effect as it is: "
		a := s.watch()
		Expect(a.code).To(Equal(0), "%+v", a)
		Expect(a.out).To(ContainSubstring(refused))
		a = s.routing("status", "llm", "--watch", "--strict", "--interval", "50ms", "--timeout", patience.String())
		Expect(a.code).To(Equal(1), "%+v", a)
		Expect(a.out).To(ContainSubstring(refused))
	})

	It("ends with 4 when it takes too long, and says what it waited for", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{Inline: `{}`})
		s.apply(planeText(""))
		Eventually(func() string { return s.ok("status", "llm") }, soon).Should(ContainSubstring("is mounted and not read"))
		a := s.routing("status", "llm", "--watch", "--timeout", "100ms", "--interval", "10ms")
		Expect(a.code).To(Equal(4), "%+v", a)
		Expect(a.err).To(HavePrefix("error: timed out after 100ms: "))
		Expect(a.err).To(ContainSubstring("is mounted and not read"))
	})

	It("of several planes is a line for each", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + "---\n" + strings.ReplaceAll(planeText(""), "llm", "other"))
		Expect(strings.Count(s.ok("status"), "\n")).To(Equal(2))
		a := s.routing("status", "--watch")
		Expect(a.code).To(Equal(2))
		Expect(a.err).To(ContainSubstring("has 2 planes; name the one to watch"))
	})
})

var _ = Describe("Going back", func() {
	It("holds the revision before, whatever the policies say, until somebody unpins", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m"))
		s.ready()
		first := s.plane().Status.Stargate.Revision
		s.apply(policyText("a", "m , seed: x", "k"))
		s.ready()
		second := s.plane().Status.Stargate.Revision
		Expect(second).NotTo(Equal(first))

		history := s.ok("history", "llm")
		heading, _, _ := strings.Cut(history, "\n")
		Expect(strings.Fields(heading)).To(Equal([]string{"REVISION", "AGE", "MODELS", "FLAGS", "WAVE", "STATE"}))
		Expect(history).To(MatchRegexp(second + `\s+\d+s\s+2\s+0\s+0\s+current, on 2 pods, complete \d+s ago`))
		Expect(history).To(MatchRegexp(first + `\s+\d+s\s+1\s+0\s+0\s+complete \d+s ago`))

		Expect(s.complete("rollback", "llm", "--to", first)).To(HavePrefix(first + "\n:4\n"))
		a := s.routing("rollback", "llm")
		Expect(a.code).To(Equal(2), "nobody is there to say yes")
		Expect(a.err).To(ContainSubstring("- model \"k\": algorithm: pulsar-wait-and-widen"))
		Expect(a.err).To(ContainSubstring("every session is placed anew"))
		Expect(a.err).To(HaveSuffix("error: nothing was changed: there is no terminal to ask on; add --yes to agree beforehand\n"))
		Expect(s.plane().Spec.Rollout.Pin).To(BeEmpty())

		out := s.ok("rollback", "llm", "--yes")
		Expect(out).To(ContainSubstring("is pinned to " + first))
		Expect(out).To(ContainSubstring("kubectl routing unpin llm -n " + s.namespace))
		Expect(out).To(ContainSubstring("Who is told: "))
		a = s.watch()
		Expect(a.code).To(Equal(3), "%+v", a)
		Expect(a.out).To(ContainSubstring("pinned: held at " + first))
		Expect(s.plane().Status.Stargate.Revision).To(Equal(first))
		Expect(s.ok("history", "llm")).To(MatchRegexp(first + `.*pinned, current, on 2 pods`))
		Expect(s.plan(policyText("a", "m , seed: z", "k")).out).To(ContainSubstring("note: the plane is pinned to " + first))

		a = s.routing("rollback", "llm", "--yes")
		Expect(a.code).To(Equal(2), "the one before is the one that was fled from")
		Expect(a.err).To(ContainSubstring("the plane is pinned to " + first + " already; name the revision to hold instead with --to"))

		By("somebody applies from Git again, which says nothing about a pin")
		s.apply(planeText("") + policyText("a", "m , seed: x", "k"))
		Expect(s.plane().Spec.Rollout.Pin).To(Equal(first))

		Expect(s.ok("unpin", "llm")).To(Equal("plane " + s.namespace + "/llm follows its policies again\n"))
		s.ready()
		Expect(s.plane().Status.Stargate.Revision).To(Equal(second))
		Expect(s.ok("unpin", "llm")).To(Equal("plane " + s.namespace + "/llm was not pinned\n"))

		By("a revision that is none")
		a = s.routing("rollback", "llm", "--to", "llm-stargate-none", "--yes")
		Expect(a.code).To(Equal(2))
		Expect(a.err).To(ContainSubstring("llm-stargate-none is no Stargate revision of the plane that can be read"))
	})

	It("warns where the field is applied from somewhere", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText(", paused: false"))
		s.ready()
		a := s.routing("pause", "llm")
		Expect(a.code).To(Equal(0))
		Expect(a.err).To(ContainSubstring("warning: kubectl-client-side-apply applies spec.rollout.paused too and may set it back; say the same in its source\n"))
	})
})

var _ = Describe("A pipeline that follows a plane", func() {
	It("waits for what was deleted too, and for a change of flags alone", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m") + policyText("b", "k"))
		s.ready()
		s.kubectl("delete", "rp", "b", "--wait=false")
		Expect(s.watch().code).To(Equal(0))
		Expect(s.plane().Status.Models).To(BeEquivalentTo(1))

		s.apply(policyText("a", "m"+flag))
		Expect(s.watch().code).To(Equal(0))
		Expect(s.plane().Status.Flags.On).To(BeEquivalentTo(1))
	})
})

var _ = Describe("A retry", func() {
	It("has what failed tried again", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m"))
		s.ready()
		remove := kubelet.When(func(pod *corev1.Pod) bool {
			return pod.Namespace == s.namespace && strings.HasPrefix(pod.Name, fixtures.Router)
		}, func(b *standin.Behaviour) { b.Crash = "no space left on device" })
		DeferCleanup(remove)
		s.apply(policyText("a", "m", "k"))
		a := s.watch()
		Expect(a.code).To(Equal(1), "%+v", a)
		Expect(a.out).To(ContainSubstring("failed on Deployment llm-request-router"))
		Expect(s.ok("history", "llm")).To(ContainSubstring("failed: "))
		remove()
		Expect(s.ok("retry", "llm")).To(MatchRegexp(`(?s)^plane \S+ tries again:\n  llm-stargate-\S+ on Deployment/llm-request-router: .*\n$`))
		s.ready()
		Expect(s.plane().Status.Models).To(BeEquivalentTo(2))
		Expect(s.ok("retry", "llm")).To(ContainSubstring("has no failure on record"))
	})
})

var _ = Describe("Letting go", func() {
	argument := func(s *site, path string) {
		GinkgoHelper()
		Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			d := s.deployment(fixtures.Router)
			for i := range d.Spec.Template.Spec.Containers {
				c := &d.Spec.Template.Spec.Containers[i]
				for j := range c.Args {
					if strings.HasPrefix(c.Args[j], "--lb-config-path") {
						c.Args[j] = path
					}
				}
			}
			return admin.Update(s.ctx, d)
		})).To(Succeed())
	}
	free := func(s *site) {
		GinkgoHelper()
		for _, name := range []string{fixtures.Router, fixtures.Gateway} {
			d := s.deployment(name)
			Expect(d.Annotations).NotTo(HaveKey("routing.nvcf.io/plane"))
			for _, v := range d.Spec.Template.Spec.Volumes {
				Expect(v.Name).NotTo(Equal("routing-lb-config"))
			}
			for _, c := range d.Spec.Template.Spec.Containers {
				for _, e := range c.Env {
					Expect(e.Name).NotTo(HavePrefix("STARGATE_LAST_CLUSTER_"))
				}
			}
		}
	}

	It("says what would break, and lets go once nothing does", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m"+flag))
		s.ready()
		a := s.routing("release", "llm", "--yes")
		Expect(a.code).To(Equal(1), "%+v", a)
		Expect(a.err).To(ContainSubstring("Deployment llm-request-router still starts Stargate with --lb-config-path=/etc/routing-operator/lb-config.json"))
		Expect(a.err).To(HaveSuffix("Nothing was changed\n"))
		Expect(s.plane().DeletionTimestamp).To(BeNil())

		argument(s, "--readiness-warmup-ms=1000")
		Expect(s.routing("release", "llm").err).To(HaveSuffix("error: nothing was changed: there is no terminal to ask on; add --yes to agree beforehand\n"))
		out := s.ok("release", "llm", "--yes", "--timeout", patience.String())
		Expect(out).To(ContainSubstring("plane " + s.namespace + "/llm is gone\n"))
		free(s)
		Expect(s.ok("release", "llm", "--yes")).To(ContainSubstring("no workload in the namespace has anything of one"))
	})

	It("lets go of what a deleted plane left, once the argument has moved", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m"))
		s.ready()
		s.kubectl("delete", "rpl", "llm", "--timeout=60s")
		Expect(s.routing("release", "llm", "--yes").code).To(Equal(1), "the argument still points at the file")
		Expect(s.deployment(fixtures.Router).Spec.Template.Spec.Volumes).To(ContainElement(HaveField("Name", "routing-lb-config")))
		argument(s, "--readiness-warmup-ms=1000")
		Expect(s.routing("release", "llm", "--yes").err).To(ContainSubstring("has no argument --lb-config-path"))
		out := s.ok("release", "llm", "--yes", "--unread")
		Expect(out).To(ContainSubstring("let go of Deployment llm-request-router\n"))
		Expect(out).To(ContainSubstring("kubectl delete configmap -n " + s.namespace))
		free(s)
	})

	It("refuses where the operator would not let go", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{Inline: `{}`})
		for change, want := range map[string]string{
			`{"spec":{"deletionPolicy":"Retain"}}`:             "spec.deletionPolicy is Retain",
			`{"spec":{"rollout":{"paused":true}}}`:             "the plane is paused",
			`{"spec":{"stargate":{"configPathCheck":"Skip"}}}`: "configPathCheck is Skip",
		} {
			s.apply(planeText(""))
			s.kubectl("patch", "rpl", "llm", "--type=merge", "-p", change)
			a := s.routing("release", "llm", "--yes")
			Expect(a.code).To(Equal(1), "%s: %+v", change, a)
			Expect(a.err).To(ContainSubstring(want))
			s.kubectl("patch", "rpl", "llm", "--type=merge", "-p", `{"spec":{"deletionPolicy":"Retain","stargate":{"configPathCheck":"Arguments"},"rollout":{"paused":null}}}`)
			s.kubectl("delete", "rpl", "llm", "--timeout=60s")
			s.ok("release", "llm", "--yes")
		}
	})
})

var _ = Describe("What is imported", func() {
	It("is taken by the API server, and means what runs", func(ctx SpecContext) {
		const inline = `{"default":"random","models":{"m":{"algorithm":"groq-multiregion","n":3},"k":"powerOf2"},"request_algorithms":{"pulsar":"pulsar"}}`
		s := newSite(ctx, fixtures.Stargate{Inline: inline})
		file := s.kubectl("get", "configmap", "llm-request-router-lb", "-o", `jsonpath={.data.lb-config\.json}`)
		a := routing(ctx, file, "import", "--lb-config", "-", "-n", s.namespace, "--stargate-version", "V3")
		Expect(a.code).To(Equal(0), "%+v", a)
		Expect(routing(ctx, a.out, "validate", "-f", "-").code).To(Equal(0))
		s.apply(a.out)
		watched := s.watch()
		Expect(watched.code).To(Equal(3), "%+v", watched)
		plan := s.plan(a.out)
		Expect(plan.code).To(Equal(0), "%+v", plan)
		Expect(plan.out).To(ContainSubstring("the plane is paused: this is what happens once it is resumed"))
		s.ok("resume", "llm")
		Eventually(func() string { return s.ok("history", "llm") }, patience).Should(ContainSubstring("complete"))
		var list corev1.ConfigMapList
		Expect(admin.List(ctx, &list, client.InNamespace(s.namespace), client.MatchingLabels{"routing.nvcf.io/plane": "llm"})).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(list.Items[0].Data["lb-config.json"]).To(MatchJSON(
			`{"default":"random","models":{"m":{"algorithm":"wait-and-widen","n":3},"k":"power-of-n"},"request_algorithms":{"pulsar":"pulsar"}}`))
	})
})

var _ = Describe("The plugin", func() {
	It("is found by kubectl, and completes live names", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + "---\n" + strings.ReplaceAll(planeText(""), "llm", "other"))
		folder, err := operator.BuildPlugin(ctx, env)
		Expect(err).NotTo(HaveOccurred())
		kubectl := env.Kubectl(ctx, "routing", "status", "-n", s.namespace)
		kubectl.Env = append(kubectl.Env, "PATH="+folder+string(os.PathListSeparator)+os.Getenv("PATH"))
		Expect(run(kubectl)).To(ContainSubstring(s.namespace + "/llm, "))

		Expect(s.complete("status", "")).To(HavePrefix("llm\nother\n:4\n"))
		Expect(s.complete("status", "o")).To(HavePrefix("other\n:4\n"))
		Expect(s.complete("rollback", "llm", "")).To(HavePrefix(":4\n"))
		Expect(s.complete("status", "--namespace", "cli-")).To(ContainSubstring(s.namespace + "\n"))
	})
})

var _ = Describe("A person without the right", func() {
	It("is told so", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText(""))
		a := s.routing("pause", "llm", "--as", "nobody")
		Expect(a.code).To(Equal(2))
		Expect(a.err).To(ContainSubstring("is forbidden"))
		Expect(s.plane().Spec.Rollout.Paused).To(BeFalse())
	})
})
