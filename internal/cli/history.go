package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/preview"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/revision"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/statusview"
)

// past is a revision of a plane and what became of it.
type past struct {
	name, artefact string
	created        time.Time
	intact         bool
	// file of a Stargate revision; nil where it cannot be read.
	file *lbconfig.File
	wave string
	// running pods, and whether a template names the revision.
	pods    int32
	current bool
	// completed last, and how it failed.
	completed time.Time
	failed    string
}

// pastOf reads the revisions of a plane, the newest first.
func pastOf(ctx context.Context, c client.Reader, plane *v1alpha1.RoutingPlane) ([]*past, error) {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(plane.Namespace), client.MatchingLabels(revision.Labels(plane.Name))); err != nil {
		return nil, fmt.Errorf("listing the revisions of plane %s/%s: %w", plane.Namespace, plane.Name, err)
	}
	byName := map[string]*past{}
	var all []*past
	for i := range list.Items {
		cm := &list.Items[i]
		p := &past{name: cm.Name, artefact: cm.Labels[revision.LabelArtefact], created: cm.CreationTimestamp.Time, wave: cm.Annotations[revision.AnnotationWave]}
		p.intact = render.RevisionName(plane.Name, p.artefact, cm.Data) == cm.Name
		if p.artefact == render.ArtefactStargate {
			if file, err := lbconfig.Read([]byte(cm.Data[render.LBConfigKey]), release.Newest); err == nil {
				p.file = file
			}
		}
		for _, record := range rollout.DecodeRecords(cm.Annotations[revision.AnnotationRecords]) { // to the microsecond; the status has seconds
			if record.Completed.After(p.completed) {
				p.completed = record.Completed
			}
		}
		byName[p.name] = p
		all = append(all, p)
	}
	for _, record := range plane.Status.Records {
		p := byName[record.Revision]
		if p == nil {
			continue
		}
		if record.CompletedAt != nil && record.CompletedAt.After(p.completed) {
			p.completed = record.CompletedAt.Time
		}
		if record.FailedAt != nil {
			p.failed = record.Message
		}
	}
	for _, w := range workloadsOf(plane) {
		if p := byName[w.Revision]; p != nil {
			p.current = true
		}
		for _, pods := range w.Pods {
			if p := byName[pods.Revision]; p != nil {
				p.pods += pods.Total
			}
		}
	}
	slices.SortFunc(all, func(a, b *past) int { return cmp.Or(b.created.Compare(a.created), cmp.Compare(a.name, b.name)) })
	return all, nil
}

func workloadsOf(plane *v1alpha1.RoutingPlane) (all []v1alpha1.WorkloadStatus) {
	if plane.Status.Stargate != nil {
		all = append(all, *plane.Status.Stargate)
	}
	return append(all, plane.Status.Gateways...)
}

// state of a revision in words.
func (p *past) state(plane *v1alpha1.RoutingPlane, now time.Time) string {
	var words []string
	if plane.Spec.Rollout.Pin == p.name {
		words = append(words, "pinned")
	}
	if p.current {
		words = append(words, "current")
	}
	if p.pods > 0 {
		words = append(words, "on "+count(int(p.pods), "pod", "pods"))
	}
	switch {
	case p.failed != "":
		words = append(words, "failed: "+strings.Join(strings.Fields(p.failed), " ")) // a container may have said several lines
	case !p.completed.IsZero():
		words = append(words, "complete "+statusview.Ago(p.completed, now))
	}
	if !p.intact {
		words = append(words, "changed by somebody")
	}
	return strings.Join(words, ", ")
}

