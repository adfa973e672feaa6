// Package review judges manifests as a whole: each object as the API server would, and what the objects mean to each
// other, as the operator's webhook warns of it.
package review

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/admit"
	"github.com/routing-operator/routing-operator/internal/manifests"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// Severity of a problem.
type Severity string

// The severities. An object with an error would be refused; a warning is about something that is accepted, and has a
// remedy in the file; a note is about something that may be just as it is meant.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Problem is what is wrong with, or surprising about, a place in a file.
type Problem struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Column   int      `json:"column,omitempty"`
	// Object as Kind namespace/name; empty for text that is none.
	Object string `json:"object,omitempty"`
	// Path of the field; empty where the problem is about the object as a whole.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// More places of the same object that the same message is about.
	More int `json:"more,omitempty"`
}

// Plane is a plane that can be read, and where it stands.
type Plane struct {
	*v1alpha1.RoutingPlane
	Document *manifests.Document
	// Valid is false where the plane would be refused.
	Valid bool
}

// Policy is a policy that can be read, and where it stands.
type Policy struct {
	*v1alpha1.RoutingPolicy
	Document *manifests.Document
	// Valid is false where the policy would be refused.
	Valid bool
}

// Result of a review.
type Result struct {
	// Problems in the order of files and their text.
	Problems []Problem
	// Planes and Policies in the same order.
	Planes   []Plane
	Policies []Policy
	// Sites are the planes that the files have or speak of, sorted by namespace and name, each with its policies. Of
	// an object that stands there twice the last one counts.
	Sites []*Site
}

// Count the problems of a severity.
func (r *Result) Count(s Severity) (n int) {
	for i := range r.Problems {
		if r.Problems[i].Severity == s {
			n++
		}
	}
	return n
}

// Options of a review.
type Options struct {
	// Generations of the Stargate that may read the policies.
	Generations validate.Generations
	// Namespace of objects that name none; empty where it is left to whoever applies them.
	Namespace string
	// ErrorsOnly leaves out warnings and notes, and the time that it takes to place them.
	ErrorsOnly bool
}

// Objects reviews a set.
func Objects(set manifests.Set, judge *admit.Judge, options Options) Result {
	reviews := make([]one, len(set.Documents))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, document := range set.Documents {
		group.Go(func() error {
			reviews[i].review(document, judge, options)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error

	var result Result
	for _, broken := range set.Broken {
		result.Problems = append(result.Problems, Problem{Severity: Error, File: broken.File, Line: broken.Line, Message: broken.Message})
	}
	if !options.ErrorsOnly {
		for _, doubtful := range set.Doubtful {
			result.Problems = append(result.Problems, Problem{Severity: Warning, File: doubtful.File, Line: doubtful.Line, Message: doubtful.Message})
		}
	}
	for i := range reviews {
		r := &reviews[i]
		result.Problems = append(result.Problems, r.problems...)
		switch {
		case r.verdict.Plane != nil:
			r.verdict.Plane.Namespace = cmp.Or(r.verdict.Plane.Namespace, options.Namespace)
			result.Planes = append(result.Planes, Plane{r.verdict.Plane, r.document, !r.refused})
		case r.verdict.Policy != nil:
			r.verdict.Policy.Namespace = cmp.Or(r.verdict.Policy.Namespace, options.Namespace)
			result.Policies = append(result.Policies, Policy{r.verdict.Policy, r.document, !r.refused})
		}
	}
	result.Sites = sites(&result)
	if !options.ErrorsOnly {
		result.Problems = append(result.Problems, together(&result, set.Documents)...)
	}
	slices.SortStableFunc(result.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return result
}

// one is the review of a single object.
type one struct {
	document *manifests.Document
	verdict  admit.Verdict
	refused  bool
	problems []Problem
}

func (o *one) review(document *manifests.Document, judge *admit.Judge, options Options) {
	o.document, o.verdict = document, judge.Review(document.Object, document.JSON)
	o.refused = len(o.verdict.Errors)+len(o.verdict.Unknown) > 0
	for _, unknown := range o.verdict.Unknown {
		o.problems = append(o.problems, problem(document, Error, unknown.Path, "unknown field: "+unknown.Hint))
	}
	for _, err := range o.verdict.Errors {
		o.problems = append(o.problems, problem(document, Error, err.Field, err.ErrorBody()))
	}
	if options.ErrorsOnly {
		return
	}
	for _, duplicate := range document.Duplicates() {
		p := problem(document, Warning, "", fmt.Sprintf("the key %q stands in this mapping twice; the last one counts and the other is dropped, remove one", duplicate.Key))
		p.Line, p.Column = duplicate.Line, duplicate.Column
		o.problems = append(o.problems, p)
	}
	if o.refused {
		return
	}
	var warnings []validate.Warning
	if o.verdict.Policy != nil {
		warnings = validate.PolicyWarnings(&o.verdict.Policy.Spec, field.NewPath("spec"), options.Generations)
	} else {
		warnings = validate.PlaneWarnings(&o.verdict.Plane.Spec, field.NewPath("spec"), options.Generations)
	}
	o.problems = append(o.problems, grouped(document, warnings)...)
}

// grouped makes one problem of the warnings with the same message.
func grouped(document *manifests.Document, warnings []validate.Warning) (problems []Problem) {
	at := make(map[string]int, len(warnings))
	for _, w := range warnings {
		if i, ok := at[w.Message]; ok {
			problems[i].More++
			continue
		}
		at[w.Message] = len(problems)
		severity := Warning
		if w.Note {
			severity = Note
		}
		problems = append(problems, problem(document, severity, w.Path.String(), w.Message))
	}
	return problems
}

func problem(document *manifests.Document, severity Severity, path, message string) Problem {
	position := document.Position(path)
	return Problem{
		Severity: severity, File: document.File, Line: position.Line, Column: position.Column,
		Object: nameOf(document.Object), Path: path, Message: message,
	}
}

// nameOf an object that may lack any of it.
func nameOf(object map[string]any) string {
	kind, _ := object["kind"].(string)
	meta, _ := object["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}
