package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/routing-operator/routing-operator/internal/simulate"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// HTML writes the report as one page with plots, which needs no other file and no network.
func HTML(w io.Writer, r *Report) error {
	data := pageData{Report: r, Limit: milliseconds(r.GoodputTTFTMs)}
	for _, model := range r.models() {
		data.Models = append(data.Models, r.section(model))
	}
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("writing the report as HTML: %w", err)
	}
	return nil
}

type pageData struct {
	*Report
	Limit  string
	Models []section
}

// section is what the page says of one model.
type section struct {
	Model   string
	Heads   []head
	Pairs   []pair
	Charts  []chart
	Heat    []heatMap
	Rows    []row
	Steps   []int
	Omitted int
}

// head names a variant; Class gives it its colour and line.
type head struct{ Policy, Algorithm, Flag, Class string }

// Name of the variant as legends have it.
func (h head) Name() string {
	if h.Flag == "as written" {
		return h.Policy
	}
	return h.Policy + ", flag " + strings.TrimSuffix(h.Flag, " (as written)")
}

// pair is the flag off against on, for one policy.
type pair struct {
	Policy, Algorithm string
	Cards             []card
}

// card is one figure with the flag off and on. Verdict is better, worse or same.
type card struct{ Name, Meaning, Off, On, Verdict string }

type row struct {
	Name, Meaning string
	Cells         []cell
}

type cell struct {
	Text string
	Best bool
}

func (r *Report) section(model string) section {
	columns := r.columnsOf(model)
	s := section{Model: model}
	policies := map[string]int{}
	for _, c := range columns {
		if _, ok := policies[c.result.Policy]; !ok {
			policies[c.result.Policy] = len(policies)
		}
		class := fmt.Sprintf("c%d", policies[c.result.Policy]%colours)
		if c.result.Flag == simulate.FlagOff {
			class += " off"
		}
		s.Heads = append(s.Heads, head{c.result.Policy, string(c.Algorithm), flag(c.result), class})
	}
	for i := range columns {
		off := &columns[i]
		for j := range columns {
			if on := &columns[j]; off.result.Policy == on.result.Policy && off.result.Flag == simulate.FlagOff && on.result.Flag == simulate.FlagOn {
				s.Pairs = append(s.Pairs, r.pair(off, on))
			}
		}
	}
	s.Charts = []chart{percentiles(r, columns, s.Heads), reuse(columns, s.Heads)}
	for i := range columns {
		s.Heat = append(s.Heat, newHeatMap(&columns[i], s.Heads[i]))
		s.Omitted = max(0, len(columns[i].result.Clusters)-heatRows)
	}
	for i := range heatSteps {
		s.Steps = append(s.Steps, i)
	}
	for _, f := range append(r.figures(), reasons(columns)...) {
		best, ok := f.best(columns)
		line := row{Name: strings.TrimSpace(f.name), Meaning: f.meaning}
		for j := range columns {
			text := f.text(f.of(&columns[j]))
			line.Cells = append(line.Cells, cell{text, ok && text == best})
		}
		s.Rows = append(s.Rows, line)
	}
	return s
}

// colours is how many policies the page has a colour for.
const colours = 5

// onCards are the figures that decide about the flag.
var onCards = map[string]bool{"KV reuse": true, "left last cluster": true, "TTFT p50": true, "TTFT p99": true, "goodput share": true, "recomputed history": true}

func (r *Report) pair(off, on *column) pair {
	p := pair{Policy: off.result.Policy, Algorithm: string(off.Algorithm)}
	for _, f := range r.figures() {
		if !onCards[f.name] {
			continue
		}
		a, b := f.of(off), f.of(on)
		c := card{f.name, f.meaning, f.text(a), f.text(b), "same"}
		// What differs by less than one part in twenty, and as a share by less than one in a hundred, is called the same.
		if change := float64(f.better) * (b - a); math.Abs(change) > 0.05*max(a, b) || max(a, b) <= 1 && math.Abs(change) >= 0.01 {
			c.Verdict = map[bool]string{true: "better", false: "worse"}[change > 0]
		}
		p.Cards = append(p.Cards, c)
	}
	return p
}

// chart is a plot of lines over common positions.
type chart struct {
	Title, Note string
	// Width and Height of the drawing, and the edges of the plot's area in it.
	Width, Height, Left, Right, Top, Bottom int
	XTicks, YTicks                          []mark
	// Limit is a horizontal line, if it has a label.
	Limit mark
	Lines []line
	Hover hover
}

// mark is a labelled position.
type mark struct {
	At    float64
	Label string
}

type line struct {
	head
	// Paths are SVG points; a line has more than one where it has gaps.
	Paths []string
}

// hover is what the page's script shows under the pointer.
type hover struct {
	X      []float64  `json:"x"`
	At     []string   `json:"at"`
	Names  []string   `json:"names"`
	Class  []string   `json:"class"`
	Values [][]string `json:"values"`
}

