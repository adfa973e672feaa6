package rollout

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// storedRecord is a Record as an annotation holds it.
type storedRecord struct {
	Applied   *metav1.MicroTime `json:"applied,omitempty"`
	Completed *metav1.MicroTime `json:"completed,omitempty"`
	Template  string            `json:"template,omitempty"`
	Failed    *metav1.MicroTime `json:"failed,omitempty"`
	Retry     string            `json:"retry,omitempty"`
	Message   string            `json:"message,omitempty"`
	Change    string            `json:"change,omitempty"`

	Gate *v1alpha1.GateRecord `json:"gate,omitempty"`
}

// EncodeRecords gives the text of the annotation revision.AnnotationRecords: what became of workloads, by their keys.
func EncodeRecords(records map[string]Record) (string, error) {
	stored := make(map[string]storedRecord, len(records))
	for key, r := range records {
		stored[key] = storedRecord{
			Applied: microTime(r.Applied), Completed: microTime(r.Completed), Template: r.Template,
			Failed: microTime(r.Failed), Retry: r.Retry, Message: r.Message, Change: r.Change, Gate: r.Gate,
		}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return "", fmt.Errorf("encoding the records of a revision: %w", err)
	}
	return string(text), nil
}

// DecodeRecords reads what EncodeRecords gave. It takes an annotation that was tampered with for none at all: the plane's
// status has the same.
func DecodeRecords(text string) map[string]Record {
	var stored map[string]storedRecord
	if text == "" || json.Unmarshal([]byte(text), &stored) != nil {
		return nil
	}
	records := make(map[string]Record, len(stored))
	for key, r := range stored {
		records[key] = Record{
			Applied: ofMicroTime(r.Applied), Completed: ofMicroTime(r.Completed), Template: r.Template,
			Failed: ofMicroTime(r.Failed), Retry: r.Retry, Message: r.Message, Change: r.Change, Gate: r.Gate,
		}
	}
	return records
}

func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t}
}

func ofMicroTime(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
