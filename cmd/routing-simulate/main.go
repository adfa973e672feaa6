// Command routing-simulate tries routing policies on a model of the site before they are applied.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/routing-operator/routing-operator/internal/simulate/cmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := cmd.New(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	command.Use = "routing-simulate -f POLICY... [--workload FILE] [--site FILE]"
	if err := command.ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}
