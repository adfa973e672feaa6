package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/statusview"
)

// Exit codes of status --watch, beside 0 for Ready and 1 for Stalled.
const (
	exitHeld    = 3
	exitTimeout = 4
)

type statusOptions struct {
	*app
	cluster  *clusterFlags
	watch    bool
	strict   bool
	interval time.Duration
	timeout  time.Duration
}

func (a *app) statusCommand() *cobra.Command {
	o := &statusOptions{app: a}
	c := &cobra.Command{
		Use:   "status [PLANE]",
		Short: "Show how far a plane is, and wait for it",
		Long: `Shows the stage of a plane, each workload's pods by the revision that they run, the flags, what is waited for, the
policies and the last transitions; without a name, every plane of the namespace.

With --watch it goes on until the plane is Ready and no policy on it is newer than what it runs (exit code 0), is
Stalled (1), or is held: paused with something to do, or pinned (3). With --timeout it ends with 4 when that takes too
long. Policies that the plane does not take, such as two that list one model, are named; they keep nobody else's from
being in effect, so they end in 1 with --strict only. On a terminal this is a live view, elsewhere a line for each change.`,
		Example: `  kubectl routing status llm -n nvcf

  # In a pipeline, after the merge was applied
  kubectl routing status llm -n nvcf --watch --timeout 45m`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return planeArgument("status [PLANE]")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), args) },
	}
	c.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on until the plane is Ready, Stalled or held")
	c.Flags().BoolVar(&o.strict, "strict", false, "end with 1, too, where the plane does not take a policy that names it")
	c.Flags().DurationVar(&o.interval, "interval", time.Second, "`time` between two looks")
	c.Flags().DurationVar(&o.timeout, "timeout", 0, "longest `time` to watch; 0 for no limit")
	o.cluster = a.clusterFlags(c)
	c.ValidArgsFunction = names(o.cluster.planes)
	return c
}

func (o *statusOptions) run(ctx context.Context, args []string) error {
	if o.interval <= 0 || o.timeout < 0 {
		return errors.New("--interval takes a time above 0, such as 1s, and --timeout one of 0 or more")
	}
	c, namespace, err := o.cluster.connect()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return o.all(ctx, c, namespace)
	}
	look := func(ctx context.Context) (*statusview.Snapshot, error) {
		return snapshot(ctx, c, types.NamespacedName{Namespace: namespace, Name: args[0]})
	}
	if o.watch {
		return o.follow(ctx, look)
	}
	s, err := look(ctx)
	if err != nil {
		return err
	}
	style := statusview.Plain
	if terminal := o.terminal(); terminal != nil {
		style = colours(terminal)
	}
	_, err = fmt.Fprint(o.Out, s.Text(o.clock.Now(), style))
	return err
}

// all shows every plane of the namespace. To watch, there has to be one.
func (o *statusOptions) all(ctx context.Context, c client.Client, namespace string) error {
	var list v1alpha1.RoutingPlaneList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing planes: %w", err)
	}
	switch {
	case len(list.Items) == 0:
		return fmt.Errorf("no plane in namespace %s; name the namespace with -n", namespace)
	case len(list.Items) == 1:
		return o.run(ctx, []string{list.Items[0].Name})
	case o.watch:
		return fmt.Errorf("namespace %s has %d planes; name the one to watch", namespace, len(list.Items))
	}
	for i := range list.Items {
		s, err := snapshot(ctx, c, client.ObjectKeyFromObject(&list.Items[i]))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(o.Out, s.Line()); err != nil {
			return err
		}
	}
	return nil
}

