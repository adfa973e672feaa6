// Package outcome tells what became of each model of a policy, by comparing the model's entry in the file that every
// live Stargate pod has with the entry as the policy wants it. It is pure.
package outcome

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Judge compares models with what is running on a plane.
type Judge struct {
	// wanted is the effective configuration with every flag that it asks for, as the release in Stargate's
	// template would read it; held is what is being rolled out instead of it, and nil where that is the same.
	wanted, held *lbconfig.File
	// running are the files of the template and of all pods.
	running []*lbconfig.File
	// limited are the fields that the release does not know, by model.
	limited map[string][]render.Omission
	// flagged are the models that ask for a flag.
	flagged sets.Set[string]
	// flags says why flags are not on, and kept why an earlier version is kept: by model, and of all others. They
	// change with the state of the plane only, not with every pod: each change is a write to every policy. None has
	// a container's words, which are for the plane's namespace alone.
	flags    string
	kept     map[string]string
	keptElse string
}

// New makes a judge for the observed plane and its plan.
func New(w *rollout.World, p *rollout.Plan) (*Judge, error) {
	j := &Judge{flagged: sets.New[string](), limited: map[string][]render.Omission{}}
	for flag := range render.Desired(w.Config) {
		if !flag.Plane {
			j.flagged.Insert(flag.Model)
		}
	}
	j.flags, j.keptElse = reasons(w, p)
	j.kept = p.Held
	generation := w.Stargate.Template.Release.Generation
	var omitted []render.Omission
	var err error
	if j.wanted, omitted, err = read(w.Config, generation); err != nil {
		return nil, err
	}
	for _, o := range omitted {
		if !o.Place.Plane {
			j.limited[o.Place.Model] = append(j.limited[o.Place.Model], o)
		}
	}
	j.running = running(w)
	if shared(p.Config.Models, w.Config.Models) {
		return j, nil
	}
	if j.held, _, err = read(p.Config, generation); err != nil {
		return nil, err
	}
	return j, nil
}

func reasons(w *rollout.World, p *rollout.Plan) (flags, kept string) {
	if c := meta.FindStatusCondition(p.Conditions, v1alpha1.ConditionFlagsReady); c != nil {
		flags = c.Reason
	}
	if w.Plane.Pin != "" {
		return flags, "the plane is pinned to another configuration"
	}
	return flags, fmt.Sprintf("a change to plane %s/%s failed, as its status says", w.Plane.Namespace, w.Plane.Name)
}

// shared tells whether two slices are one.
func shared[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func read(c render.Config, generation release.Generation) (*lbconfig.File, []render.Omission, error) {
	rendered, err := render.LBConfig(c, render.Desired(c), generation)
	if err != nil {
		return nil, nil, err
	}
	file, err := lbconfig.Read(rendered.Data, release.Newest)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the rendered lb-config.json: %w", err)
	}
	return file, rendered.Omitted, nil
}

// running are the distinct files that Stargate's template and pods have; nil stands for a file that is not the
// operator's or that is not read. A terminating pod counts no more than it does for the plane: it gets no new request.
func running(w *rollout.World) []*lbconfig.File {
	names := sets.New(inEffect(&w.Stargate.Template))
	for i := range w.Stargate.Pods {
		if pod := &w.Stargate.Pods[i]; !pod.Terminating {
			names.Insert(inEffect(&pod.Template))
		}
	}
	var files []*lbconfig.File
	for _, name := range sets.List(names) {
		files = append(files, w.Revisions[name].File)
	}
	return files
}

func inEffect(t *rollout.Template) string {
	if !t.ReadsFile {
		return ""
	}
	return t.Revision
}

// Model is what became of the entry that the plane has of a model.
func (j *Judge) Model(name string) v1alpha1.ModelStatus {
	status := v1alpha1.ModelStatus{Name: name, State: v1alpha1.ModelProgrammed}
	wanted := j.wanted.Models[name]
	everywhere, flags := true, true
	for _, file := range j.running {
		if file == nil {
			everywhere, flags = false, false
			break
		}
		entry, ok := file.Models[name]
		everywhere = everywhere && ok && lbconfig.SameEntry(entry.WithoutFlags(), wanted.WithoutFlags())
		flags = flags && ok && hasFlags(entry, wanted)
	}
	status.LastClusterAffinity = j.flagged.Has(name)
	status.EffectiveLastClusterAffinity = status.LastClusterAffinity && flags && !j.limitsFlag(name)
	switch {
	case j.held != nil && !lbconfig.SameEntry(j.held.Models[name].WithoutFlags(), wanted.WithoutFlags()):
		status.State, status.Message = v1alpha1.ModelHeld, "an earlier version is kept: "+cmp.Or(j.kept[name], j.keptElse)
	case !everywhere, !flags && !status.LastClusterAffinity:
		status.State, status.Message = v1alpha1.ModelPending, "not yet in the file of every Stargate pod"
	case !flags:
		status.State, status.Message = v1alpha1.ModelFlagHeld, "lastClusterAffinity is not on in every Stargate pod yet; the plane says: "+j.flags
	case len(j.limited[name]) > 0:
		status.State, status.Message = v1alpha1.ModelLimited, limits(j.limited[name])
	}
	return status
}

func (j *Judge) limitsFlag(name string) bool {
	return slices.ContainsFunc(j.limited[name], func(o render.Omission) bool { return o.Field == "lastClusterAffinity" })
}

func limits(omitted []render.Omission) string {
	var fields []string
	for _, o := range omitted {
		if field := fmt.Sprintf("%s (since generation %s)", o.Field, o.Since); !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	return "left out, since the running Stargate release does not know it: " + strings.Join(fields, ", ")
}

// hasFlags tells whether every flag of wanted is on in the entry, and no other.
func hasFlags(e, wanted lbconfig.Entry) bool {
	if (e.Settings[lbconfig.LastClusterAffinity] == true) != (wanted.Settings[lbconfig.LastClusterAffinity] == true) {
		return false
	}
	for algorithm, nested := range wanted.RequestAlgorithms {
		if !hasFlags(e.RequestAlgorithms[algorithm], nested) {
			return false
		}
	}
	return true
}
