package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/effective"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/review"
	"github.com/routing-operator/routing-operator/internal/revision"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Stages that can be rendered.
const (
	stageBase    = "base"
	stageGateway = "gateway"
	stageFlags   = "flags"
)

type renderOptions struct {
	*app
	files     filesFlags
	stage     string
	outFolder string
}

func (a *app) renderCommand() *cobra.Command {
	o := &renderOptions{app: a}
	c := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Show the ConfigMaps that the operator would make",
		Long: `Renders the planes and policies in the files to the very ConfigMaps that the operator would make of them, for review
in a pull request.

The stages are those of a rollout: base is the router's file without any lastClusterAffinity flag; gateway adds the
variables of the gateways' memory; flags is the end, the file with all flags on. Fields that the release of Stargate
does not know are left out and named.`,
		Example: `  # What the change makes of the router's file, beside the file of the main branch
  kubectl routing render -f routing/ --stargate-version 0.18.0 --out rendered/
  git diff --no-index ../main/rendered rendered`,
		Args: noArguments("-f"),
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	o.files.add(c, "default: the newest generation")
	c.Flags().StringVar(&o.stage, "stage", stageFlags, "base, gateway or flags")
	c.Flags().StringVar(&o.outFolder, "out", "", "`folder` to write a file for each ConfigMap to, instead of standard output")
	_ = c.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions([]string{stageBase, stageGateway, stageFlags}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (o *renderOptions) run() error {
	if o.stage != stageBase && o.stage != stageGateway && o.stage != stageFlags {
		return fmt.Errorf("--stage: %q is none; there are base, gateway and flags", o.stage)
	}
	generation, stated, err := o.files.stargate.generation()
	if err != nil {
		return err
	}
	set, result, err := o.files.review(o.files.names, o.In, review.Options{ErrorsOnly: true})
	if err != nil {
		return err
	}
	if err := o.refuseErrors(&result); err != nil {
		return err
	}
	if message := nothing(&set); message != "" {
		fmt.Fprintf(o.ErrOut, "warning: %s\n", message)
		return nil
	}
	if !stated {
		generation = release.Newest
		fmt.Fprintf(o.ErrOut, "note: rendered for the newest generation of Stargate, %s; --stargate-version names the one that runs\n", generation)
	}
	var names []string
	content := map[string][]byte{}
	for _, site := range result.Sites {
		if !site.Merged.Fits() {
			return &exit{exitProblems, fmt.Errorf("plane %s: the largest lb-config.json that a rollout would need has %d bytes, and a ConfigMap can hold %d; take models out, or shorten seeds and request algorithms",
				keyText(site.Key), site.Merged.Size, site.Merged.Limit)}
		}
		for _, warning := range mergeWarnings(&site.Merged) {
			fmt.Fprintf(o.ErrOut, "warning: plane %s: %s\n", keyText(site.Key), warning)
		}
		made, err := o.configMaps(site, generation)
		if err != nil {
			return fmt.Errorf("plane %s: %w", keyText(site.Key), err)
		}
		for _, configMap := range made {
			data, err := yaml.Marshal(configMap)
			if err != nil {
				return fmt.Errorf("encoding ConfigMap %s: %w", configMap.Name, err)
			}
			file := filepath.Join(configMap.Namespace, fmt.Sprintf("%s-%s.yaml", site.Key.Name, configMap.Labels[revision.LabelArtefact]))
			names, content[file] = append(names, file), data
		}
	}
	return o.write(names, content)
}

// mergeWarnings say which models and policies did not make it into the configuration.
func mergeWarnings(merged *effective.Result) (warnings []string) {
	for _, policy := range slices.SortedFunc(maps.Keys(merged.Conflicts), compareKeys) {
		for _, conflict := range merged.Conflicts[policy] {
			warnings = append(warnings, fmt.Sprintf("RoutingPolicy %s: %s", keyText(policy), conflict.Message()))
		}
	}
	for _, leftOut := range merged.LeftOut {
		warnings = append(warnings, fmt.Sprintf("RoutingPolicy %s: %s", keyText(leftOut.Policy), leftOut.Message()))
	}
	return warnings
}

func compareKeys(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }

// keyText writes a name without the slash of a namespace that is left to whoever applies the object.
func keyText(name types.NamespacedName) string { return strings.TrimPrefix(name.String(), "/") }

// refuseErrors prints what is wrong with the files: a file that would be refused is rendered to nothing.
func (a *app) refuseErrors(result *review.Result) error {
	n := result.Count(review.Error)
	if n == 0 {
		return nil
	}
	for i := range result.Problems {
		if result.Problems[i].Severity != review.Error {
			continue
		}
		if err := printProblems(a.ErrOut, result.Problems[i:i+1]); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return &exit{exitProblems, errors.New(count(n, "error", "errors") + " in the files")}
}

// configMaps are those of the stage: the router's, and the gateways' where a flag wants their memory.
func (o *renderOptions) configMaps(site *review.Site, generation release.Generation) ([]*corev1.ConfigMap, error) {
	plane := v1alpha1.RoutingPlaneSpec{}
	if site.Plane == nil {
		fmt.Fprintf(o.ErrOut, "note: plane %s is not in the files; rendered with the defaults of a plane\n", keyText(site.Key))
		site.Merged.Config.DefaultAlgorithm = v1alpha1.PowerOfN
	} else {
		plane = site.Plane.Spec
	}
	wanted := render.Flags{}
	if site.Plane == nil || len(plane.Gateways) > 0 {
		wanted = render.Desired(site.Merged.Config)
	}
	on, wave := render.Flags{}, 0
	if o.stage == stageFlags {
		on, wave = wanted, rollout.CountWaves(rollout.Settings(&v1alpha1.RoutingPlane{Spec: plane}).Waves, len(render.Units(wanted)))
	}
	rendered, err := render.LBConfig(site.Merged.Config, on, generation)
	if err != nil {
		return nil, err
	}
	for _, omitted := range rendered.Omitted {
		fmt.Fprintf(o.ErrOut, "warning: plane %s: %s: %s is left out: it takes Stargate of generation %s\n", keyText(site.Key), omitted.Place, omitted.Field, omitted.Since)
	}
	if len(rendered.On) == 0 {
		wave = 0
	}
	all := []*corev1.ConfigMap{configMap(site, render.ArtefactStargate, map[string]string{render.LBConfigKey: string(rendered.Data)}, wave)}
	if o.stage != stageBase && wanted.Len() > 0 && generation >= release.V3 {
		all = append(all, configMap(site, render.ArtefactGateway, render.GatewayVariables(plane.LastCluster, true), 0))
	}
	return all, nil
}

func configMap(site *review.Site, artefact string, data map[string]string, wave int) *corev1.ConfigMap {
	plane := site.Key
	made := revision.New(plane.Namespace, plane.Name, render.RevisionName(plane.Name, artefact, data), artefact, data, wave)
	made.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	return made
}

func (o *renderOptions) write(names []string, content map[string][]byte) error {
	if o.outFolder != "" {
		return writeFolder(o.outFolder, names, content)
	}
	return o.print(names, content)
}

// print writes documents one after the other.
func (a *app) print(names []string, content map[string][]byte) error {
	for i, name := range names {
		if i > 0 {
			fmt.Fprintln(a.Out, "---")
		}
		if _, err := a.Out.Write(content[name]); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return nil
}
