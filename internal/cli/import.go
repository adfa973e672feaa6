package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/importer"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
)

type importOptions struct {
	*app
	stargate stargateFlags

	lbConfig    string
	helmValues  []string
	withoutFile bool
	gatewayEnv  map[string]string

	plane, namespace, policy    string
	split, paused               bool
	workload, container         string
	gateways                    []string
	gatewayContainer, outFolder string
}

func (a *app) importCommand() *cobra.Command {
	o := &importOptions{app: a}
	c := &cobra.Command{
		Use:   "import (--lb-config FILE | --helm-values FILE... | --without-file)",
		Short: "Turn a running site's configuration into a RoutingPlane and RoutingPolicies",
		Long: `Reads the lb-config.json of a running router, or the Helm values that hold it, exactly as strictly as
Stargate does, and writes a RoutingPlane and RoutingPolicies that mean the same.

What Stargate refuses is refused, with the place. What Stargate drops or ignores in silence is a warning. In Helm
values the file is at llmRequestRouter.loadBalancer.config or addons.llm.requestRouter.loadBalancer.config; the
gateways' STARGATE_LAST_CLUSTER_* are found wherever the values have them. Values without a file are those of a router
that lets a request choose any algorithm, and so does the plane then.

The plane comes paused: once applied it says what it would do, and does it after "kubectl routing resume".`,
		Example: `  # From the cluster
  kubectl get configmap llm-request-router-lb -n nvcf -o jsonpath='{.data.lb-config\.json}' |
    kubectl routing import --lb-config - --plane llm -n nvcf > routing.yaml

  # From Helm values, one policy for each model, into a folder
  helm get values llm-request-router -n nvcf -o yaml > values.yaml
  kubectl routing import --helm-values values.yaml --split -n nvcf --out routing/

  # A router that runs without a file
  kubectl routing import --without-file -n nvcf`,
		Args: noArguments("--lb-config or --helm-values"),
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	f := c.Flags()
	f.StringVar(&o.lbConfig, "lb-config", "", "`file` with the router's lb-config.json; - for standard input")
	f.StringArrayVar(&o.helmValues, "helm-values", nil, "`file` with Helm values; repeatable, later ones win; - for standard input")
	f.BoolVar(&o.withoutFile, "without-file", false, "the router runs without a file")
	f.StringToStringVar(&o.gatewayEnv, "gateway-env", nil, "a gateway's `variable`, STARGATE_LAST_CLUSTER_TTL=15m; repeatable")
	f.Lookup("gateway-env").DefValue = ""
	f.StringVar(&o.plane, "plane", "llm", "`name` of the plane")
	f.StringVarP(&o.namespace, "namespace", "n", "", "`namespace` of plane and policies; left out where not given")
	f.StringVar(&o.policy, "policy", "", "`name` of the policy; numbered where one policy does not hold all models (default: the plane's)")
	f.BoolVar(&o.split, "split", false, "make one policy for each model")
	f.BoolVar(&o.paused, "paused", true, "have the plane change nothing until it is resumed")
	f.StringVar(&o.workload, "stargate", "Deployment/llm-request-router", "the router's `workload`, a Deployment or StatefulSet")
	f.StringVar(&o.container, "stargate-container", "helm-nvcf-llm-request-router", "`name` of the container that runs Stargate")
	f.StringArrayVar(&o.gateways, "gateway", []string{"Deployment/llm-api-gateway"}, "a gateway's `workload`; repeatable; empty for none")
	f.StringVar(&o.gatewayContainer, "gateway-container", "helm-nvcf-llm-api-gateway", "`name` of the container that runs the gateway")
	f.StringVar(&o.outFolder, "out", "", "`folder` to write a file for each object to, instead of standard output")
	o.stargate.add(c, "default: the tag of the image in the Helm values, else the newest generation")
	c.MarkFlagsOneRequired("lb-config", "helm-values", "without-file")
	c.MarkFlagsMutuallyExclusive("lb-config", "helm-values", "without-file")
	return c
}

func (o *importOptions) run() error {
	options, err := o.options()
	if err != nil {
		return err
	}
	config, values, err := o.read()
	if err != nil {
		return err
	}
	maps.Copy(values.Gateway, o.gatewayEnv)
	var on bool
	if options.LastCluster, on, err = importer.LastCluster(values.Gateway); err != nil {
		return &exit{exitProblems, err}
	}
	plane, policies, err := importer.Objects(config, options)
	if err != nil {
		return &exit{exitProblems, err}
	}
	if on {
		fmt.Fprintf(o.ErrOut, "note: the gateways have their memory on already; it counts, and stays the chart's while its settings agree with spec.lastCluster\n")
	}
	if err := o.write(plane, policies); err != nil {
		return err
	}
	fmt.Fprintf(o.ErrOut, "imported %s into plane %s and %s\n", count(len(config.Models), "model", "models"), plane.Name, count(len(policies), "policy", "policies"))
	return nil
}

func (o *importOptions) options() (importer.Options, error) {
	policy := cmp.Or(o.policy, o.plane)
	for _, named := range []struct{ flag, name string }{{"--plane", o.plane}, {"--policy", policy}} {
		if problems := validation.NameIsDNSSubdomain(named.name, false); len(problems) > 0 {
			return importer.Options{}, fmt.Errorf("%s: %q can be no object's name: %s", named.flag, named.name, strings.Join(problems, "; "))
		}
	}
	if problems := validation.ValidateNamespaceName(o.namespace, false); o.namespace != "" && len(problems) > 0 {
		return importer.Options{}, fmt.Errorf("--namespace: %q can be no namespace's name: %s", o.namespace, strings.Join(problems, "; "))
	}
	for _, name := range slices.Sorted(maps.Keys(o.gatewayEnv)) {
		if !slices.Contains(render.GatewayVariableNames(), name) {
			return importer.Options{}, fmt.Errorf("--gateway-env: %s is none of the gateways' variables about the last cluster: %s", name, strings.Join(render.GatewayVariableNames(), ", "))
		}
	}
	options := importer.Options{Plane: o.plane, Namespace: o.namespace, Policy: policy, Split: o.split, Paused: o.paused}
	stargate, err := workloadRef("--stargate", o.workload)
	if err != nil {
		return importer.Options{}, err
	}
	options.Stargate = v1alpha1.StargateSpec{WorkloadRef: stargate, Container: o.container}
	for _, gateway := range o.gateways {
		if gateway == "" {
			continue
		}
		ref, err := workloadRef("--gateway", gateway)
		if err != nil {
			return importer.Options{}, err
		}
		options.Gateways = append(options.Gateways, v1alpha1.GatewaySpec{WorkloadRef: ref, Container: o.gatewayContainer})
	}
	return options, nil
}

func workloadRef(flag, text string) (v1alpha1.WorkloadReference, error) {
	kind, name, ok := strings.Cut(text, "/")
	for _, known := range []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
		if ok && strings.EqualFold(kind, known) {
			return v1alpha1.WorkloadReference{Kind: known, Name: name}, nil
		}
	}
	return v1alpha1.WorkloadReference{}, fmt.Errorf("%s: %q names no workload; write Deployment/NAME or StatefulSet/NAME", flag, text)
}