// The plots' area within the drawing.
const (
	chartWidth, chartHeight = 600, 300
	plotLeft, plotRight     = 58, 580
	plotTop, plotBottom     = 10, 268
)

// scale maps a share of the axis to a place in the drawing.
func xOf(share float64) float64 { return plotLeft + (plotRight-plotLeft)*share }
func yOf(share float64) float64 { return plotBottom - (plotBottom-plotTop)*share }

// draw adds lines to a chart whose values, by line and position, are shares of the vertical axis; a NaN is a gap.
func (c *chart) draw(heads []head, x []float64, at []string, values [][]float64, texts [][]string) {
	c.Width, c.Height, c.Left, c.Right, c.Top, c.Bottom = chartWidth, chartHeight, plotLeft, plotRight, plotTop, plotBottom
	c.Hover = hover{X: x, At: at, Values: texts}
	for i, h := range heads {
		l := line{head: h}
		var path []string
		finish := func() {
			if len(path) > 0 {
				l.Paths = append(l.Paths, strings.Join(path, " "))
			}
			path = nil
		}
		for j, v := range values[i] {
			if math.IsNaN(v) {
				finish()
				continue
			}
			path = append(path, fmt.Sprintf("%.1f,%.1f", x[j], yOf(min(1, max(0, v)))))
		}
		finish()
		c.Lines = append(c.Lines, l)
		c.Hover.Names = append(c.Hover.Names, h.Name())
		c.Hover.Class = append(c.Hover.Class, h.Class)
	}
}

// percentiles plots the time to first token by percentile, with as much room for the slowest of ten as for the slowest of a
// hundred.
func percentiles(r *Report, columns []column, heads []head) chart {
	const positions = 150
	nines := func(p float64) float64 { return -math.Log10(1-p) / 3 }
	c := chart{
		Title: "Time to first token by percentile",
		Note:  "lower is better; the horizontal axis gives each further nine the same room, so that the tail can be seen",
	}
	var x []float64
	var at []string
	values, texts := make([][]float64, len(columns)), make([][]string, len(columns))
	lowest, highest := math.Inf(1), r.GoodputTTFTMs
	for j := range positions + 1 {
		share := 1 - math.Pow(10, -3*float64(j)/positions)
		x, at = append(x, xOf(float64(j)/positions)), append(at, "p"+strconv.FormatFloat(100*share, 'f', 1, 64))
		for i := range columns {
			ms := within(columns[i].TTFTDistribution, share)
			values[i] = append(values[i], ms)
			texts[i] = append(texts[i], milliseconds(ms))
			if !math.IsNaN(ms) {
				lowest, highest = min(lowest, ms), max(highest, ms)
			}
		}
	}
	bottom, top := math.Floor(math.Log10(min(lowest, highest))*3)/3, math.Ceil(math.Log10(1.2*highest)*3)/3
	y := func(ms float64) float64 { return (math.Log10(ms) - bottom) / (top - bottom) }
	for i := range values {
		for j, ms := range values[i] {
			values[i][j] = y(ms)
		}
	}
	for _, p := range []float64{0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999} {
		c.XTicks = append(c.XTicks, mark{xOf(nines(p)), "p" + strconv.FormatFloat(100*p, 'f', -1, 64)})
	}
	steps := []float64{1, 2, 5}
	if top-bottom > 2.5 {
		steps = []float64{1, 3}
	}
	for decade := 0.1; decade <= 1e10; decade *= 10 {
		for _, step := range steps {
			if share := y(step * decade); share >= 0 && share <= 1 {
				c.YTicks = append(c.YTicks, mark{yOf(share), round(step * decade)})
			}
		}
	}
	c.Limit = mark{yOf(y(r.GoodputTTFTMs)), "goodput limit"}
	c.draw(heads, x, at, values, texts)
	return c
}

// round writes a time of few digits.
func round(ms float64) string {
	if ms >= 1000 {
		return strconv.FormatFloat(ms/1000, 'g', 3, 64) + " s"
	}
	return strconv.FormatFloat(ms, 'g', 3, 64) + " ms"
}

// within is the time within which a share of the requests had their first token, NaN without any.
func within(points []simulate.Point, share float64) float64 {
	if len(points) == 0 {
		return math.NaN()
	}
	for i, p := range points {
		if p.Share < share {
			continue
		}
		if i == 0 {
			return p.Ms
		}
		before := points[i-1]
		return before.Ms * math.Pow(p.Ms/before.Ms, (share-before.Share)/(p.Share-before.Share))
	}
	return points[len(points)-1].Ms
}

// smoothed is how many windows on each side the plot of reuse takes into its mean.
const smoothed = 2

