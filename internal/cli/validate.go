package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routing-operator/routing-operator/internal/admit"
	"github.com/routing-operator/routing-operator/internal/manifests"
	"github.com/routing-operator/routing-operator/internal/review"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// filesFlags say which manifests are read, and by which rules of the site.
type filesFlags struct {
	names    []string
	prefixes []string
	// namespace of objects that name none, as whoever applies them would say it.
	namespace string
	stargate  stargateFlags
}

func (f *filesFlags) add(c *cobra.Command, unset string) {
	c.Flags().StringArrayVarP(&f.names, "filename", "f", nil, "`file` or folder, with everything below it, or - for standard input; repeatable")
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of objects that name none")
	f.addSite(c, unset)
	_ = c.MarkFlagRequired("filename")
}

// addSite adds the flags about the site alone.
func (f *filesFlags) addSite(c *cobra.Command, unset string) {
	c.Flags().StringSliceVar(&f.prefixes, "config-path-prefixes", []string{validate.DefaultPathPrefix}, "folders under which a plane's configPath may lie, as the operator has them")
	f.stargate.add(c, unset)
}

// generations of Stargate that may read the files.
func (f *filesFlags) generations() (validate.Generations, error) {
	generation, stated, err := f.stargate.generation()
	if err != nil || !stated {
		return validate.AnyGeneration, err
	}
	return validate.Only(generation), nil
}

// review reads and judges files.
func (f *filesFlags) review(names []string, stdin io.Reader, options review.Options) (manifests.Set, review.Result, error) {
	set, err := manifests.Read(names, stdin)
	if err != nil {
		return set, review.Result{}, err
	}
	judge, err := admit.New(validate.Options{AllowedPathPrefixes: f.prefixes})
	if err != nil {
		return set, review.Result{}, err
	}
	options.Namespace = cmp.Or(options.Namespace, f.namespace)
	return set, review.Objects(set, judge, options), nil
}

type validateOptions struct {
	*app
	files  filesFlags
	output string
	strict bool
}

