package controllers

import (
	"testing"
	"time"
)

func TestAQuietPeriodBeginsWithTheLastChangeThatWasSeen(t *testing.T) {
	const period = 5 * time.Second
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type sight struct {
		after       time.Duration
		fingerprint string
		isNew       bool
	}
	for name, test := range map[string]struct {
		sights            []sight
		changed, changing time.Duration
		never             bool
	}{
		"a process that starts knows of no change":    {sights: []sight{{0, "a", false}, {time.Second, "a", false}}, never: true},
		"a plane that is new has just changed":        {sights: []sight{{time.Second, "a", true}, {2 * time.Second, "a", true}}, changed: time.Second, changing: time.Second},
		"a change":                                    {sights: []sight{{0, "a", false}, {time.Second, "b", false}, {time.Minute, "b", false}}, changed: time.Second, changing: time.Second},
		"changes in a row are one burst":              {sights: []sight{{0, "a", false}, {time.Second, "b", false}, {5 * time.Second, "c", false}, {9 * time.Second, "d", false}}, changed: 9 * time.Second, changing: time.Second},
		"a change after quiet begins another":         {sights: []sight{{0, "a", false}, {time.Second, "b", false}, {7 * time.Second, "c", false}}, changed: 7 * time.Second, changing: 7 * time.Second},
		"a change back to what was is a change":       {sights: []sight{{0, "a", false}, {time.Second, "b", false}, {2 * time.Second, "a", false}}, changed: 2 * time.Second, changing: time.Second},
		"policies that come with a new plane are one": {sights: []sight{{0, "", true}, {time.Second, "a", false}}, changed: time.Second, changing: 0},
	} {
		t.Run(name, func(t *testing.T) {
			var q quiet
			for _, s := range test.sights {
				q.observe(s.fingerprint, start.Add(s.after), s.isNew, period)
			}
			if test.never {
				if !q.changed.IsZero() || !q.changing.IsZero() {
					t.Errorf("got %+v", q)
				}
				return
			}
			if q.changed.Sub(start) != test.changed || q.changing.Sub(start) != test.changing {
				t.Errorf("changed %s, changing %s", q.changed.Sub(start), q.changing.Sub(start))
			}
		})
	}
}
