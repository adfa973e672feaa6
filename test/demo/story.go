package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

const planeName = "llm"

// story is told once, from installation to uninstallation.
type story struct {
	site   *site
	screen *screen
	checks *ledger

	begun    testenv.Mark
	watch    *planeWatch
	recorder *standin.Recorder
}

// tell goes through the chapters until one cannot be finished.
func (s *story) tell(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, chapter := range []func(context.Context) error{
		s.install, s.deploy, s.planes, s.refusals, s.enable, s.look, s.tune, s.withdraw, s.remove, s.settle,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) install(ctx context.Context) error {
	s.screen.begin("Install the operator")
	s.screen.say(`
install.yaml is what kustomize builds of config/default, with two differences: the manager's Deployment is left
out, since the manager runs here as a process, and the webhook's address is this machine's.`)
	arguments, err := s.site.writeInstallation(ctx, "install.yaml")
	if err != nil {
		return err
	}
	if s.begun, err = s.site.env.Mark(); err != nil {
		return err
	}
	for _, command := range []string{
		"kubectl apply --server-side -f install.yaml",
		"kubectl wait --for=condition=Established --timeout=2m crd/routingplanes.routing.nvcf.io crd/routingpolicies.routing.nvcf.io",
	} {
		if _, err := s.site.shell.must(ctx, s.site.admin, command); err != nil {
			return err
		}
	}
	if err := s.site.startManager(ctx, arguments); err != nil {
		return err
	}
	s.screen.say(`
The manager runs with a token of its service account: it can do what config/rbac lets it, and nothing else. It is
the leader, and has made the webhook's certificate and told the API server to trust it.`)
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	s.checks.note("The manager runs and leads", true, leader != "")
	if _, err := s.site.shell.must(ctx, s.site.admin, "kubectl get lease,secret -n "+operatorNamespace); err != nil {
		return err
	}
	if s.watch, err = watchPlane(ctx, s.site.client, s.explain); err != nil {
		return err
	}
	return s.answers(ctx)
}

func (s *story) leader(ctx context.Context) (holder string, err error) {
	err = until(ctx, "the manager to lead", func(ctx context.Context) (bool, string, error) {
		lease := &coordinationv1.Lease{}
		err := s.site.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "routing-operator"}, lease)
		holder = ptr.Deref(lease.Spec.HolderIdentity, "")
		return holder != "", fmt.Sprint(err), client.IgnoreNotFound(err)
	})
	return holder, err
}

func (s *story) deploy(ctx context.Context) error {
	s.screen.begin("A site: Stargate and the gateway, as their charts deploy them")
	s.screen.say(`
Stargate is told --lb-config-path=/etc/routing-operator/lb-config.json, and nobody has mounted a file there yet.
There is a second Deployment of Stargate's image, which no plane will name and nobody may touch.`)
	for _, command := range []string{
		"kubectl create namespace " + namespace,
		"kubectl apply -f stargate-deployment.yaml -f backend-router.yaml -f gateway.yaml -f people.yaml",
	} {
		if _, err := s.site.shell.must(ctx, s.site.admin, command); err != nil {
			return err
		}
	}
	s.recorder = s.site.kubelet.Record(namespace)
	if err := s.restarted(ctx); err != nil {
		return err
	}
	out, err := s.site.shell.must(ctx, s.site.admin, "kubectl get pods && kubectl logs deployment/llm-request-router --tail=1")
	if err != nil {
		return err
	}
	s.checks.shown("Stargate without a file does not start", out, "failed to read load balancer config")
	return s.authorized(ctx)
}

// restarted waits until a Stargate pod has found no file.
func (s *story) restarted(ctx context.Context) error {
	return until(ctx, "Stargate to find no file, and the gateway to run", func(context.Context) (bool, string, error) {
		crashed, running := 0, 0
		for _, pod := range s.site.kubelet.Pods(namespace) {
			switch {
			case pod.Owner == "Deployment/"+fixtures.Router && pod.Restarts > 0:
				crashed++
			case pod.Kind == standin.Gateway && pod.Ready:
				running++
			}
		}
		return crashed == 3 && running == 3, fmt.Sprintf("%d crashed, %d gateways run", crashed, running), nil
	})
}

