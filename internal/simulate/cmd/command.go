// Package cmd is the command that simulates policies, for any program to mount.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/routing-operator/routing-operator/internal/manifests"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/simulate"
	"github.com/routing-operator/routing-operator/internal/simulate/report"
)

type options struct {
	streams genericiooptions.IOStreams

	policies, compare     []string
	site, workload, trace string
	stargate              string
	seed                  uint64
	output, html          string
	recorded              string
}

// New makes the command, to be mounted in a program under the name simulate. Files are read from disk, and "-" from the
// streams' input.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	o := options{streams: streams}
	c := &cobra.Command{
		Use:   "simulate -f POLICY... [--workload FILE] [--site FILE]",
		Short: "Try routing policies on a model of the site",
		Long: `Simulates what RoutingPolicies do to traffic, before they are applied.

Each policy runs as it is written, and where it says anything about lastClusterAffinity once with the flag off and
once on. All variants see the same sessions. Without --site and --workload a small site and its traffic are taken.`,
		Example: `  # What does the flag change at our site?
  simulate -f policy.yaml --site site.yaml --workload workload.yaml --html report.html

  # One algorithm against the other.
  simulate -f wait-and-widen.yaml --compare pulsar-wait-and-widen.yaml`,
		SilenceUsage: true,
		RunE: func(c *cobra.Command, args []string) error {
			o.policies = append(o.policies, args...)
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringArrayVarP(&o.policies, "filename", "f", nil, "`file` with RoutingPolicies and, if you like, the RoutingPlane; repeatable, - for standard input")
	f.StringArrayVar(&o.compare, "compare", nil, "`file` with policies to compare with; repeatable, each file by itself")
	f.StringVar(&o.workload, "workload", "", "`file` that describes the traffic")
	f.StringVar(&o.site, "site", "", "`file` that describes the clusters")
	f.StringVar(&o.trace, "trace", "", "`file` of requests as JSON lines, in place of generated sessions")
	f.StringVar(&o.stargate, "stargate-version", release.Newest.String(), "release of Stargate, or a generation from V0 to V3: fields that it does not know are left out")
	f.Uint64Var(&o.seed, "seed", 1, "`number` that all randomness depends on")
	f.StringVarP(&o.output, "output", "o", "table", "table or json")
	f.StringVar(&o.html, "html", "", "`file` to write a page with plots to")
	f.StringVar(&o.recorded, "record", "", "`file` to write the first variant's requests to, as a trace")
	return c
}

func (o *options) run(ctx context.Context) error {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("--output: %q: must be table or json", o.output)
	}
	if len(o.policies) == 0 {
		return errors.New("no policy: name a file with --filename (-f)")
	}
	stargate, err := release.DefaultTable().Parse(o.stargate)
	switch {
	case err != nil:
		return fmt.Errorf("--stargate-version: %w", err)
	case stargate.Generation == release.Unsupported:
		return fmt.Errorf("--stargate-version: %q: releases before V0, 0.10.0, are not supported; name a later one", o.stargate)
	}
	r := &report.Report{Seed: o.seed, Stargate: stargate.Version, Site: "default", Workload: "default", Trace: o.trace}
	setup, err := o.setup(r)
	if err != nil {
		return err
	}
	r.GoodputTTFTMs = float64(setup.Workload.GoodputTTFT.Duration) / float64(time.Millisecond)
	variants, err := o.variants(stargate, r)
	if err != nil {
		return err
	}
	for _, variant := range variants {
		setup.Variant = variant
		for _, warning := range setup.Warnings() {
			if !slices.Contains(r.Warnings, warning) {
				r.Warnings = append(r.Warnings, warning)
			}
		}
	}
	for _, warning := range r.Warnings {
		fmt.Fprintln(o.streams.ErrOut, "warning:", warning)
	}
	if err := writable(o.html, o.recorded); err != nil {
		return err
	}
	if err := o.simulate(ctx, setup, variants, r); err != nil {
		return err
	}
	if o.html != "" {
		err = writeFile(o.html, func(w io.Writer) error { return report.HTML(w, r) })
	}
	if o.output == "json" {
		return errors.Join(err, report.JSON(o.streams.Out, r))
	}
	return errors.Join(err, report.Table(o.streams.Out, r, isTerminal(o.streams.Out) && os.Getenv("NO_COLOR") == ""))
}

