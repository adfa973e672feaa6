package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"

	"golang.org/x/term"
)

// screen is where the story is told. It is safe for concurrent use, a write at a time.
type screen struct {
	mu      sync.Mutex
	out     io.Writer
	colours bool
	chapter int
}

// The colours, as terminals know them.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// newScreen uses colours on a terminal, unless NO_COLOR (no-color.org) or the terminal says otherwise.
func newScreen(out *os.File) *screen {
	colours := term.IsTerminal(int(out.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &screen{out: out, colours: colours}
}

// Write is for the output of commands, which is shown as it comes.
func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(text)
}

func (s *screen) print(text string) { _, _ = io.WriteString(s, text) }

func (s *screen) paint(colour, text string) string {
	if !s.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// begin a chapter.
func (s *screen) begin(title string) {
	s.chapter++
	heading := fmt.Sprintf("━━ %d · %s ", s.chapter, title)
	s.print("\n" + s.paint(bold, heading+strings.Repeat("━", max(0, 100-len([]rune(heading))))) + "\n")
}

// say tells what happens and why.
func (s *screen) say(text string) {
	s.print("\n" + s.paint(cyan, strings.TrimSpace(text)) + "\n")
}

// aside is a remark beside the output of a command.
func (s *screen) aside(text string) { s.print(s.paint(yellow, "  ▸ "+text) + "\n") }

// prompt shows a command as its user types it.
func (s *screen) prompt(who, command string) {
	s.print("\n" + s.paint(dim, who+" ") + s.paint(bold, "$ "+command) + "\n")
}

func (s *screen) pass(text string) { s.print("\n" + s.paint(green, "✔ "+text) + "\n") }
func (s *screen) fail(text string) { s.print("\n" + s.paint(red, "✘ "+text) + "\n") }

// aligned are rows in columns.
func aligned(rows [][]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) // a strings.Builder takes everything
	}
	_ = w.Flush()
	return text.String()
}

// table closes the story: each step, what was expected of it, and what was observed.
func (s *screen) table(l *ledger) {
	if len(l.entries) == 0 {
		return
	}
	s.begin("What was expected, and what was seen")
	rows := [][]string{{" ", "STEP", "EXPECTED", "OBSERVED"}}
	for _, e := range l.entries {
		mark := "✔"
		if !e.ok() {
			mark = "✘"
		}
		rows = append(rows, []string{mark, e.step, e.expected, e.observed})
	}
	s.print("\n")
	for line := range strings.Lines(aligned(rows)) {
		switch {
		case strings.HasPrefix(line, "✔"):
			line = s.paint(green, "✔") + strings.TrimPrefix(line, "✔")
		case strings.HasPrefix(line, "✘"):
			line = s.paint(red, strings.TrimSuffix(line, "\n")) + "\n"
		}
		s.print(line)
	}
	for _, e := range l.entries {
		if !e.ok() && e.detail != "" {
			s.fail(e.step + ":")
			s.print(e.detail + "\n")
		}
	}
}
