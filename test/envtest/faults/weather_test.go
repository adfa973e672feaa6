package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// weather makes requests fail, answers go lost, watches late and watches end, until it is clear. What happens to a
// request depends on the seed, on what is asked for and on how often that was asked for before, and not on which of
// several requests at once came first.
type weather struct {
	seed uint64
	// share of the requests that fail, from 0 to 1.
	share float64
	// lag is the most by which what a watch reports is late.
	lag time.Duration
	// fog holds back all watches together; without it each has a fog of its own.
	fog   *fog
	clear atomic.Bool

	mutex    sync.Mutex
	asked    map[string]int
	happened map[string]int
}

func newWeather(seed uint64, share float64, lag time.Duration) *weather {
	return &weather{seed: seed, share: share, lag: lag, asked: map[string]int{}, happened: map[string]int{}}
}

// foggy is weather in which everything is seen late and in its order, and nothing fails.
func foggy(seed uint64, lag time.Duration) *weather {
	w := newWeather(seed, 0, lag)
	w.fog = &fog{lag: lag, draw: rand.New(rand.NewPCG(seed, 0))}
	return w
}

// fog comes and goes, and what was to be seen meanwhile is seen at once when it has gone. For a while it does not come
// back, so that what is seen does not become later and later.
type fog struct {
	lag  time.Duration
	draw *rand.Rand

	mutex       sync.Mutex
	lifts, back time.Time
}

// left is how long the fog stays. It begins to come where it is time for it.
func (f *fog) left(now time.Time) time.Duration {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if now.After(f.back) {
		f.lifts = now.Add(time.Duration(f.draw.Int64N(int64(f.lag) + 1)))
		f.back = f.lifts.Add(f.lag / 4)
	}
	return f.lifts.Sub(now)
}

func (w *weather) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) { return w.roundTrip(next, request) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// misfortunes by name. Each takes the place of an answer.
var misfortunes = map[string]func(*http.Request) (*http.Response, error){
	"409": func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			return answer(r, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "things"}, "thing"))
		}
		return answer(r, apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "thing", errors.New("bad weather")))
	},
	"429": func(r *http.Request) (*http.Response, error) {
		return answer(r, apierrors.NewTooManyRequestsError("bad weather"))
	},
	"500": func(r *http.Request) (*http.Response, error) {
		return answer(r, apierrors.NewInternalError(errors.New("bad weather")))
	},
	"503": func(r *http.Request) (*http.Response, error) {
		return answer(r, apierrors.NewServiceUnavailable("bad weather"))
	},
	"timeout": func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("bad weather: %w", os.ErrDeadlineExceeded)
	},
	"reset": func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("bad weather: %w", syscall.ECONNRESET)
	},
}

func answer(request *http.Request, status *apierrors.StatusError) (*http.Response, error) {
	body := status.ErrStatus
	body.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(int(body.Code)), StatusCode: int(body.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)),
		ContentLength: int64(len(data)), Request: request,
	}, nil
}

// draw is the source of what happens to the request.
func (w *weather) draw(request *http.Request) *rand.Rand {
	name := request.Method + " " + request.URL.Path + " " + request.URL.Query().Get("watch")
	w.mutex.Lock()
	w.asked[name]++
	n := w.asked[name]
	w.mutex.Unlock()
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s %d", nameOf(request)+request.URL.Query().Get("watch"), n)
	return rand.New(rand.NewPCG(w.seed, hash.Sum64()))
}

func (w *weather) note(what string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.happened[what]++
}

func (w *weather) roundTrip(next http.RoundTripper, request *http.Request) (*http.Response, error) {
	if w.clear.Load() {
		return next.RoundTrip(request)
	}
	draw := w.draw(request)
	if request.URL.Query().Get("watch") == "true" {
		response, err := next.RoundTrip(request)
		if err == nil {
			late := &lateBody{ReadCloser: response.Body, weather: w, draw: draw, fog: w.fog, done: request.Context().Done()}
			if late.fog == nil {
				late.fog = &fog{lag: w.lag, draw: draw}
			}
			response.Body = late
		}
		return response, err
	}
	if draw.Float64() >= w.share {
		return next.RoundTrip(request)
	}
	kinds := slices.Sorted(maps.Keys(misfortunes))
	kind, sent := kinds[draw.IntN(len(kinds))], draw.IntN(2) == 0
	if request.Method == http.MethodGet && kind == "409" {
		kind = "500" // nobody is in conflict by reading
	}
	if !sent {
		w.note(kind + " before")
		return misfortune(request, kind, refuse(request, nil))
	}
	response, err := next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	w.note(kind + " after")
	return misfortune(request, kind, response.Body.Close())
}

func misfortune(request *http.Request, kind string, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	return misfortunes[kind](request)
}

// lateBody is that of a watch. What it reports is late, and in its order; now and then it ends.
type lateBody struct {
	io.ReadCloser
	weather *weather
	draw    *rand.Rand
	fog     *fog
	done    <-chan struct{}
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.weather.clear.Load() || err != nil {
		return n, err
	}
	if b.draw.Float64() < b.weather.share/4 {
		b.weather.note("watch ended")
		return 0, io.ErrUnexpectedEOF
	}
	select {
	case <-b.done:
	case <-time.After(b.fog.left(time.Now())):
	}
	return n, err
}
