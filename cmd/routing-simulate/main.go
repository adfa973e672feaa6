// Command routing-simulate tries routing policies on a model of the site before they are applied.
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/routing-operator/routing-operator/internal/simulate/cmd"
)

const name = "routing-simulate"

func main() {
	if err := run(); err != nil {
		os.Exit(1) // the command has said why
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := cmd.New(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	command.Use = strings.Replace(command.Use, command.Name(), name, 1)
	command.Example = strings.ReplaceAll(command.Example, "  simulate", "  "+name)
	return command.ExecuteContext(ctx)
}
