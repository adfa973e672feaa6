package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/revision"
)

// completionPatience is how long a shell waits for names from a cluster.
const completionPatience = 3 * time.Second

// names completes with what a function lists.
func names(list func(context.Context, []string) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionPatience)
		defer cancel()
		return beginningWith(prefix, list(ctx, args)), cobra.ShellCompDirectiveNoFileComp
	}
}

// complete adds the completion of contexts and namespaces.
func (f *clusterFlags) complete(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("namespace", names(f.namespaces))
	_ = c.RegisterFlagCompletionFunc("context", names(func(context.Context, []string) []string {
		raw, err := f.flags.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil
		}
		return slices.Collect(maps.Keys(raw.Contexts))
	}))
}

func beginningWith(prefix string, all []string) []string {
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	slices.Sort(all)
	return all
}

// planes are the names of the planes in the namespace that is meant, for the one argument there is.
func (f *clusterFlags) planes(ctx context.Context, args []string) (names []string) {
	c, namespace, err := f.connect()
	if err != nil || len(args) > 0 {
		return nil
	}
	var list v1alpha1.RoutingPlaneList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (f *clusterFlags) namespaces(ctx context.Context, _ []string) (names []string) {
	c, _, err := f.connect()
	if err != nil {
		return nil
	}
	var list corev1.NamespaceList
	if err := c.List(ctx, &list); err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// revisions are the names of the Stargate revisions of the plane that is the argument.
func (f *clusterFlags) revisions(ctx context.Context, args []string) (names []string) {
	c, namespace, err := f.connect()
	if err != nil || len(args) != 1 {
		return nil
	}
	labels := revision.Labels(args[0])
	labels[revision.LabelArtefact] = render.ArtefactStargate
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
