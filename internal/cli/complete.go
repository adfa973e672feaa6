package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// completionPatience is how long a shell waits for names from a cluster.
const completionPatience = 3 * time.Second

// complete adds the completion of contexts and namespaces.
func (f *clusterFlags) complete(c *cobra.Command) {
	names := func(list func(context.Context) []string) cobra.CompletionFunc {
		return func(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			ctx, cancel := context.WithTimeout(c.Context(), completionPatience)
			defer cancel()
			return beginningWith(prefix, list(ctx)), cobra.ShellCompDirectiveNoFileComp
		}
	}
	_ = c.RegisterFlagCompletionFunc("namespace", names(f.namespaces))
	_ = c.RegisterFlagCompletionFunc("context", names(func(context.Context) []string {
		raw, err := f.flags.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil
		}
		var all []string
		for name := range raw.Contexts {
			all = append(all, name)
		}
		return all
	}))
	c.ValidArgsFunction = func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || c.Args == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(f.planes)(c, args, prefix)
	}
}

func beginningWith(prefix string, all []string) []string {
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	slices.Sort(all)
	return all
}

// planes are the names of the planes in the namespace that is meant.
func (f *clusterFlags) planes(ctx context.Context) (names []string) {
	c, namespace, err := f.connect()
	if err != nil {
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

func (f *clusterFlags) namespaces(ctx context.Context) (names []string) {
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