// authorized waits until the operator's roles are part of admin and edit, which a controller sees to.
func (s *story) authorized(ctx context.Context) error {
	for user, resource := range map[string]string{"ana": "routingplanes", "ben": "routingpolicies"} {
		err := until(ctx, user+" to be allowed to create "+resource, func(ctx context.Context) (bool, string, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: resource,
				},
			}}
			err := s.site.client.Create(ctx, review)
			return review.Status.Allowed, review.Status.Reason, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *story) planes(ctx context.Context) error {
	s.screen.begin("A plane: one Stargate, and the gateways in front of it")
	s.screen.say(`
Ana, of the platform team, is an admin of the namespace. Carl may write planes, but not patch Deployments, which
the operator would do in his name: he is refused.`)
	out, err := s.site.shell.run(ctx, s.site.carl, "kubectl apply -f plane.yaml")
	if err != nil {
		return err
	}
	s.checks.refused("Plane by somebody who may not patch Deployments", out,
		`spec.stargate.workloadRef: Forbidden: user "carl" may not patch deployments.apps "llm-request-router"`,
		`spec.gateways[0].workloadRef: Forbidden: user "carl" may not patch deployments.apps "llm-api-gateway"`)

	s.screen.say("Ana's first try has two mistakes; both are in the answer.")
	out, err = s.site.shell.run(ctx, s.site.ana, "grep -n '#' plane-refused.yaml; kubectl apply -f plane-refused.yaml")
	if err != nil {
		return err
	}
	s.checks.refused("Plane with two mistakes", out, "spec.stargate.configPath: Invalid value: \"/run/stargate/lb-config.json\": configPath must not lie in /dev, /proc, /run",
		"spec.gateways: Invalid value: Deployment llm-request-router is the plane's Stargate workload and cannot be a gateway too")

	s.screen.say("Her second is accepted.")
	err = s.measure(ctx, "First plane", rollouts{stargate: 1}, "Base → Settled", func(ctx context.Context) error {
		if _, err := s.site.shell.must(ctx, s.site.ana, "cat plane.yaml && kubectl apply -f plane.yaml"); err != nil {
			return err
		}
		return s.follow(ctx, s.settled)
	})
	if err != nil {
		return err
	}
	s.screen.say(`
Stargate has its first file, without any model, and starts. A warm-up of five seconds, less than a memory lasts, may
be meant, and is a note in the status.`)
	out, err = s.site.shell.must(ctx, s.site.ana, "kubectl wait --for=condition=Ready rpl/llm && kubectl get pods && kubectl routing status llm")
	if err != nil {
		return err
	}
	s.checks.shown("kubectl routing status", out, "plane nvcf/llm Ready, stage Settled", "3 of 3 ready llm-stargate-", "spec.rollout.gatewayWarmup: shorter than lastCluster.ttl")
	return nil
}

func (s *story) refusals(ctx context.Context) error {
	s.screen.begin("Policies that would take the router down, or surprise their owner")
	s.screen.say(`
Ben owns models. At its next start Stargate would refuse a file with any of these mistakes, for all models; here
they are refused one step earlier, all of them in one answer.`)
	out, err := s.site.shell.run(ctx, s.site.ben, "cat refused.yaml; kubectl apply -f refused.yaml")
	if err != nil {
		return err
	}
	s.checks.refused("lastClusterAffinity on pulsar, an old name, sampleCount 65", out,
		"spec.models[0].lastClusterAffinity: Invalid value: lastClusterAffinity is not supported by algorithm pulsar; supported by: pulsar-wait-and-widen, wait-and-widen",
		`spec.models[1].algorithm: Invalid value: "power-of-two": this is a legacy alias; write its canonical name: power-of-n`,
		"spec.models[2].sampleCount: Invalid value: 65: sampleCount must be from 1 to 64")

	s.screen.say("A misspelt field is never dropped in silence, whichever way it is applied.")
	for _, command := range []string{"kubectl apply -f misspelt.yaml", "kubectl apply --server-side -f misspelt.yaml"} {
		out, err = s.site.shell.run(ctx, s.site.ben, command)
		if err != nil {
			return err
		}
		s.checks.refused("Misspelt field, "+strings.TrimSuffix(command, " -f misspelt.yaml"), out, "cacheAffinityWaitMS")
	}

	s.screen.say("What is merely unwise, or may be mended by the next object, is a warning: Git applies in any order.")
	out, err = s.site.shell.run(ctx, s.site.ben, "kubectl apply --dry-run=server -f unwise.yaml")
	if err != nil {
		return err
	}
	s.checks.warned("Unwise policy for an unknown plane", out,
		"spec.planeRef: there is no RoutingPlane nvcf/lml", "lastClusterAffinity has no effect on wait-and-widen without an affinity group", "maxQueueTimeFloorMs: above maxQueueTimeCeilMs")

	s.screen.say("What a field means, and for which algorithms, kubectl explains:")
	out, err = s.site.shell.run(ctx, s.site.ben, "kubectl explain rp.spec.models.lastClusterAffinity")
	if err != nil {
		return err
	}
	s.checks.shown("kubectl explain", out, "Default false", "For wait-and-widen", "Since generation V3")

	out, err = s.site.shell.run(ctx, s.site.ben, "kubectl get rp")
	if err != nil {
		return err
	}
	s.checks.shown("Nothing of all this was stored", out, "No resources found")
	return nil
}

