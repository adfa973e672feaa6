package render

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// The gateway's variables about its memory of each session's last cluster.
const (
	VariableEnabled         = "STARGATE_LAST_CLUSTER_ENABLED"
	VariableTTL             = "STARGATE_LAST_CLUSTER_TTL"
	VariableLookupTimeout   = "STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT"
	VariableLocalMaxEntries = "STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES"
)

// GatewayVariableNames are the names of all of the gateway's variables that the operator sets, sorted.
func GatewayVariableNames() []string {
	return []string{VariableEnabled, VariableLocalMaxEntries, VariableLookupTimeout, VariableTTL}
}

// The gateway's own defaults.
const (
	DefaultTTL             = 10 * time.Minute
	DefaultLookupTimeout   = 20 * time.Millisecond
	DefaultLocalMaxEntries = 100_000
)

// GatewayVariables renders all of the gateway's variables, with the gateway's defaults where the spec says
// nothing. A memory that is off is an explicit false: it has to win over what a chart sets.
func GatewayVariables(spec v1alpha1.LastClusterSpec, enabled bool) map[string]string {
	entries := int64(DefaultLocalMaxEntries)
	if spec.LocalMaxEntries != nil {
		entries = *spec.LocalMaxEntries
	}
	return map[string]string{
		VariableEnabled:         strconv.FormatBool(enabled),
		VariableTTL:             duration(spec.TTL, DefaultTTL),
		VariableLookupTimeout:   duration(spec.LookupTimeout, DefaultLookupTimeout),
		VariableLocalMaxEntries: strconv.FormatInt(entries, 10),
	}
}

func duration(d *metav1.Duration, otherwise time.Duration) string {
	if d == nil {
		return otherwise.String()
	}
	return d.Duration.String()
}
