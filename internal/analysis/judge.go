package analysis

import (
	"fmt"
	"strconv"
	"strings"
)

// Outcome of judging a wave.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "Passed"
	Failed Outcome = "Failed"
	// TooFew samples for at least one share, and no share fails.
	TooFew Outcome = "TooFewSamples"
)

// Verdict on a wave.
type Verdict struct {
	Outcome Outcome
	// Figures in words, those that fail first, then those that there are too few samples for.
	Figures string
}

// finding is what one share says.
type finding struct {
	outcome Outcome
	text    string
}

// Judge judges a wave by what was counted after it and, as far as server errors go, before it. Errors of a wave before
// which too few requests were counted are not judged: waiting would bring no more of them.
func (s *Settings) Judge(before Counts, after *Figures) Verdict {
	c := &after.Counts
	findings := []finding{s.newShare(c), s.primaryShare(c), s.errorIncrease(&before, c)}
	verdict := Verdict{Outcome: Passed}
	var texts []string
	for _, outcome := range []Outcome{Failed, TooFew, Passed} {
		for _, f := range findings {
			if f.outcome != outcome {
				continue
			}
			if len(texts) == 0 {
				verdict.Outcome = outcome
			}
			texts = append(texts, f.text)
		}
	}
	if len(after.Unread) > 0 {
		texts = append(texts, after.Unreadable())
	}
	verdict.Figures = strings.Join(texts, "; ")
	return verdict
}

func (s *Settings) enough(n float64) bool { return n >= float64(s.MinSamples) }

func (s *Settings) newShare(c *Counts) finding {
	unhinted := c.New + c.Stale
	sessions := unhinted + c.Returning
	switch {
	case s.MaxNewShare >= 1:
		return finding{Passed, fmt.Sprintf("%s sessions were classified", count(sessions))}
	case !s.enough(sessions):
		return finding{TooFew, fmt.Sprintf("%s sessions were classified, of the %d that it takes", count(sessions), s.MinSamples)}
	case unhinted > s.MaxNewShare*sessions:
		return finding{Failed, fmt.Sprintf("%s of %s classified sessions were new or stale, more than %s: the hints of the gateways do not arrive",
			percent(unhinted/sessions), count(sessions), percent(s.MaxNewShare))}
	}
	return finding{Passed, fmt.Sprintf("%s of %s classified sessions were new or stale", percent(unhinted/sessions), count(sessions))}
}

func (s *Settings) primaryShare(c *Counts) finding {
	switch {
	case s.MinPrimaryShare <= 0:
		return finding{Passed, fmt.Sprintf("%s sessions returned", count(c.Returning))}
	case !s.enough(c.Returning):
		return finding{TooFew, fmt.Sprintf("%s sessions returned, of the %d that it takes", count(c.Returning), s.MinSamples)}
	case c.Primary < s.MinPrimaryShare*c.Returning:
		return finding{Failed, fmt.Sprintf("%s of %s returning sessions reached their last cluster, fewer than %s: it has no room for them within the affinity wait",
			percent(c.Primary/c.Returning), count(c.Returning), percent(s.MinPrimaryShare))}
	}
	return finding{Passed, fmt.Sprintf("%s of %s returning sessions reached their last cluster", percent(c.Primary/c.Returning), count(c.Returning))}
}

func (s *Settings) errorIncrease(before, after *Counts) finding {
	switch {
	case !s.CountsErrors():
		return finding{Passed, fmt.Sprintf("%s of %s requests ended in a 5xx", count(after.Errors), count(after.Requests))}
	case !s.enough(before.Requests):
		return finding{Passed, fmt.Sprintf("server errors are not judged, since only %s requests were counted before the wave", count(before.Requests))}
	case !s.enough(after.Requests):
		return finding{TooFew, fmt.Sprintf("%s requests, of the %d that it takes", count(after.Requests), s.MinSamples)}
	}
	was, is := before.Errors/before.Requests, after.Errors/after.Requests
	text := fmt.Sprintf("%s of %s requests ended in a 5xx, and %s of %s before the wave", percent(is), count(after.Requests), percent(was), count(before.Requests))
	if is-was > s.MaxErrorIncrease {
		return finding{Failed, fmt.Sprintf("%s: an increase of more than %s", text, percent(s.MaxErrorIncrease))}
	}
	return finding{Passed, text}
}

// percent to one decimal, or to the first that is not 0.
func percent(share float64) string {
	digits := 1
	if share > 0 && share < 0.001 {
		digits = 3
	}
	return strconv.FormatFloat(100*share, 'f', digits, 64) + " %"
}

func count(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }
