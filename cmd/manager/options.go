package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// options are the manager's command line.
type options struct {
	metricsAddress string
	secureMetrics  bool
	probeAddress   string

	leaderElection bool
	ownNamespace   string
	namespaces     []string

	webhookBindHost      string
	webhookPort          int
	webhookCertDir       string
	webhookSecret        string
	webhookHosts         []string
	webhookConfiguration string

	configPathPrefixes []string
	generations        release.Table

	logVerbosity int
	logFormat    string
	version      bool
}

// parseOptions reads the command line, without the program's name. pflag.ErrHelp says that help was asked for
// and given.
func parseOptions(arguments []string) (*options, error) {
	o := &options{}
	var generations map[string]string
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "address of the metrics endpoint; 0 for none")
	flags.BoolVar(&o.secureMetrics, "metrics-secure", true, "serve metrics over HTTPS, to clients that may get the URL /metrics")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
	flags.BoolVar(&o.leaderElection, "leader-elect", true, "let one replica at a time change anything; all of them answer admission reviews")
	flags.StringVar(&o.ownNamespace, "own-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the lease and of the webhook's Secret")
	flags.StringSliceVar(&o.namespaces, "namespaces", nil, "namespaces whose planes and policies are managed; default all")
	flags.StringVar(&o.webhookBindHost, "webhook-bind-host", "", "IP address that the admission webhook listens on; default all")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the admission webhook; -1 for none")
	flags.StringVar(&o.webhookCertDir, "webhook-cert-dir", "", "folder with the webhook's tls.crt and tls.key; without it the manager makes its own certificate and renews it")
	flags.StringVar(&o.webhookSecret, "webhook-secret", "routing-operator-webhook", "Secret in which the replicas share their own certificate")
	flags.StringSliceVar(&o.webhookHosts, "webhook-hosts", nil, "names or IP addresses at which API servers reach the webhook; required for a certificate of the manager's own")
	flags.StringVar(&o.webhookConfiguration, "webhook-configuration", "routing-operator", "ValidatingWebhookConfiguration that is told to trust the manager's own certificate")
	flags.StringSliceVar(&o.configPathPrefixes, "config-path-prefixes", []string{validate.DefaultPathPrefix}, "folders under which a plane's configPath may lie; the operator mounts over them")
	flags.StringToStringVar(&generations, "stargate-generations", nil, "first Stargate release of each generation, V0=0.10.0,V1=0.18.0,V2=...; replaces the built-in table, which has exactly the two that are shown")
	flags.IntVar(&o.logVerbosity, "log-verbosity", 0, "0 tells what changes, higher numbers tell more")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
	flags.BoolVar(&o.version, "version", false, "print the version and exit")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return nil, fmt.Errorf("unexpected argument %q; the manager takes flags only", rest[0])
	}
	o.generations = release.DefaultTable()
	if flags.Changed("stargate-generations") {
		table, err := release.ParseTable(generations)
		if err != nil {
			return nil, fmt.Errorf("--stargate-generations: %w", err)
		}
		o.generations = table
	}
	if o.version {
		return o, nil
	}
	return o, o.check()
}

func (o *options) check() error {
	var errs []error
	if o.ownNamespace == "" && (o.leaderElection || o.keepsCertificate()) {
		errs = append(errs, errors.New("--own-namespace is missing (in a pod: set POD_NAMESPACE by the downward API); it is where the lease and the webhook's Secret are"))
	}
	if len(o.webhookHosts) == 0 && o.keepsCertificate() {
		errs = append(errs, errors.New("--webhook-hosts is missing, for example routing-operator-webhook.routing-operator-system.svc; or give a certificate with --webhook-cert-dir"))
	}
	if slices.Contains(o.configPathPrefixes, "") || len(o.configPathPrefixes) == 0 {
		errs = append(errs, errors.New("--config-path-prefixes is empty, which would allow no plane or every path; name at least one folder"))
	}
	if o.logFormat != "json" && o.logFormat != "text" {
		errs = append(errs, fmt.Errorf("--log-format is %q; it can be json or text", o.logFormat))
	}
	return errors.Join(errs...)
}

// logger writes to the standard error.
func (o *options) logger() logr.Logger {
	// logr's verbosity n is slog's level -n.
	settings := &slog.HandlerOptions{Level: slog.Level(-o.logVerbosity)}
	if o.logFormat == "text" {
		return logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, settings))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, settings))
}

// servesWebhook says whether there is an admission webhook at all.
func (o *options) servesWebhook() bool { return o.webhookPort >= 0 }

// keepsCertificate says whether the webhook's certificate is the manager's own to make.
func (o *options) keepsCertificate() bool { return o.servesWebhook() && o.webhookCertDir == "" }