func (a *app) validateCommand() *cobra.Command {
	o := &validateOptions{app: a}
	c := &cobra.Command{
		Use:     "validate -f FILE",
		Aliases: []string{"lint"},
		Short:   "Check manifests as the API server with the operator would",
		Long: `Checks RoutingPlanes and RoutingPolicies, among any other objects, by the rules of the API server (schema, CEL) and of
the operator's webhook, without a cluster: what it refuses is refused on apply, and what it takes is taken. All
problems of all files are shown, with their lines, and what one object means to another: a model that two policies
list, a plane that is not there.

An error is refused on apply. A warning is accepted and most likely not what is meant: correct the file, or write the
default out to say that it is. A note depends on what is in no file, such as the release that runs, and may be left.

Ends with 0 where there is no error, with 1 where there is one, with 2 where the files cannot be read.`,
		Example: `  # A folder, in a pipeline of GitHub's
  kubectl routing validate -f routing/ -o github --strict

  # What kustomize makes of it, for the release that runs
  kustomize build overlays/production | kubectl routing validate -f - --stargate-version 0.18.0`,
		Args: noArguments("-f"),
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	o.files.add(c, "default: any; what is true of some generations only is a note then")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text, json or github (annotations of GitHub Actions)")
	c.Flags().BoolVar(&o.strict, "strict", false, "count warnings as errors, notes not")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "github"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// summary counts what was looked at.
type summary struct {
	Files    int `json:"files"`
	Planes   int `json:"planes"`
	Policies int `json:"policies"`
	Models   int `json:"models"`
	Skipped  int `json:"skipped"`
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Notes    int `json:"notes"`
}

func (o *validateOptions) run() error {
	printers := map[string]func(*review.Result, summary) error{"text": o.text, "json": o.json, "github": o.github}
	printer, ok := printers[o.output]
	if !ok {
		return fmt.Errorf("--output: %q is none; there are text, json and github", o.output)
	}
	generations, err := o.files.generations()
	if err != nil {
		return err
	}
	set, result, err := o.files.review(o.files.names, o.In, review.Options{Generations: generations})
	if err != nil {
		return err
	}
	if message := nothing(&set); message != "" {
		if o.strict {
			return &exit{exitProblems, errors.New(message)}
		}
		fmt.Fprintf(o.ErrOut, "warning: %s\n", message)
	}
	if o.strict {
		for i := range result.Problems {
			if p := &result.Problems[i]; p.Severity == review.Warning {
				p.Severity = review.Error
			}
		}
	}
	s := summary{
		Files: set.Files, Planes: len(result.Planes), Policies: len(result.Policies), Skipped: set.Skipped,
		Errors: result.Count(review.Error), Warnings: result.Count(review.Warning), Notes: result.Count(review.Note),
	}
	for _, policy := range result.Policies {
		s.Models += len(policy.Spec.Models)
	}
	if err := printer(&result, s); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if s.Errors > 0 {
		return &exit{code: exitProblems}
	}
	return nil
}

// nothing says that there is nothing of the operator's in the files; it is empty where there is something.
func nothing(set *manifests.Set) string {
	if len(set.Documents)+len(set.Broken) > 0 {
		return ""
	}
	return fmt.Sprintf("no RoutingPlane or RoutingPolicy in %s (%s of others); of folders, the files that end in .yaml, .yml and .json are read", count(set.Files, "file", "files"), count(set.Skipped, "object", "objects"))
}

func (o *validateOptions) text(result *review.Result, s summary) error {
	if err := printProblems(o.Out, result.Problems); err != nil {
		return err
	}
	notes := ""
	if s.Notes > 0 {
		notes = ", " + count(s.Notes, "note", "notes")
	}
	_, err := fmt.Fprintf(o.ErrOut, "%s, %s and %s in %s: %s, %s%s\n", count(s.Planes, "plane", "planes"), count(s.Policies, "policy", "policies"),
		count(s.Models, "model", "models"), count(s.Files, "file", "files"), count(s.Errors, "error", "errors"), count(s.Warnings, "warning", "warnings"), notes)
	return err
}

// printProblems writes a line for each, as compilers do.
func printProblems(out io.Writer, problems []review.Problem) error {
	for i := range problems {
		p := &problems[i]
		if _, err := fmt.Fprintf(out, "%s: %s: %s\n", position(p), p.Severity, sentence(p)); err != nil {
			return err
		}
	}
	return nil
}

func position(p *review.Problem) string {
	if p.Column == 0 {
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// sentence is what is wrong, with whatever is known of the place beside the position.
func sentence(p *review.Problem) string {
	var b strings.Builder
	if p.Object != "" {
		fmt.Fprintf(&b, "%s: ", p.Object)
	}
	if p.Path != "" {
		b.WriteString(p.Path)
		if p.More > 0 {
			fmt.Fprintf(&b, " (and %d more)", p.More)
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

func (o *validateOptions) json(result *review.Result, s summary) error {
	return writeJSON(o.Out, struct {
		Problems []review.Problem `json:"problems"`
		Summary  summary          `json:"summary"`
	}{orEmpty(result.Problems), s})
}

var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// github writes workflow commands, which GitHub shows beside the line of the pull request.
func (o *validateOptions) github(result *review.Result, _ summary) error {
	for i := range result.Problems {
		p := &result.Problems[i]
		properties := fmt.Sprintf("file=%s,line=%d", githubProperty.Replace(p.File), p.Line)
		if p.Column > 0 {
			properties += fmt.Sprintf(",col=%d", p.Column)
		}
		if p.Object != "" {
			properties += ",title=" + githubProperty.Replace(p.Object)
		}
		command := string(p.Severity)
		if p.Severity == review.Note {
			command = "notice"
		}
		if _, err := fmt.Fprintf(o.Out, "::%s %s::%s\n", command, properties, githubData.Replace(sentence(p))); err != nil {
			return err
		}
	}
	return nil
}
