package testenv

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditPolicy logs requests that write, at both ends: on receipt, so that a write that was answered is always
// in the log, and when done, for the code. Reviews are created but stored nowhere.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: None
  resources: [{group: authentication.k8s.io}, {group: authorization.k8s.io}]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
`

// Write is a request that changes something at the API server, or tried to.
type Write struct {
	At                     time.Time
	UserAgent, User        string
	Verb                   string // create, update, patch, delete, deletecollection
	Group, Resource, Name  string
	Subresource, Namespace string
	DryRun                 bool // as far as the URL says: the options of a delete are in its body
	Code                   int  // HTTP status; 0 while the request is being served
}

// ToLease tells a write that keeps a leader elected.
func (w Write) ToLease() bool { return w.Group == "coordination.k8s.io" && w.Resource == "leases" }

func (w Write) String() string {
	resource := w.Resource
	if w.Subresource != "" {
		resource += "/" + w.Subresource
	}
	return fmt.Sprintf("%s %s %s %s/%s (%d) by %s, %s", w.At.Format("15:04:05.000"), w.Verb, resource, w.Namespace, w.Name, w.Code, w.User, w.UserAgent)
}

// Mark is a position in the sequence of writes.
type Mark int64

// Mark returns the present position: later writes are after it.
func (e *Environment) Mark() (Mark, error) {
	info, err := os.Stat(e.AuditLog)
	if err != nil {
		return 0, fmt.Errorf("looking at the audit log: %w", err)
	}
	return Mark(info.Size()), nil
}

// Writes returns the write requests since the mark whose user agent begins with the prefix, in order of receipt.
// A request that the API server has answered is among them.
func (e *Environment) Writes(since Mark, userAgent string) ([]Write, error) {
	file, err := os.Open(e.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	if _, err := file.Seek(int64(since), io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}

	var writes []Write
	index := map[types.UID]int{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // a line without end is being written
			return writes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("reading a line of the audit log: %w", err)
		}
		if !strings.HasPrefix(event.UserAgent, userAgent) {
			continue
		}
		if event.Stage == auditv1.StageRequestReceived {
			index[event.AuditID] = len(writes)
			writes = append(writes, writeOf(event))
		} else if i, ok := index[event.AuditID]; ok && event.ResponseStatus != nil {
			writes[i].Code = int(event.ResponseStatus.Code)
		}
	}
}

func writeOf(event auditv1.Event) Write {
	w := Write{
		At:        event.RequestReceivedTimestamp.Time,
		UserAgent: event.UserAgent,
		User:      event.User.Username,
		Verb:      event.Verb,
		DryRun:    strings.Contains(event.RequestURI, "dryRun=All"),
	}
	if ref := event.ObjectRef; ref != nil {
		w.Group, w.Resource, w.Subresource, w.Namespace, w.Name = ref.APIGroup, ref.Resource, ref.Subresource, ref.Namespace, ref.Name
	}
	return w
}