// reuse plots the share of input tokens from the cache over time.
func reuse(columns []column, heads []head) chart {
	width, n := columns[0].result.WindowSeconds, len(columns[0].ReuseOverTime)
	c := chart{
		Title: "KV reuse over time",
		Note:  "share of input tokens that a KV cache served, as a mean over " + clock(width*(2*smoothed+1), width) + " min; higher is better",
	}
	var x []float64
	var at []string
	values, texts := make([][]float64, len(columns)), make([][]string, len(columns))
	lowest := 0.8
	for j := range n {
		x, at = append(x, xOf((float64(j)+0.5)/float64(n))), append(at, clock(width*float64(j), width)+" – "+clock(width*float64(j+1), width))
		for i := range columns {
			value, text := math.NaN(), "–"
			if over := columns[i].ReuseOverTime; over[j] != nil {
				value = mean(over[max(0, j-smoothed):min(n, j+smoothed+1)])
				text, lowest = percent(value), min(lowest, value)
			}
			values[i], texts[i] = append(values[i], value), append(texts[i], text)
		}
	}
	// The axis begins at a tenth.
	lowest = math.Floor(lowest*10) / 10
	y := func(value float64) float64 { return (value - lowest) / (1 - lowest) }
	for i := range values {
		for j := range values[i] {
			values[i][j] = y(values[i][j])
		}
	}
	every := 0.1
	if lowest < 0.5 {
		every = 0.2
	}
	for value := 1.0; value > lowest-0.01; value -= every {
		c.YTicks = append(c.YTicks, mark{yOf(y(value)), strconv.FormatFloat(100*value, 'f', 0, 64) + " %"})
	}
	for i := range 6 {
		c.XTicks = append(c.XTicks, mark{xOf(float64(i) / 5), clock(float64(i)/5*width*float64(n), width)})
	}
	c.draw(heads, x, at, values, texts)
	return c
}

// mean of the values that there are.
func mean(values []*float64) float64 {
	sum, n := 0.0, 0.0
	for _, v := range values {
		if v != nil {
			sum, n = sum+*v, n+1
		}
	}
	return sum / n
}

// clock writes seconds as minutes or hours, and with a tenth where windows are that short.
func clock(seconds, window float64) string {
	if window < 1 {
		return fmt.Sprintf("%d:%04.1f", int(seconds)/60, math.Mod(seconds, 60))
	}
	s := int(math.Round(seconds))
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d h", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// heatMap is the load of the clusters over time under one variant.
type heatMap struct {
	head
	Width, Height int
	Rows          []heatRow
	Ticks         []mark
	AxisY         float64
}

type heatRow struct {
	Name, Share string
	// Y is the top of the row, TextY the line of its labels.
	Y, TextY, Height float64
	Cells            []heatCell
}

type heatCell struct {
	X, Width float64
	// Step of the colour.
	Step  int
	Title string
}

// The drawing of a heat map. heatRows is how many clusters it shows.
const (
	heatRows              = 48
	heatWidth             = 560
	heatLeft, heatRight   = 112, 500
	heatTop               = 4
	heatSteps, stepsToOne = 14, 9
)

// step of the colour for a load: as many to a full cluster as stepsToOne, and the rest up to twice the slots.
func step(load float64) int {
	if load <= 1 {
		return int(math.Ceil(load * stepsToOne))
	}
	return min(heatSteps-1, stepsToOne+int(math.Ceil((load-1)*(heatSteps-1-stepsToOne))))
}

func newHeatMap(c *column, h head) heatMap {
	clusters := c.result.Clusters[:min(heatRows, len(c.result.Clusters))]
	height := 22.0
	if len(clusters) > 10 {
		height = 14
	}
	m := heatMap{head: h, Width: heatWidth}
	width := c.result.WindowSeconds
	for i, cluster := range clusters {
		y := heatTop + height*float64(i)
		r := heatRow{Name: short(cluster.Name, 15), Share: percent(ratio(c.Clusters[i], c.TTFT.Count)), Y: y, TextY: y + height/2 + 4, Height: height - 2}
		cell := (heatRight - heatLeft) / float64(len(cluster.LoadOverTime))
		for w, load := range cluster.LoadOverTime {
			title := fmt.Sprintf("%s, %s – %s: %s of %d slots", cluster.Name, clock(width*float64(w), width), clock(width*float64(w+1), width), percent(load), cluster.Slots)
			if load > 1 {
				title += ", the rest in the queue"
			}
			r.Cells = append(r.Cells, heatCell{heatLeft + cell*float64(w), cell + 0.3, step(load), title})
		}
		m.Rows = append(m.Rows, r)
	}
	m.AxisY = heatTop + height*float64(len(clusters)) + 14
	m.Height = int(m.AxisY) + 6
	n := float64(len(clusters[0].LoadOverTime))
	for i := range 4 {
		share := float64(i) / 3
		m.Ticks = append(m.Ticks, mark{heatLeft + (heatRight-heatLeft)*share, clock(share*width*n, width)})
	}
	return m
}