// read reads the configuration and prints the warnings about it.
func (o *importOptions) read() (render.Config, importer.Values, error) {
	text, values, err := o.source()
	if err != nil {
		return render.Config{}, values, err
	}
	generation, err := o.generation(values.Tag)
	if err != nil {
		return render.Config{}, values, err
	}
	if text == nil {
		if values.ConfigPath != "" {
			return render.Config{}, values, &exit{exitProblems, fmt.Errorf("%s: the chart passes %s as the path of a file that somebody else mounts; read that file from its ConfigMap, and import it with --lb-config",
				values.ConfigPathAt, values.ConfigPath)}
		}
		switch {
		case o.withoutFile:
		case values.Foreign:
			fmt.Fprintf(o.ErrOut, "warning: the values say nothing of a router: there is neither llmRequestRouter nor addons.llm.requestRouter; if they are a router's all the same, it runs without a file and lets a request choose any algorithm, as the plane does\n")
		default:
			fmt.Fprintf(o.ErrOut, "note: the values hold no lb-config.json, so the router lets a request choose any algorithm; the plane does the same\n")
		}
		return importer.WithoutFile(), values, nil
	}
	config, warnings, err := importer.Read(*text, generation)
	for _, warning := range warnings {
		fmt.Fprintf(o.ErrOut, "warning: %s\n", warning)
	}
	if err != nil {
		err = &exit{exitProblems, err}
	}
	return config, values, err
}

// source finds the file, or nil where the router runs without one.
func (o *importOptions) source() (*importer.Text, importer.Values, error) {
	none := importer.Values{Gateway: map[string]string{}}
	if o.lbConfig != "" {
		data, err := o.readFile(o.lbConfig)
		return &importer.Text{Name: displayName(o.lbConfig), Data: data, FirstLine: 1}, none, err
	}
	var files []importer.Text
	for _, name := range o.helmValues {
		data, err := o.readFile(name)
		if err != nil {
			return nil, none, err
		}
		files = append(files, importer.Text{Name: displayName(name), Data: data})
	}
	values, err := importer.ReadValues(files)
	if err != nil {
		return nil, none, &exit{exitProblems, err}
	}
	return values.Config, values, nil
}

// generation that was stated, else that of the image's tag, else the newest.
func (o *importOptions) generation(tag string) (release.Generation, error) {
	if generation, stated, err := o.stargate.generation(); stated || err != nil {
		return generation, err
	}
	if generation, err := o.stargate.parse(tag); err == nil {
		return generation, nil
	}
	if !o.withoutFile {
		fmt.Fprintf(o.ErrOut, "note: read as Stargate of the newest generation, %s, reads it; --stargate-version names the one that runs\n", release.Newest)
	}
	return release.Newest, nil
}

// write prints the objects, or writes a file for each.
func (o *importOptions) write(plane *v1alpha1.RoutingPlane, policies []*v1alpha1.RoutingPolicy) error {
	type object struct {
		file string
		gvk  schema.GroupVersionKind
		meta metav1.ObjectMeta
		spec any
	}
	objects := []object{{"plane-" + plane.Name + ".yaml", plane.GroupVersionKind(), plane.ObjectMeta, plane.Spec}}
	for _, policy := range policies {
		objects = append(objects, object{"policy-" + policy.Name + ".yaml", policy.GroupVersionKind(), policy.ObjectMeta, policy.Spec})
	}
	documents := map[string][]byte{}
	var names []string
	for _, object := range objects {
		data, err := importer.YAML(object.gvk, object.meta, object.spec)
		if err != nil {
			return err
		}
		names, documents[object.file] = append(names, object.file), data
	}
	if o.outFolder == "" {
		return o.print(names, documents)
	}
	return writeFolder(o.outFolder, names, documents)
}

// writeFolder writes files into a folder, which is made where it is missing.
func writeFolder(folder string, names []string, content map[string][]byte) error {
	for _, name := range names {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("making the folder: %w", err)
		}
		if err := os.WriteFile(file, content[name], 0o644); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return nil
}

// readFile reads a file, or standard input for "-".
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		data, err := io.ReadAll(a.In)
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		if len(data) == 0 {
			return nil, errors.New("standard input is empty")
		}
		return data, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	return data, nil
}

func displayName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}
