package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// control is a command that changes one plane.
type control struct {
	*app
	cluster *clusterFlags
}

// controlCommand makes a command about one plane.
func (a *app) controlCommand(use, short, long, example string, run func(context.Context, *control, client.Client, types.NamespacedName) error) *cobra.Command {
	return (&control{app: a}).command(use, short, long, example, run)
}

func (o *control) command(use, short, long, example string, run func(context.Context, *control, client.Client, types.NamespacedName) error) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: planeArgument(use),
		RunE: func(c *cobra.Command, args []string) error {
			connection, namespace, err := o.cluster.connect()
			if err != nil {
				return err
			}
			return run(c.Context(), o, connection, types.NamespacedName{Namespace: namespace, Name: args[0]})
		},
	}
	o.cluster = o.clusterFlags(c)
	c.ValidArgsFunction = names(o.cluster.planes)
	return c
}

func (a *app) pauseCommand() *cobra.Command {
	return a.controlCommand("pause PLANE", "Stop every change to a plane's workloads",
		`Sets spec.rollout.paused: nothing is written to a workload any more, going back after a failure included. The status
goes on saying what would be done. A rollout that Kubernetes has begun goes on to its end.`,
		"  kubectl routing pause llm -n nvcf",
		func(ctx context.Context, o *control, c client.Client, key types.NamespacedName) error {
			if _, err := o.setRollout(ctx, c, key, "paused", true); err != nil {
				return err
			}
			fmt.Fprintf(o.Out, "plane %s is paused; resume it with: kubectl routing resume %s -n %s\n", key, key.Name, key.Namespace)
			return nil
		})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.controlCommand("resume PLANE", "Let a paused plane go on",
		"Takes spec.rollout.paused away. What changed in the meantime goes as one rollout.",
		"  kubectl routing resume llm -n nvcf && kubectl routing status llm -n nvcf --watch",
		func(ctx context.Context, o *control, c client.Client, key types.NamespacedName) error {
			before, err := o.setRollout(ctx, c, key, "paused", nil)
			if err != nil {
				return err
			}
			if !before.Spec.Rollout.Paused {
				fmt.Fprintf(o.Out, "plane %s was not paused\n", key)
			} else {
				fmt.Fprintf(o.Out, "plane %s goes on\n", key)
			}
			if pin := before.Spec.Rollout.Pin; pin != "" {
				fmt.Fprintf(o.ErrOut, "note: it is pinned to %s, and follows no policy until: kubectl routing unpin %s -n %s\n", pin, key.Name, key.Namespace)
			}
			return nil
		})
}

func (a *app) unpinCommand() *cobra.Command {
	return a.controlCommand("unpin PLANE", "Let a plane follow its policies again",
		"Takes spec.rollout.pin away, which rollback set. What the policies say is rolled out from then on.",
		"  kubectl routing plan -f routing/\n  kubectl routing unpin llm -n nvcf",
		func(ctx context.Context, o *control, c client.Client, key types.NamespacedName) error {
			before, err := o.setRollout(ctx, c, key, "pin", nil)
			if err != nil {
				return err
			}
			if before.Spec.Rollout.Pin == "" {
				fmt.Fprintf(o.Out, "plane %s was not pinned\n", key)
				return nil
			}
			fmt.Fprintf(o.Out, "plane %s follows its policies again\n", key)
			return nil
		})
}

func (a *app) retryCommand() *cobra.Command {
	return a.controlCommand("retry PLANE", "Try again what failed",
		fmt.Sprintf(`Gives the annotation %s of the plane a new value. A change that failed is not tried again by itself until a
policy or the plane changes: retry it when the cause was elsewhere, such as a node.`, rollout.RetryAnnotation),
		"  kubectl routing retry llm -n nvcf",
		func(ctx context.Context, o *control, c client.Client, key types.NamespacedName) error {
			before := &v1alpha1.RoutingPlane{}
			if err := c.Get(ctx, key, before); err != nil {
				return notFound(key, err)
			}
			value := o.clock.Now().UTC().Format(time.RFC3339Nano)
			if err := o.patch(ctx, c, key, map[string]any{"metadata": map[string]any{"annotations": map[string]any{rollout.RetryAnnotation: value}}}); err != nil {
				return err
			}
			fmt.Fprintln(o.Out, retried(before))
			return nil
		})
}

