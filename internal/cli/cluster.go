package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// fieldManager of what the plugin changes. It does not begin with kubectl: tools that apply from Git take the changes
// of kubectl's own managers back.
const fieldManager = "routing-cli"

// clusterFlags say which cluster and namespace are meant, as kubectl's do.
type clusterFlags struct {
	*app
	flags *genericclioptions.ConfigFlags
}

func (a *app) clusterFlags(c *cobra.Command) *clusterFlags {
	f := &clusterFlags{app: a, flags: genericclioptions.NewConfigFlags(true)}
	f.flags.AddFlags(c.Flags())
	f.complete(c)
	return f
}

// connect makes a client, and tells the namespace that is meant.
func (f *clusterFlags) connect() (client.Client, string, error) {
	namespace, _, err := f.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config, err := f.flags.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("finding the API server: %w", err)
	}
	config.QPS = -1                           // the API server limits by itself, and says so in words
	config.WarningHandler = rest.NoWarnings{} // they are about the whole of a plane of which a command changes one field
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return nil, "", fmt.Errorf("making a client: %w", err)
	}
	return c, namespace, nil
}

// scheme has the kinds that the plugin reads.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	// The functions register types and fail on none.
	_ = errors.Join(corev1.AddToScheme(s), appsv1.AddToScheme(s), v1alpha1.AddToScheme(s))
	return s
}()

// mapper knows the resources of the kinds that the plugin reads, so that nobody has to be asked for them.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, group := range []struct {
		version schema.GroupVersion
		kinds   []string
	}{
		{v1alpha1.GroupVersion, []string{"RoutingPlane", "RoutingPolicy"}},
		{corev1.SchemeGroupVersion, []string{"ConfigMap", "Pod"}},
		{appsv1.SchemeGroupVersion, []string{"Deployment", "StatefulSet", "ReplicaSet", "ControllerRevision"}},
	} {
		for _, kind := range group.kinds {
			m.Add(group.version.WithKind(kind), meta.RESTScopeNamespace)
		}
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return m
}

// planeArgument is the one argument of most commands.
func planeArgument(use string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 1:
			return nil
		case 0:
			return fmt.Errorf("name a plane: kubectl routing %s", use)
		default:
			return fmt.Errorf("one plane at a time: kubectl routing %s", use)
		}
	}
}
