package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/routing-operator/routing-operator/internal/forecast"
	"github.com/routing-operator/routing-operator/internal/preview"
)

var specPath = field.NewPath("spec")

// shown bounds what is printed of one kind; JSON has it all.
const shown = 200

func (o *planOptions) printText(plans []*planned) error {
	var b strings.Builder
	for i, p := range plans {
		if i > 0 {
			b.WriteString("\n")
		}
		p.text(&b)
	}
	if len(plans) == 0 {
		b.WriteString("no RoutingPlane or RoutingPolicy in the files\n")
	}
	_, err := io.WriteString(o.Out, b.String())
	return err
}

func (p *planned) text(b *strings.Builder) {
	fmt.Fprintf(b, "plane %s\n", keyText(p.key))
	for _, note := range p.notes {
		fmt.Fprintf(b, "note: %s\n", note)
	}
	p.changesText(b)
	p.remapsText(b)
	p.rolloutsText(b)
	if len(p.warnings) > 0 {
		b.WriteString("\nWarnings:\n")
		list(b, p.warnings, func(w string) string { return w })
	}
}

// list writes lines, the first of them at least.
func list[T any](b *strings.Builder, all []T, line func(T) string) {
	for i, one := range all {
		if i == shown {
			fmt.Fprintf(b, "  and %d more\n", len(all)-shown)
			return
		}
		fmt.Fprintf(b, "  %s\n", line(one))
	}
}

func (p *planned) changesText(b *strings.Builder) {
	if !p.changed() {
		b.WriteString("\nNo change.\n")
		return
	}
	b.WriteString("\nChanges:\n")
	list(b, p.settings, func(s preview.Setting) string { return fmt.Sprintf("%s: %s", s.Path, arrow(s.From, s.To)) })
	list(b, p.changes, func(c preview.Change) string {
		switch {
		case c.Added():
			return fmt.Sprintf("+ %s: %s: %s", c.Where(), c.Field, c.To)
		case c.Removed():
			return fmt.Sprintf("- %s: %s: %s", c.Where(), c.Field, c.From)
		}
		return fmt.Sprintf("  %s: %s: %s", c.Where(), c.Field, arrow(c.From, c.To))
	})
}

func (p *planned) remapsText(b *strings.Builder) {
	if len(p.remaps) > 0 {
		b.WriteString("\nSessions that move:\n")
		list(b, p.remaps, func(r preview.Remap) string { return r.Where() + ": " + r.Why })
	}
}

func arrow(from, to string) string {
	value := func(s string) string {
		if s == "" {
			return "unset"
		}
		return s
	}
	return value(from) + " -> " + value(to)
}

func (p *planned) rolloutsText(b *strings.Builder) {
	if p.forecast == nil {
		return
	}
	if restarts := p.forecast.Restarts(); len(restarts) == 0 {
		b.WriteString("\nNo workload restarts.\n")
	} else {
		b.WriteString("\nRestarts:\n")
		for _, workload := range slices.Sorted(maps.Keys(restarts)) {
			fmt.Fprintf(b, "  %s: %s\n", workload, count(restarts[workload], "rollout", "rollouts"))
		}
		b.WriteString("\nOrder:\n")
		for i, event := range p.forecast.Events {
			fmt.Fprintf(b, "  %d. %s\n", i+1, eventText(&event))
		}
		fmt.Fprintf(b, "  done after about %s\n", rough(p.forecast.Total))
	}
	if p.forecast.Blocked != "" {
		fmt.Fprintf(b, "\nThen it waits for somebody: %s\n", p.forecast.Blocked)
	}
}

func eventText(e *forecast.Event) string {
	if e.Workload == "" && e.Takes == 0 {
		return fmt.Sprintf("after %s, %s", rough(e.After), e.Why)
	}
	if e.Workload == "" {
		return fmt.Sprintf("after %s, wait %s: %s", rough(e.After), rough(e.Takes), e.Why)
	}
	return fmt.Sprintf("after %s, %s: %s, about %s: %s", rough(e.After), e.Workload, count(int(e.Pods), "pod", "pods"), rough(e.Takes), e.Why)
}

func rough(d time.Duration) string { return d.Round(time.Second).String() }

// printJSON writes everything, in seconds where it is time.
func (o *planOptions) printJSON(plans []*planned) error {
	type change struct {
		Model            string `json:"model,omitempty"`
		RequestAlgorithm string `json:"requestAlgorithm,omitempty"`
		Plane            bool   `json:"plane,omitempty"`
		Field            string `json:"field"`
		From             string `json:"from,omitempty"`
		To               string `json:"to,omitempty"`
	}
	type remap struct {
		Model            string `json:"model,omitempty"`
		RequestAlgorithm string `json:"requestAlgorithm,omitempty"`
		Plane            bool   `json:"plane,omitempty"`
		Why              string `json:"why"`
	}
	type event struct {
		AfterSeconds int    `json:"afterSeconds"`
		TakesSeconds int    `json:"takesSeconds"`
		Workload     string `json:"workload,omitempty"`
		Pods         int32  `json:"pods,omitempty"`
		Revision     string `json:"revision,omitempty"`
		Why          string `json:"why,omitempty"`
	}
	type plane struct {
		Namespace    string            `json:"namespace,omitempty"`
		Name         string            `json:"name"`
		Changed      bool              `json:"changed"`
		Settings     []preview.Setting `json:"settings"`
		Changes      []change          `json:"changes"`
		Remaps       []remap           `json:"sessionsThatMove"`
		Events       []event           `json:"events"`
		TotalSeconds int               `json:"totalSeconds"`
		Blocked      string            `json:"waitsFor,omitempty"`
		Notes        []string          `json:"notes"`
		Warnings     []string          `json:"warnings"`
	}
	all := []plane{}
	for _, p := range plans {
		one := plane{
			Namespace: p.key.Namespace, Name: p.key.Name, Changed: p.changed(), Settings: orEmpty(p.settings),
			Changes: []change{}, Remaps: []remap{}, Events: []event{}, Notes: orEmpty(p.notes), Warnings: orEmpty(p.warnings),
		}
		for _, c := range p.changes {
			one.Changes = append(one.Changes, change{c.Place.Model, string(c.Place.RequestAlgorithm), c.Place.Plane, c.Field, c.From, c.To})
		}
		for _, r := range p.remaps {
			one.Remaps = append(one.Remaps, remap{r.Place.Model, string(r.Place.RequestAlgorithm), r.Place.Plane, r.Why})
		}
		if p.forecast != nil {
			for _, e := range p.forecast.Events {
				one.Events = append(one.Events, event{int(e.After.Seconds()), int(e.Takes.Seconds()), e.Workload, e.Pods, e.Revision, e.Why})
			}
			one.TotalSeconds, one.Blocked = int(p.forecast.Total.Seconds()), p.forecast.Blocked
		}
		all = append(all, one)
	}
	return writeJSON(o.Out, map[string]any{"planes": all})
}

// writeJSON writes for people and programs alike.
func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
