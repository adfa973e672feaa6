// Command kubectl-routing is the kubectl plugin: kubectl routing.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/routing-operator/routing-operator/internal/cli"
)

func main() {
	debug.SetGCPercent(400) // a short life and little memory: time counts more
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	code := cli.Run(ctx, os.Args[1:], streams, clock.RealClock{})
	stop()
	os.Exit(code)
}
