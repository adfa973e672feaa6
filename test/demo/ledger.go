package main

import (
	"fmt"
	"strings"
)

// ledger holds what was expected of each step and what was observed.
type ledger struct{ entries []entry }

// entry is one step. It is as it should be when what was observed reads like what was expected.
type entry struct {
	step, expected, observed string
	// detail helps where the two differ.
	detail string
}

func (e entry) ok() bool { return e.expected == e.observed }

func (l *ledger) note(step string, expected, observed any) {
	l.entries = append(l.entries, entry{step: step, expected: fmt.Sprint(expected), observed: fmt.Sprint(observed)})
}

// refused notes whether a command was refused for all of the reasons, in these words.
func (l *ledger) refused(step string, o output, reasons ...string) {
	l.answer(step, o, "refused, %d of %d reasons given", "accepted", true, reasons)
}

// warned notes whether a command succeeded with all of the warnings, in these words.
func (l *ledger) warned(step string, o output, warnings ...string) {
	l.answer(step, o, "accepted, %d of %d warnings given", "refused", false, warnings)
}

// shown notes whether a command succeeded and says what it should.
func (l *ledger) shown(step string, o output, words ...string) {
	l.answer(step, o, "succeeded, shows %d of %d things", "failed", false, words)
}

// answer notes how many statements the output makes, by format, if the command failed or not as expected.
func (l *ledger) answer(step string, o output, format, otherwise string, failed bool, statements []string) {
	text := strings.Join(strings.Fields(o.text), " ")
	var missing []string
	for _, statement := range statements {
		if !strings.Contains(text, statement) {
			missing = append(missing, "not said: "+statement)
		}
	}
	e := entry{
		step:     step,
		expected: fmt.Sprintf(format, len(statements), len(statements)),
		observed: fmt.Sprintf(format, len(statements)-len(missing), len(statements)),
		detail:   strings.Join(append(missing, "the answer: "+text), "\n"),
	}
	if o.failed != failed {
		e.observed = otherwise
	}
	l.entries = append(l.entries, e)
}

// failed counts the steps that were not as they should be.
func (l *ledger) failed() (n int) {
	for _, e := range l.entries {
		if !e.ok() {
			n++
		}
	}
	return n
}
