package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Subject is whose sessions are classified by a flag: those of a model, or, by a flag of the plane's own request
// algorithms, of every model, with an algorithm.
type Subject struct {
	Every            bool
	Model, Algorithm string
}

// Counts of what happened in a window.
type Counts struct {
	// New, Stale and Returning are classified sessions, and Primary those of Returning that went to their last cluster.
	New, Stale, Returning, Primary float64
	// Requests, and Errors those that ended in a 5xx status.
	Requests, Errors float64
}

func (c *Counts) add(s *Series, n float64) {
	switch {
	case s.isRequests():
		c.Requests += n
		if len(s.Status) == 3 && s.Status[0] == '5' {
			c.Errors += n
		}
	case s.State == "new":
		c.New += n
	case s.State == "stale":
		c.Stale += n
	case s.State == "returning":
		c.Returning += n
		if s.Selection == "primary" {
			c.Primary += n
		}
	}
}

// Look is what one look at a pod's metrics has shown.
type Look struct {
	// UID and Name of the pod, the revision that it runs, and when it was created.
	UID, Name, Revision string
	Created             time.Time
	// Ending: that it can no longer be read is no news.
	Ending bool
	// Sample of its counters, or why they could not be read.
	Sample Sample
	Err    error
}

// Figures are what a window has counted so far.
type Figures struct {
	// Since is the first look and Last the last one.
	Since, Last time.Time
	Counts      Counts
	// Unread says of each pod that could not be read at the last look why, by name.
	Unread []string
}

const unreadShown = 3

// Unreadable says in a sentence which pods' metrics could not be read at the last look, and why; empty if all could.
func (f *Figures) Unreadable() string {
	shown := f.Unread
	if len(shown) == 0 {
		return ""
	}
	more := ""
	if n := len(shown) - unreadShown; n > 0 {
		shown, more = shown[:unreadShown], fmt.Sprintf(", and %d more", n)
	}
	return "cannot read the metrics of " + strings.Join(shown, ", ") + more
}

// Window counts what happens from the first look on. It keeps one sample of each pod that there is, and no other.
type Window struct {
	subjects map[Subject]bool
	models   map[string]bool
	every    bool
	revision string
	figures  Figures
	pods     map[string]Sample
}

// NewWindow for the sessions of the subjects, and for all requests for their models, in pods of the revision; all pods
// if it is empty.
func NewWindow(subjects []Subject, revision string) *Window {
	w := &Window{subjects: map[Subject]bool{}, models: map[string]bool{}, revision: revision, pods: map[string]Sample{}}
	for _, subject := range subjects {
		w.subjects[subject] = true
		w.models[subject.Model] = w.models[subject.Model] || !subject.Every
		w.every = w.every || subject.Every
	}
	return w
}

// Concerns tells whether the window counts the series. Requests carry no algorithm, so those for a subject's model count
// whatever theirs was.
func (w *Window) Concerns(s *Series) bool {
	if s.isRequests() {
		return w.every || w.models[s.Model]
	}
	return w.subjects[Subject{Model: s.Model, Algorithm: s.Algorithm}] || w.subjects[Subject{Every: true, Algorithm: s.Algorithm}]
}

// Look adds what was counted since the last look. A counter that fell began anew at 0, and so did one that was not there
// when the pod was last read. Of a pod that is older than the window, the first sample is where counting begins; one
// that is younger brings all that it has. Pods that are not among the looks are gone.
func (w *Window) Look(now time.Time, looks []Look) {
	first := w.Fresh()
	if first {
		w.figures.Since = now
	}
	w.figures.Last = now
	w.figures.Unread = nil
	pods := make(map[string]Sample, len(looks))
	for i := range looks {
		look := &looks[i]
		if w.revision != "" && look.Revision != w.revision {
			continue
		}
		before, known := w.pods[look.UID]
		if look.Err != nil {
			if known {
				pods[look.UID] = before
			}
			if !look.Ending {
				w.figures.Unread = append(w.figures.Unread, "pod "+look.Name+": "+look.Err.Error())
			}
			continue
		}
		sample := maps.Clone(look.Sample)
		maps.DeleteFunc(sample, func(s Series, _ float64) bool { return !w.Concerns(&s) })
		pods[look.UID] = sample
		if !known && (first || !look.Created.After(w.figures.Since)) {
			continue
		}
		for series, value := range sample {
			if was := before[series]; value >= was {
				value -= was
			}
			w.figures.Counts.add(&series, value)
		}
	}
	w.pods = pods
	slices.SortFunc(w.figures.Unread, strings.Compare)
}

// Fresh tells whether the window waits for its first look.
func (w *Window) Fresh() bool { return w.figures.Since.IsZero() }

// Figures so far; zero before the first look.
func (w *Window) Figures() Figures {
	figures := w.figures
	figures.Unread = slices.Clone(figures.Unread)
	return figures
}
