package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/routing-operator/routing-operator/internal/statusview"
)

// live draws the state until there is an outcome, or somebody has seen enough.
func (o *statusOptions) live(ctx context.Context, terminal *os.File, s *statusview.Snapshot, look look) (*statusview.Snapshot, error) {
	model := &liveModel{ctx: ctx, options: o, look: look, snapshot: s, style: colours(terminal)}
	_, err := tea.NewProgram(model, tea.WithContext(ctx), tea.WithOutput(terminal), tea.WithInput(o.In)).Run()
	switch {
	case ctx.Err() != nil:
		return model.snapshot, context.Cause(ctx)
	case errors.Is(err, tea.ErrInterrupted) || model.left:
		return model.snapshot, errInterrupted
	case err != nil:
		return model.snapshot, fmt.Errorf("drawing: %w", err)
	}
	return model.snapshot, nil
}

// colours of a terminal, or none where NO_COLOR or the terminal asks for none.
func colours(terminal *os.File) statusview.Style {
	style := statusview.Plain
	style.Bars = true
	if colorprofile.Detect(terminal, os.Environ()) < colorprofile.ANSI {
		return style
	}
	dress := func(s lipgloss.Style) func(string) string { return func(text string) string { return s.Render(text) } }
	style.Good = dress(lipgloss.NewStyle().Foreground(lipgloss.Green))
	style.Bad = dress(lipgloss.NewStyle().Foreground(lipgloss.Red))
	style.Busy = dress(lipgloss.NewStyle().Foreground(lipgloss.Yellow))
	style.Faint = dress(lipgloss.NewStyle().Faint(true))
	style.Strong = dress(lipgloss.NewStyle().Bold(true))
	return style
}

// liveModel is the state of the view.
type liveModel struct {
	ctx      context.Context
	options  *statusOptions
	look     look
	snapshot *statusview.Snapshot
	failure  error
	style    statusview.Style
	width    int
	left     bool
}

// seen is the result of a look.
type seen struct {
	snapshot *statusview.Snapshot
	err      error
}

func (m *liveModel) Init() tea.Cmd { return m.next() }

// next decides whether to look again.
func (m *liveModel) next() tea.Cmd {
	if outcome, _ := m.options.judge(m.snapshot); outcome != statusview.Pending {
		return tea.Quit
	}
	return tea.Tick(m.options.interval, func(time.Time) tea.Msg {
		s, err := m.look(m.ctx)
		return seen{s, err}
	})
}

func (m *liveModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.KeyPressMsg:
		switch message.String() {
		case "q", "esc", "ctrl+c":
			m.left = true
			return m, tea.Quit
		}
	case tea.WindowSizeMsg:
		m.width = message.Width
	case seen:
		if m.failure = message.err; m.failure == nil {
			m.snapshot = message.snapshot
		}
		return m, m.next()
	}
	return m, nil
}

func (m *liveModel) View() tea.View {
	text := m.snapshot.Text(m.options.clock.Now(), m.style)
	if m.failure != nil {
		text += "\n" + m.style.Bad(fmt.Sprintf("cannot look: %v; trying again", m.failure)) + "\n"
	}
	if m.width > 0 {
		text = lipgloss.NewStyle().Width(m.width).Render(text)
	}
	return tea.NewView(text)
}
