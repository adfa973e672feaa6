package standin

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
)

// process is what a container found when it started, and holds on to.
type process struct {
	file  []byte // nil: it was given none
	flags []lbconfig.Place
	env   map[string]string
	// counters of its metrics.
	counters map[string]float64
}

const pathArgument = "--lb-config-path"

// startRouter does what Stargate does with its file, and returns the line that it logs.
func startRouter(c *corev1.Container, volumes map[string]volume, p *process, generation release.Generation) (string, error) {
	name, given := argument(arguments(c, p.env), pathArgument)
	if !given {
		return loaded(v1alpha1.PowerOfN, 0), nil
	}
	content, ok := file(c, volumes, name)
	if !ok {
		return "", fmt.Errorf("failed to read load balancer config %s: No such file or directory (os error 2)", name)
	}
	p.file = content
	config, err := lbconfig.Read(content, generation)
	if err != nil {
		return "", fmt.Errorf("failed to load load balancer config %s: %w", name, err)
	}
	p.flags = config.Flags()
	algorithm := config.Default
	if algorithm == "" {
		algorithm = v1alpha1.PowerOfN
	}
	return loaded(algorithm, len(config.Models)), nil
}

func loaded(algorithm v1alpha1.Algorithm, models int) string {
	return fmt.Sprintf("INFO load balancer config loaded default_lb=%s model_overrides=%d", algorithm, models)
}

// argument finds --name=value or --name value; the last one counts.
func argument(arguments []string, name string) (value string, ok bool) {
	for i, a := range arguments {
		if v, found := strings.CutPrefix(a, name+"="); found {
			value, ok = v, true
		} else if a == name && i+1 < len(arguments) {
			value, ok = arguments[i+1], true
		}
	}
	return value, ok
}

// The gateway's variables.
const (
	memoryEnabled = "STARGATE_LAST_CLUSTER_ENABLED"
	memoryTTL     = "STARGATE_LAST_CLUSTER_TTL"
	memoryTimeout = "STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT"
	memoryEntries = "STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES"
)

// startGateway reads the variables of the gateway's memory. Empty is unset; a malformed one ends the gateway, also
// with the memory off.
func startGateway(p *process) (string, error) {
	duration := func(s string) error {
		d, err := time.ParseDuration(s)
		if err == nil && d <= 0 {
			return errors.New("must be greater than zero")
		}
		return err
	}
	for _, variable := range []struct {
		name  string
		check func(string) error
	}{
		{memoryEnabled, func(s string) error { _, err := strconv.ParseBool(s); return err }},
		{memoryTTL, duration},
		{memoryTimeout, duration},
		{memoryEntries, func(s string) error {
			n, err := strconv.Atoi(s)
			if err == nil && n <= 0 {
				return errors.New("must be greater than zero")
			}
			return err
		}},
	} {
		value := p.env[variable.name]
		if value == "" {
			continue
		}
		if err := variable.check(value); err != nil {
			return "", fmt.Errorf("invalid %s %q: %w", variable.name, value, err)
		}
	}
	return fmt.Sprintf("INFO last cluster memory enabled=%t", p.memory()), nil
}

// memory tells whether a gateway with this environment remembers last clusters.
func (p *process) memory() bool {
	on, err := strconv.ParseBool(p.env[memoryEnabled])
	return err == nil && on
}