func (s *story) enable(ctx context.Context) error {
	s.screen.begin("Session affinity for three models, in the order that is safe")
	s.screen.say(`
llama.yaml and others.yaml have five models; three ask for lastClusterAffinity, which takes the router first, then
the gateways' memory, then time for the memory to fill, and only then the flags: one model, then the others.`)
	expected := rollouts{stargate: 3, gateway: 1}
	const stages = "Base → GatewayMemory → Warmup → Flags → Settled"
	err := s.measure(ctx, "Affinity, in two waves", expected, stages, func(ctx context.Context) error {
		if _, err := s.site.shell.must(ctx, s.site.ben, "cat llama.yaml; kubectl apply -f llama.yaml -f others.yaml"); err != nil {
			return err
		}
		return s.follow(ctx, s.settled)
	})
	if err != nil {
		return err
	}
	out, err := s.site.shell.run(ctx, s.site.ben, "kubectl wait --for=condition=Ready --timeout=10s rp/llama rp/qwen rp/embeddings rpl/llm")
	if err != nil {
		return err
	}
	s.checks.shown("kubectl wait --for=condition=Ready", out, "llama condition met", "qwen condition met", "embeddings condition met", "llm condition met")
	return nil
}

// follow shows the plane as it changes until something has come about.
func (s *story) follow(ctx context.Context, awaited func(context.Context) error) error {
	end, err := s.site.shell.stream(ctx, s.site.ana, "kubectl get rpl llm --watch")
	if err != nil {
		return err
	}
	defer end()
	return awaited(ctx)
}

// explanations of the stages, for those who see them for the first time.
var explanations = map[v1alpha1.Stage]string{
	v1alpha1.StageBase:           "Base: Stargate gets its configuration, flags as they are",
	v1alpha1.StageGatewayMemory:  "GatewayMemory: every Stargate pod knows the header now, so the gateways may remember",
	v1alpha1.StageWarmup:         "Warmup: every gateway pod remembers; sessions come back one by one and fill the memory",
	v1alpha1.StageFlags:          "Flags: wave by wave, models use what the gateways remember",
	v1alpha1.StageSettled:        "Settled: everything asked for is in effect",
	v1alpha1.StageWithdrawFlags:  "WithdrawFlags: flags go first",
	v1alpha1.StageWithdrawMemory: "WithdrawMemory: no Stargate pod has a flag any more, so the gateways may forget",
	v1alpha1.StageRelease:        "Release: the operator lets go of its fields",
}

func (s *story) explain(stage v1alpha1.Stage) { s.screen.aside(explanations[stage]) }

func (s *story) look(ctx context.Context) error {
	s.screen.begin("What runs, and who says so")
	if err := s.quiet(ctx); err != nil {
		return err
	}
	quiet, err := s.site.env.Mark()
	if err != nil {
		return err
	}
	for _, command := range []string{
		"kubectl get rpl,rp",
		"kubectl get rpl llm -o jsonpath='{range .status.stargate.pods[*]}{.total} pods on {.revision}{\"\\n\"}{end}'",
		"kubectl get configmap $(kubectl get rpl llm -o jsonpath='{.status.stargate.revision}') -o jsonpath='{.data.lb-config\\.json}'",
		"kubectl events --for rpl/llm",
	} {
		if _, err := s.site.shell.must(ctx, s.site.ana, command); err != nil {
			return err
		}
	}
	s.screen.say("The truth, asked of what runs the pods, not of the operator: which bytes each pod read when it started.")
	byRevision, err := s.truth(ctx)
	if err != nil {
		return err
	}
	claimed := map[string]int32{}
	for _, count := range s.watch.plane().Status.Stargate.Pods {
		claimed[count.Revision] = count.Total
	}
	s.checks.note("Pods by revision: the truth, and the status", fmt.Sprint(byRevision), fmt.Sprint(claimed))
	all, _, err := s.writes(quiet)
	if err != nil {
		return err
	}
	s.checks.note("Writes of the operator while nothing changes", 0, all)
	return nil
}