// snapshot reads a plane and the policies on it, as far as they can be seen. The policies come first, for the operator
// writes what became of them after the plane's status: they must not be newer than it.
func snapshot(ctx context.Context, c client.Client, key types.NamespacedName) (*statusview.Snapshot, error) {
	s := &statusview.Snapshot{Plane: &v1alpha1.RoutingPlane{}}
	if err := c.Get(ctx, key, s.Plane); err != nil { // says whose policies to read
		return nil, notFound(key, err)
	}
	var list v1alpha1.RoutingPolicyList
	namespace := metav1.NamespaceAll
	if from := s.Plane.Spec.AllowedPolicies.Namespaces.From; from == v1alpha1.NamespacesFromSame || from == "" {
		namespace = key.Namespace
	}
	err := c.List(ctx, &list, client.InNamespace(namespace))
	if s.Partial = apierrors.IsForbidden(err); s.Partial {
		err = c.List(ctx, &list, client.InNamespace(key.Namespace))
	}
	if err != nil {
		return nil, fmt.Errorf("listing policies: %w", err)
	}
	if err := c.Get(ctx, key, s.Plane); err != nil {
		return nil, notFound(key, err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil && history.PlaneOf(p.Namespace, &p.Spec) == key {
			s.Policies = append(s.Policies, *p)
		}
	}
	slices.SortFunc(s.Policies, func(a, b v1alpha1.RoutingPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s, nil
}

func notFound(key types.NamespacedName, err error) error {
	if apierrors.IsNotFound(err) && !notInstalled(err) {
		return fmt.Errorf("there is no plane %s; kubectl get rpl -A lists those there are", key)
	}
	return fmt.Errorf("reading plane %s: %w", key, err)
}

// terminal is the output where that is a terminal that can redraw.
func (o *statusOptions) terminal() *os.File {
	file, ok := o.Out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return file
}

// look reads the state of things.
type look func(context.Context) (*statusview.Snapshot, error)

// follow looks again and again until there is an outcome. A look that fails is tried again: API servers restart.
func (o *statusOptions) follow(ctx context.Context, look look) error {
	// The first look tells a name that is wrong from an API server that is away.
	s, err := look(ctx)
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	if terminal := o.terminal(); terminal != nil {
		s, err = o.live(ctx, terminal, s, look)
	} else {
		s, err = o.lines(ctx, s, look)
	}
	switch {
	case errors.Is(err, errTimeout):
		_, message := o.judge(s)
		return &exit{exitTimeout, fmt.Errorf("%w after %s: %s", errTimeout, o.timeout, message)}
	case err != nil:
		return err
	}
	outcome, _ := o.judge(s)
	if code := map[statusview.Outcome]int{statusview.Stalled: exitProblems, statusview.Held: exitHeld}[outcome]; code != 0 {
		return &exit{code: code}
	}
	return nil
}

// settling is how long a policy may be refused before --strict takes that for final: a model that goes from one policy to
// another is in both for a moment.
const settling = 15 * time.Second

// judge tells the outcome of the plane, and with --strict of the policies too.
func (o *statusOptions) judge(s *statusview.Snapshot) (statusview.Outcome, string) {
	outcome, message := s.Judge()
	if !o.strict || outcome != statusview.Ready {
		return outcome, message
	}
	for _, refused := range s.Refused() {
		if outcome, message = statusview.Pending, refused.Message; o.clock.Since(refused.Since) >= settling {
			return statusview.Stalled, message
		}
	}
	return outcome, message
}

var (
	errTimeout     = errors.New("timed out")
	errInterrupted = errors.New("interrupted")
)

// lines prints a line for each change.
func (o *statusOptions) lines(ctx context.Context, s *statusview.Snapshot, look look) (*statusview.Snapshot, error) {
	last := ""
	ticker := time.NewTicker(o.interval)
	defer ticker.Stop()
	for {
		if line := s.Line(); line != last {
			last = line
			if _, err := fmt.Fprintf(o.Out, "%s  %s\n", o.clock.Now().UTC().Format(time.RFC3339), line); err != nil {
				return s, err
			}
		}
		if outcome, _ := o.judge(s); outcome != statusview.Pending {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, context.Cause(ctx)
		case <-ticker.C:
		}
		next, err := look(ctx)
		switch {
		case err == nil:
			s = next
		case ctx.Err() == nil:
			fmt.Fprintf(o.ErrOut, "warning: %v; trying again\n", err)
		}
	}
}