// setup reads the site, the workload and the trace.
func (o *options) setup(r *report.Report) (simulate.Setup, error) {
	s := simulate.Setup{Site: simulate.DefaultSite(), Workload: simulate.DefaultWorkload(), Seed: o.seed}
	if o.site != "" {
		r.Site = o.site
		data, err := o.read(o.site)
		if err != nil {
			return s, err
		}
		if s.Site, err = simulate.ReadSite(data, o.site); err != nil {
			return s, err
		}
	}
	if o.workload != "" {
		r.Workload = o.workload
		data, err := o.read(o.workload)
		if err != nil {
			return s, err
		}
		if s.Workload, err = simulate.ReadWorkload(data, o.workload); err != nil {
			return s, err
		}
	}
	if o.trace != "" {
		file, err := o.open(o.trace)
		if err != nil {
			return s, err
		}
		defer file.Close()
		if s.Trace, err = simulate.ReadTrace(file, o.trace); err != nil {
			return s, err
		}
	}
	return s, nil
}

// variants reads the policies, those to compare with after the others.
func (o *options) variants(stargate release.Release, r *report.Report) ([]simulate.Variant, error) {
	sets := [][]string{o.policies}
	for _, name := range o.compare {
		sets = append(sets, []string{name})
	}
	var all []simulate.Variant
	used := map[string]bool{}
	for _, names := range sets {
		label := strings.TrimSuffix(filepath.Base(names[0]), filepath.Ext(names[0]))
		if names[0] == manifests.Stdin {
			label = "stdin"
		}
		if len(names) > 1 {
			label = fmt.Sprintf("%s +%d", label, len(names)-1)
		}
		if used[label] {
			label = names[0]
		}
		for n := 2; used[label]; n++ {
			label = fmt.Sprintf("%s (%d)", names[0], n)
		}
		used[label] = true
		set, err := manifests.Read(names, o.streams.In)
		if err != nil {
			return nil, err
		}
		policies, err := simulate.ReadPolicies(label, set)
		if err != nil {
			return nil, err
		}
		variants, warnings, err := policies.Variants(stargate)
		if err != nil {
			return nil, err
		}
		all = append(all, variants...)
		r.Warnings = append(r.Warnings, warnings...)
	}
	return all, nil
}

// simulate runs the variants one after the other, and shows how far it is on a terminal.
func (o *options) simulate(ctx context.Context, setup simulate.Setup, variants []simulate.Variant, r *report.Report) error {
	terminal := isTerminal(o.streams.ErrOut)
	var requests []simulate.TraceRequest
	for i := range variants {
		setup.Variant, setup.Record = variants[i], nil
		if i == 0 && o.recorded != "" {
			setup.Record = func(t simulate.TraceRequest) { requests = append(requests, t) }
		}
		if terminal {
			setup.Progress = func(share float64) {
				fmt.Fprintf(o.streams.ErrOut, "\r\x1b[Ksimulating %d of %d, %s: %.0f %%", i+1, len(variants), variants[i].Name(), 100*share)
			}
		}
		result, err := simulate.Run(ctx, setup)
		if terminal {
			fmt.Fprint(o.streams.ErrOut, "\r\x1b[K")
		}
		if err != nil {
			return err
		}
		r.Results = append(r.Results, result)
	}
	if o.recorded == "" {
		return nil
	}
	return writeFile(o.recorded, func(w io.Writer) error { return simulate.WriteTrace(w, requests) })
}

func (o *options) open(name string) (io.ReadCloser, error) {
	if name == manifests.Stdin {
		return io.NopCloser(o.streams.In), nil
	}
	return os.Open(name)
}

func (o *options) read(name string) ([]byte, error) {
	file, err := o.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// writable finds out before a long simulation that a file cannot be written after it. What is in the file stays.
func writable(names ...string) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// writeFile leaves no file that is written in part unsaid.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
