package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"
)

// TraceRequest is one line of a trace.
type TraceRequest struct {
	// Time of arrival at the router, from the beginning of the trace.
	Time time.Duration
	// Session that the request belongs to.
	Session string
	// Model that the request is for.
	Model string
	// AffinityKey of the request; empty: it has none.
	AffinityKey string
	// InputTokens and OutputTokens of the request.
	InputTokens, OutputTokens int64
	// ReusableTokens is how many of the first input tokens repeat the session's context up to the answer before.
	ReusableTokens int64
	// SharedTokens is how many of the first input tokens are alike for all sessions of the affinity key.
	SharedTokens int64
}

// traceLine is a line as it is in the file.
type traceLine struct {
	// Time of arrival in seconds. Not below that of the line before.
	Time *float64 `json:"time"`
	// Session name. Required.
	Session string `json:"session"`
	// Model name. Required.
	Model string `json:"model"`
	// InputTokens of the whole request, at least 1. Required.
	InputTokens int64 `json:"inputTokens"`
	// OutputTokens of the answer, at least 1. Required.
	OutputTokens int64 `json:"outputTokens"`
	// AffinityKey. Default: the session. "": none.
	AffinityKey *string `json:"affinityKey,omitempty"`
	// ReusableTokens. Default: the input and output tokens of the session's request before, at most this input.
	ReusableTokens *int64 `json:"reusableTokens,omitempty"`
	// SharedTokens. Default 0.
	SharedTokens *int64 `json:"sharedTokens,omitempty"`
}

// maxTraceLine is the length in bytes of the longest line.
const maxTraceLine = 1 << 20

// ReadTrace reads a trace of JSON lines in order of time, strictly. Source names the file in errors.
func ReadTrace(r io.Reader, source string) ([]TraceRequest, error) {
	var (
		trace   []TraceRequest
		names   = map[string]string{}
		context = map[[2]string]int64{}
		lines   = bufio.NewScanner(r)
		number  int
	)
	// one keeps a single copy of every name, of which a trace repeats few.
	one := func(name string) string {
		if kept, ok := names[name]; ok {
			return kept
		}
		names[name] = name
		return name
	}
	lines.Buffer(nil, maxTraceLine)
	for lines.Scan() {
		number++
		data := bytes.TrimSpace(lines.Bytes())
		if len(data) == 0 {
			continue
		}
		request, err := parseTraceLine(data, context)
		if err == nil && len(trace) > 0 && request.Time < trace[len(trace)-1].Time {
			err = fmt.Errorf("time: %v is before the line above it; sort the trace by time", request.Time)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the trace: %s: line %d: %w", source, number, err)
		}
		request.Session, request.Model, request.AffinityKey = one(request.Session), one(request.Model), one(request.AffinityKey)
		context[[2]string{request.Model, request.Session}] = request.InputTokens + request.OutputTokens
		trace = append(trace, request)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("longer than %d bytes; write one JSON object a line", maxTraceLine)
		}
		return nil, fmt.Errorf("reading the trace: %s: line %d: %w", source, number+1, err)
	}
	if len(trace) == 0 {
		return nil, fmt.Errorf(`reading the trace: %s: no request in it; write one JSON object a line, such as {"time": 0.5, "session": "s1", "model": "m", "inputTokens": 900, "outputTokens": 200}`, source)
	}
	return trace, nil
}

// parseTraceLine reads a line. Context is the tokens of each session so far, by model and session.
func parseTraceLine(data []byte, context map[[2]string]int64) (TraceRequest, error) {
	var line traceLine
	strict, err := kjson.UnmarshalStrict(data, &line)
	if err != nil {
		return TraceRequest{}, inPlainWords(err)
	}
	if err = errors.Join(strict...); err != nil {
		return TraceRequest{}, fmt.Errorf("%w; allowed: %s", err, strings.Join(fieldsBeside(reflect.TypeFor[traceLine](), ""), ", "))
	}
	r := TraceRequest{Session: line.Session, Model: line.Model, AffinityKey: line.Session, InputTokens: line.InputTokens, OutputTokens: line.OutputTokens}
	r.ReusableTokens = min(context[[2]string{line.Model, line.Session}], line.InputTokens)
	if line.AffinityKey != nil {
		r.AffinityKey = *line.AffinityKey
	}
	if line.ReusableTokens != nil {
		r.ReusableTokens = *line.ReusableTokens
	}
	if line.SharedTokens != nil {
		r.SharedTokens = *line.SharedTokens
	}
	switch {
	case line.Time == nil:
		return r, errors.New("time: required, the time of arrival in seconds")
	case !(*line.Time >= 0 && *line.Time <= longestTime.Seconds()):
		return r, fmt.Errorf("time: %v: must be from 0 to %v seconds from the beginning of the trace", *line.Time, longestTime.Seconds())
	case r.Session == "":
		return r, errors.New("session: required")
	case r.Model == "":
		return r, errors.New("model: required")
	case r.InputTokens < 1 || r.InputTokens > maxTokens:
		return r, fmt.Errorf("inputTokens: %d: must be from 1 to %d", r.InputTokens, maxTokens)
	case r.OutputTokens < 1 || r.OutputTokens > maxTokens:
		return r, fmt.Errorf("outputTokens: %d: must be from 1 to %d", r.OutputTokens, maxTokens)
	case r.ReusableTokens < 0 || r.ReusableTokens > r.InputTokens:
		return r, fmt.Errorf("reusableTokens: %d: must be from 0 to inputTokens, %d", r.ReusableTokens, r.InputTokens)
	case r.SharedTokens < 0 || r.SharedTokens > r.InputTokens:
		return r, fmt.Errorf("sharedTokens: %d: must be from 0 to inputTokens, %d", r.SharedTokens, r.InputTokens)
	case r.SharedTokens > 0 && r.AffinityKey == "":
		return r, errors.New("sharedTokens: tokens are shared by the sessions of an affinity key, and affinityKey is empty")
	}
	r.Time = time.Duration(math.Round(*line.Time * float64(time.Second)))
	return r, nil
}

// WriteTrace writes requests as a trace that ReadTrace reads back as they were.
func WriteTrace(w io.Writer, requests []TraceRequest) error {
	buffered := bufio.NewWriter(w)
	e := json.NewEncoder(buffered)
	for i := range requests {
		r := &requests[i]
		seconds := r.Time.Seconds()
		if err := e.Encode(traceLine{&seconds, r.Session, r.Model, r.InputTokens, r.OutputTokens, &r.AffinityKey, &r.ReusableTokens, &r.SharedTokens}); err != nil {
			return fmt.Errorf("writing a trace: %w", err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("writing a trace: %w", err)
	}
	return nil
}