// retried says what a plane, as it was, tries again when asked.
func retried(plane *v1alpha1.RoutingPlane) string {
	key := client.ObjectKeyFromObject(plane)
	if failed := failures(plane); len(failed) > 0 {
		return fmt.Sprintf("plane %s tries again:\n  %s", key, strings.Join(failed, "\n  "))
	}
	stalled := meta.FindStatusCondition(plane.Status.Conditions, v1alpha1.ConditionStalled)
	if stalled != nil && stalled.Status == metav1.ConditionTrue && stalled.Reason == rollout.ReasonFieldContested {
		return fmt.Sprintf("plane %s takes its fields back once more:\n  %s", key, stalled.Message)
	}
	return fmt.Sprintf("plane %s has no failure on record; what fails from now on is judged anew", key)
}

// failures on record, in words.
func failures(plane *v1alpha1.RoutingPlane) (failed []string) {
	for _, record := range plane.Status.Records {
		if record.FailedAt != nil && record.Retry == plane.Annotations[rollout.RetryAnnotation] {
			failed = append(failed, fmt.Sprintf("%s on %s: %s", record.Revision, record.Workload, record.Message))
		}
	}
	return failed
}

// setRollout sets one field of spec.rollout, or takes it away, and says who else sets it. It returns the plane as it was.
func (o *control) setRollout(ctx context.Context, c client.Client, key types.NamespacedName, field string, value any) (*v1alpha1.RoutingPlane, error) {
	before := &v1alpha1.RoutingPlane{}
	if err := c.Get(ctx, key, before); err != nil {
		return nil, notFound(key, err)
	}
	if err := o.patch(ctx, c, key, map[string]any{"spec": map[string]any{"rollout": map[string]any{field: value}}}); err != nil {
		return nil, err
	}
	for _, manager := range owners(before, field) {
		fmt.Fprintf(o.ErrOut, "warning: %s applies spec.rollout.%s too and may set it back; say the same in its source\n", manager, field)
	}
	return before, nil
}

func (o *control) patch(ctx context.Context, c client.Client, key types.NamespacedName, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding the change: %w", err)
	}
	plane := &v1alpha1.RoutingPlane{}
	plane.Namespace, plane.Name = key.Namespace, key.Name
	if err := c.Patch(ctx, plane, client.RawPatch(types.MergePatchType, data), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("changing plane %s: %w", key, err)
	}
	return nil
}

// owners are the managers that set a field of spec.rollout again and again: those that apply it from somewhere.
func owners(plane *v1alpha1.RoutingPlane, name string) (managers []string) {
	path := fieldpath.MakePathOrDie("spec", "rollout", name)
	for i := range plane.ManagedFields {
		entry := &plane.ManagedFields[i]
		once := strings.HasPrefix(entry.Manager, "kubectl-") && entry.Manager != "kubectl-client-side-apply"
		if entry.Manager == fieldManager || once || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		set := fieldpath.NewSet()
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err == nil && set.Has(path) {
			managers = append(managers, entry.Manager)
		}
	}
	slices.Sort(managers)
	return slices.Compact(managers)
}

// confirm asks, on a terminal; elsewhere a flag has to say it.
func (a *app) confirm(question string) error {
	in, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return errors.New("nothing was changed: there is no terminal to ask on; add --yes to agree beforehand")
	}
	fmt.Fprintf(a.ErrOut, "%s [y/N] ", question)
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.New("nothing was changed")
	}
	return nil
}
