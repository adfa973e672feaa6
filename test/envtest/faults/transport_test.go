package faults

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// death is a client that dies for good at one of its writes, as the process around it would: the write is not sent, or
// it is and the answer never arrives.
type death struct {
	next http.RoundTripper

	mutex  sync.Mutex
	at     trigger // nil for none
	after  bool
	dead   chan struct{} // closed with it
	writes []string
	// fatal is the write at which it died.
	fatal string
}

// trigger tells whether to die at a write: its number, counted from 1 since it was armed, and its name.
type trigger func(number int, write string) bool

func nth(n int) trigger {
	return func(number int, _ string) bool { return number == n }
}

// each dies once at each of the writes.
func each(writes sets.Set[string]) trigger {
	left := writes.Clone()
	return func(_ int, write string) bool {
		there := left.Has(write)
		left.Delete(write)
		return there
	}
}

var errDead = errors.New("the operator is dead")

func newDeath() *death { return &death{dead: make(chan struct{})} }

func (d *death) wrap(next http.RoundTripper) http.RoundTripper {
	d.next = next
	return d
}

// arm begins to count anew.
func (d *death) arm(at trigger, after bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.at, d.after, d.writes = at, after, nil
}

// written are the writes since it was armed.
func (d *death) written() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return slices.Clone(d.writes)
}

func (d *death) isDead() bool {
	select {
	case <-d.dead:
		return true
	default:
		return false
	}
}

// verdict on a request: whether to send it, and whether its answer arrives.
func (d *death) verdict(request *http.Request) (send, answer bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.isDead() {
		return false, false
	}
	if !isWrite(request) {
		return true, true
	}
	write := nameOf(request)
	d.writes = append(d.writes, write)
	if d.at == nil || !d.at(len(d.writes), write) {
		return true, true
	}
	d.fatal = write
	close(d.dead)
	return d.after, false
}

func (d *death) RoundTrip(request *http.Request) (*http.Response, error) {
	send, answer := d.verdict(request)
	if !send {
		return nil, refuse(request, errDead)
	}
	response, err := d.next.RoundTrip(request)
	if err == nil && !answer {
		return nil, errors.Join(errDead, response.Body.Close())
	}
	return response, err
}

// refuse closes the body of a request that is not sent, as a RoundTripper must.
func refuse(request *http.Request, err error) error {
	if request.Body != nil {
		return errors.Join(err, request.Body.Close())
	}
	return err
}

// isWrite leaves out events: a goroutine of client-go's writes them beside, in no order, and nothing depends on them.
func isWrite(request *http.Request) bool {
	return request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/events")
}

// revisionHash is what a revision's or policy version's name ends with.
var revisionHash = regexp.MustCompile(`-[0-9a-z]{8,}$`)

// nameOf a write says what is written, the same in every namespace.
func nameOf(request *http.Request) string {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if at := slices.Index(parts, "namespaces"); at >= 0 && len(parts) > at+2 {
		parts = parts[at+2:]
	}
	if len(parts) > 1 {
		parts[1] = revisionHash.ReplaceAllString(parts[1], "-…")
	}
	return request.Method + " " + strings.Join(parts, "/")
}