func (s *story) tune(ctx context.Context) error {
	s.screen.begin("A change of a tuning field, and one that changes nothing")
	s.screen.say("300 ms of waiting become 250 for one model: one rollout of Stargate, and the flags stay on.")
	err := s.measure(ctx, "Tuning field", rollouts{stargate: 1}, "Base → Settled", func(ctx context.Context) error {
		if _, err := s.site.shell.must(ctx, s.site.ben, "kubectl patch rp llama --type=json -p '"+`[{"op":"replace","path":"/spec/models/0/cacheAffinityWaitMs","value":250}]`+"'"); err != nil {
			return err
		}
		return s.follow(ctx, s.settled)
	})
	if err != nil {
		return err
	}
	s.screen.say(`"0.10" means what "0.1" means: the same file, so nothing restarts.`)
	return s.measure(ctx, "Another spelling of the same", rollouts{}, "none", func(ctx context.Context) error {
		if _, err := s.site.shell.must(ctx, s.site.ben, `kubectl patch rp llama --type=json -p '[{"op":"replace","path":"/spec/models/0/cacheAffinityInputTokensScale","value":"0.10"}]'`); err != nil {
			return err
		}
		if err := s.settled(ctx); err != nil {
			return err
		}
		_, err := s.site.shell.must(ctx, s.site.ben, "kubectl get rp llama")
		return err
	})
}

func (s *story) withdraw(ctx context.Context) error {
	s.screen.begin("A policy goes")
	s.screen.say("Llama's two models leave the file, flags and all. Qwen still has its flag, so the gateways keep remembering.")
	return s.measure(ctx, "Deleted policy", rollouts{stargate: 1}, "WithdrawFlags → Settled", func(ctx context.Context) error {
		if _, err := s.site.shell.must(ctx, s.site.ben, "kubectl delete rp llama"); err != nil {
			return err
		}
		return s.follow(ctx, func(ctx context.Context) error {
			models := func(context.Context) (bool, string, error) {
				n := s.watch.plane().Status.Models
				return n == 3, fmt.Sprintf("%d models", n), nil
			}
			if err := until(ctx, "the plane to carry three models", models); err != nil {
				return err
			}
			return s.settled(ctx)
		})
	})
}

func (s *story) remove(ctx context.Context) error {
	s.screen.begin("The plane goes, backwards through the stages")
	err := s.measure(ctx, "Deleted plane", rollouts{stargate: 1, gateway: 1}, "WithdrawFlags → WithdrawMemory", func(ctx context.Context) error {
		if _, err := s.site.shell.must(ctx, s.site.ana, "kubectl delete rpl llm --wait=false"); err != nil {
			return err
		}
		return s.follow(ctx, s.gone)
	})
	if err != nil {
		return err
	}
	s.screen.say(`
Stargate's argument still names the operator's path, so the mount and the last file stay: a Stargate pod that is
restarted tomorrow starts. So do revisions that old ReplicaSets name, for kubectl rollout undo. The gateway is as
its chart made it. The policies that are left wait for another plane.`)
	if _, err := s.site.shell.must(ctx, s.site.ana, "kubectl events --for rpl/llm | tail -4"); err != nil {
		return err
	}
	if _, err := s.site.shell.must(ctx, s.site.ana, "kubectl get rpl,rp,configmaps,pods"); err != nil {
		return err
	}
	if _, err := s.truth(ctx); err != nil {
		return err
	}
	remembering, flagged := 0, 0
	for _, pod := range s.site.kubelet.Pods(namespace) {
		if pod.Memory && !pod.Terminating {
			remembering++
		}
		if len(pod.Flags) > 0 && !pod.Terminating {
			flagged++
		}
	}
	s.checks.note("Pods with a flag, and with the memory, in the end", "0, 0", fmt.Sprintf("%d, %d", flagged, remembering))
	return nil
}

var noRights = regexp.MustCompile(`(?i)forbidden|is not allowed`)

// settle looks back at the whole story.
func (s *story) settle(ctx context.Context) error {
	s.recorder.Stop()
	states := s.recorder.States()
	s.checks.note(fmt.Sprintf("In %d states of the pods: a flag without memory", len(states)), 0, forbidden(states))
	revision, err := s.revision(ctx, fixtures.BackendRouter)
	if err != nil {
		return err
	}
	s.checks.note("Rollouts of the second Deployment of Stargate's image", 0, revision-1)
	all, denied, err := s.writes(s.begun)
	if err != nil {
		return err
	}
	s.checks.note(fmt.Sprintf("Of %d writes of the operator: without the right", all), 0, denied)
	log, err := os.ReadFile(s.site.manager.LogFile)
	if err != nil {
		return fmt.Errorf("reading the manager's log: %w", err)
	}
	s.checks.note("Complaints about rights in the manager's log", 0, len(noRights.FindAll(log, -1)))
	return nil
}
