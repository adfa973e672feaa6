package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/routing-operator/routing-operator/internal/simulate"
)

// The table fits a terminal of 100 columns.
const (
	fullWidth   = 100
	nameWidth   = 28
	columnWidth = 18
	perTable    = 4
	// clusterRows is how many clusters are listed.
	clusterRows = 32
)

// Table writes the report as tables of at most 100 columns, one for each model and for each four variants. Coloured, it marks
// the best value of a row.
func Table(w io.Writer, r *Report, coloured bool) error {
	t := table{w: bufio.NewWriter(w), coloured: coloured}
	for _, model := range r.models() {
		for columns := r.columnsOf(model); len(columns) > 0; columns = columns[min(perTable, len(columns)):] {
			t.model(r, model, columns[:min(perTable, len(columns))])
		}
	}
	fmt.Fprintf(t.w, "Goodput counts requests served with a TTFT within %s. Stargate %s, seed %d.\n", milliseconds(r.GoodputTTFTMs), r.Stargate, r.Seed)
	for _, input := range [][2]string{{"Site", r.Site}, {"Workload", r.Workload}, {"Trace", r.Trace}} {
		if input[1] != "" {
			fmt.Fprintf(t.w, "%-9s %s\n", input[0], short(input[1], fullWidth-10))
		}
	}
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

type table struct {
	w        *bufio.Writer
	coloured bool
}

// The styles of a terminal.
const (
	bold  = "\x1b[1m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

func (t *table) model(r *Report, model string, columns []column) {
	fmt.Fprintf(t.w, "%s\n", t.in(bold, short(model, fullWidth)))
	cells := func(text func(c *column) string) []string {
		all := make([]string, len(columns))
		for i := range columns {
			all[i] = text(&columns[i])
		}
		return all
	}
	t.row("policy", cells(func(c *column) string { return c.result.Policy }), "")
	t.row("algorithm", cells(func(c *column) string { return string(c.Algorithm) }), "")
	t.row("flag", cells(func(c *column) string { return flag(c.result) }), "")
	fmt.Fprintln(t.w, strings.Repeat("─", nameWidth+columnWidth*len(columns)))
	for _, f := range append(r.figures(), reasons(columns)...) {
		best, ok := f.best(columns)
		if !ok {
			best = ""
		}
		t.row(f.name, cells(func(c *column) string { return f.text(f.of(c)) }), best)
	}
	t.row("requests per cluster", nil, "")
	clusters := columns[0].result.Clusters
	for i := range clusters[:min(clusterRows, len(clusters))] {
		t.row("  "+clusters[i].Name, cells(func(c *column) string {
			return count(float64(c.Clusters[i])) + " " + fmt.Sprintf("%6s", percent(ratio(c.Clusters[i], c.TTFT.Count)))
		}), "")
	}
	if more := len(clusters) - clusterRows; more > 0 {
		t.row(fmt.Sprintf("  and %d more (-o json)", more), nil, "")
	}
	fmt.Fprintln(t.w)
}

// flag in words.
func flag(r *simulate.Result) string {
	switch {
	case r.Flag == simulate.AsWritten:
		return "as written"
	case r.AsWritten:
		return string(r.Flag) + " (as written)"
	}
	return string(r.Flag)
}

func ratio(part int, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// row writes a name and the cells, those that equal best in colour.
func (t *table) row(name string, cells []string, best string) {
	var line strings.Builder
	line.WriteString(pad(short(name, nameWidth), nameWidth, false))
	for _, cell := range cells {
		cell = short(cell, columnWidth-1)
		padded := pad(cell, columnWidth, true)
		if best != "" && cell == best {
			padded = strings.TrimSuffix(padded, cell) + t.in(green, cell)
		}
		line.WriteString(padded)
	}
	fmt.Fprintln(t.w, strings.TrimRight(line.String(), " "))
}

func (t *table) in(style, text string) string {
	if !t.coloured {
		return text
	}
	return style + text + plain
}

func pad(text string, width int, left bool) string {
	space := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if left {
		return space + text
	}
	return text + space
}

// short cuts a text in its middle.
func short(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	head := (width - 1) / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
}
