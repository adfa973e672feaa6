package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/routing-operator/routing-operator/internal/release"
)

func TestOptions(t *testing.T) {
	inCluster := []string{"--own-namespace=operators", "--webhook-hosts=webhook.operators.svc"}
	for name, test := range map[string]struct {
		arguments []string
		// refused is a part of the message; empty where the arguments are fine.
		refused string
	}{
		"what a pod is given is enough":                            {inCluster, ""},
		"without a webhook no host and no Secret is needed":        {[]string{"--webhook-port=-1", "--leader-elect=false"}, ""},
		"with a mounted certificate no host is needed":             {[]string{"--own-namespace=operators", "--webhook-cert-dir=/certificates"}, ""},
		"a certificate of its own needs hosts":                     {[]string{"--own-namespace=operators"}, "--webhook-hosts is missing"},
		"a certificate of its own needs a namespace":               {[]string{"--leader-elect=false", "--webhook-hosts=h"}, "--own-namespace is missing"},
		"leader election needs a namespace":                        {[]string{"--webhook-port=-1"}, "--own-namespace is missing"},
		"everything that is missing is named at once":              {nil, "--webhook-hosts is missing"},
		"an unknown flag is refused":                               {[]string{"--colour=red"}, "unknown flag: --colour"},
		"an argument that is no flag is refused":                   {append(inCluster, "start"), `unexpected argument "start"`},
		"no allowed folder is refused":                             {append(inCluster, "--config-path-prefixes="), "--config-path-prefixes is empty"},
		"a feature table without V0 is refused":                    {append(inCluster, "--stargate-generations=V1=0.18.0"), "the first release of V0 is missing"},
		"a generation that there is not is refused":                {append(inCluster, "--stargate-generations=V0=0.10.0,V9=1.0.0"), `"V9" is no generation`},
		"an unknown log format is refused":                         {append(inCluster, "--log-format=xml"), `--log-format is "xml"`},
		"the version can be asked for without anything else given": {[]string{"--version"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", "")
			_, err := parseOptions(test.arguments)
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("got %v, want an error with %q", err, test.refused)
			}
		})
	}
}

func TestNamespaceComesFromThePod(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "operators")
	o, err := parseOptions([]string{"--webhook-hosts=h"})
	if err != nil || o.ownNamespace != "operators" {
		t.Errorf("got namespace %q and error %v", o.ownNamespace, err)
	}
}

func TestFeatureTableOfTheCommandLineReplacesTheBuiltInOne(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		want      release.Generation
	}{
		"by default 0.22.0 is the newest generation of the built-in table": {nil, release.V1},
		"the command line says what 0.22.0 knows":                          {[]string{"--stargate-generations=V0=0.10.0,V1=0.18.0,V2=0.20.0,V3=0.22.0"}, release.V3},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseOptions(append(test.arguments, "--own-namespace=n", "--webhook-hosts=h"))
			if err != nil {
				t.Fatal(err)
			}
			if got := o.generations.OfImage("router:0.22.0", nil).Generation; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	if _, err := parseOptions([]string{"--help"}); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("got %v", err)
	}
}