func (a *app) historyCommand() *cobra.Command {
	return a.controlCommand("history PLANE", "List the revisions of a plane",
		`Lists what the plane's workloads were given, the newest first: the router's files and the gateways' variables, with
what became of each. The number of unused ones that are kept is spec.revisionHistoryLimit.`,
		"  kubectl routing history llm -n nvcf",
		func(ctx context.Context, o *control, c client.Client, key types.NamespacedName) error {
			plane := &v1alpha1.RoutingPlane{}
			if err := c.Get(ctx, key, plane); err != nil {
				return notFound(key, err)
			}
			revisions, err := pastOf(ctx, c, plane)
			if err != nil {
				return err
			}
			if len(revisions) == 0 {
				fmt.Fprintf(o.ErrOut, "plane %s has no revisions yet\n", key)
				return nil
			}
			now := o.clock.Now()
			table := tabwriter.NewWriter(o.Out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(table, "REVISION\tAGE\tMODELS\tFLAGS\tWAVE\tSTATE")
			for _, p := range revisions {
				models, flags, wave := "-", "-", "-"
				if p.file != nil {
					models, flags, wave = fmt.Sprint(len(p.file.Models)), fmt.Sprint(len(p.file.Flags())), cmp.Or(p.wave, "-")
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", p.name, strings.TrimSuffix(statusview.Ago(p.created, now), " ago"), models, flags, wave, p.state(plane, now))
			}
			return table.Flush()
		})
}

func (a *app) rollbackCommand() *cobra.Command {
	var to string
	var yes bool
	o := &control{app: a}
	c := o.command("rollback PLANE", "Hold an earlier revision, whatever the policies say",
		`Sets spec.rollout.pin to an earlier Stargate revision: by default the one that was complete last before the present
one, waves of its flags apart. The operator renders it anew for the Stargate that runs, and rolls it out; flags that it
has still need the gateways' memory. Git and the policies stay as they are, and have no effect until "kubectl routing unpin".
From a plane that is pinned, the revision has to be named.`,
		`  kubectl routing history llm -n nvcf
  kubectl routing rollback llm -n nvcf --to llm-stargate-0123456789abcdef`,
		func(ctx context.Context, o *control, c client.Client, key types.NamespacedName) error {
			return o.rollback(ctx, c, key, to, yes)
		})
	c.Flags().StringVar(&to, "to", "", "`revision` to go back to (default: the last complete one before the present one)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	_ = c.RegisterFlagCompletionFunc("to", names(o.cluster.revisions))
	return c
}

func (o *control) rollback(ctx context.Context, c client.Client, key types.NamespacedName, to string, yes bool) error {
	plane := &v1alpha1.RoutingPlane{}
	if err := c.Get(ctx, key, plane); err != nil {
		return notFound(key, err)
	}
	revisions, err := pastOf(ctx, c, plane)
	if err != nil {
		return err
	}
	target, current, err := choose(plane, revisions, to)
	if err != nil {
		return err
	}
	if err := o.showRollback(plane, current, target); err != nil {
		return err
	}
	if !yes {
		if err := o.confirm(fmt.Sprintf("Pin plane %s to %s?", key, target.name)); err != nil {
			return err
		}
	}
	if _, err := o.setRollout(ctx, c, key, "pin", target.name); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, `plane %[1]s is pinned to %[2]s. It stays so, whatever Git and the policies say, until somebody unpins it:
  1. bring Git to where it should be; nothing of it takes effect meanwhile
  2. kubectl routing plan -f ... shows what would change
  3. kubectl routing unpin %[3]s -n %[4]s
Who is told: the plane's Ready condition has the reason Pinned and names the revision (kubectl get rpl %[3]s -n %[4]s -o wide;
Argo CD shows its message), the policies' models are Held, and pipelines that wait with
"kubectl routing status --watch" end with 3.
`, key, target.name, key.Name, key.Namespace)
	if plane.Spec.Rollout.Paused {
		fmt.Fprintf(o.ErrOut, "note: the plane is paused; nothing is rolled out until: kubectl routing resume %s -n %s\n", key.Name, key.Namespace)
	}
	return nil
}

// choose finds the revision to go back to, and the present one.
func choose(plane *v1alpha1.RoutingPlane, revisions []*past, to string) (target, current *past, err error) {
	for _, p := range revisions {
		if p.artefact == render.ArtefactStargate && plane.Status.Stargate != nil && p.name == plane.Status.Stargate.Revision {
			current = p
		}
	}
	usable := func(p *past) bool { return p.artefact == render.ArtefactStargate && p.file != nil && p.intact }
	if to != "" {
		i := slices.IndexFunc(revisions, func(p *past) bool { return p.name == to })
		if i < 0 || !usable(revisions[i]) {
			return nil, nil, fmt.Errorf("%s is no Stargate revision of the plane that can be read; kubectl routing history %s -n %s lists those there are", to, plane.Name, plane.Namespace)
		}
		return revisions[i], current, nil
	}
	if pin := plane.Spec.Rollout.Pin; pin != "" { // the one before may be the one that was fled from
		return nil, nil, fmt.Errorf("the plane is pinned to %s already; name the revision to hold instead with --to: kubectl routing history %s -n %s lists those there are", pin, plane.Name, plane.Namespace)
	}
	for _, p := range revisions {
		if !usable(p) || p == current || p.failed != "" || p.completed.IsZero() || isWaveBefore(p, current) {
			continue
		}
		if target == nil || p.completed.After(target.completed) {
			target = p
		}
	}
	if target == nil {
		return nil, nil, fmt.Errorf("no earlier revision was ever complete; name one with --to: kubectl routing history %s -n %s lists those there are", plane.Name, plane.Namespace)
	}
	return target, current, nil
}

// isWaveBefore tells whether the revision is the present one with a part of its flags: a step on the way, to which
// nobody wants to go back.
func isWaveBefore(p, current *past) bool {
	if current == nil || current.file == nil || len(p.file.Flags()) == 0 {
		return false
	}
	from, err := render.FromFile(p.file)
	if err != nil {
		return false
	}
	to, err := render.FromFile(current.file)
	return err == nil && !slices.ContainsFunc(preview.Diff(from, to), func(c preview.Change) bool { return c.Field != "lastClusterAffinity" || c.From != "" })
}

// showRollback says what going back changes in meaning.
func (o *control) showRollback(plane *v1alpha1.RoutingPlane, current, target *past) error {
	if target.failed != "" {
		fmt.Fprintf(o.ErrOut, "warning: %s failed when it was rolled out last: %s\n", target.name, target.failed)
	}
	if target == current {
		fmt.Fprintf(o.ErrOut, "note: %s is what the router has now; pinning holds it there\n", target.name)
		return nil
	}
	if current == nil || current.file == nil {
		return nil
	}
	from, err := render.FromFile(current.file)
	if err != nil {
		return fmt.Errorf("revision %s: %w", current.name, err)
	}
	to, err := render.FromFile(target.file)
	if err != nil {
		return fmt.Errorf("revision %s: %w", target.name, err)
	}
	p := planned{key: client.ObjectKeyFromObject(plane), changes: preview.Diff(from, to), remaps: preview.Remaps(from, to)}
	var b strings.Builder
	fmt.Fprintf(&b, "from %s to %s\n", current.name, target.name)
	p.changesText(&b)
	p.remapsText(&b)
	fmt.Fprintln(o.ErrOut, b.String())
	return nil
}
