// Command demo runs the whole operator on this machine and tells its story on a terminal: a real control plane, the
// manager as a process of its own with the rights that config/ ships, and people who use kubectl. Every step is
// checked; the exit code is 0 only if each was as it should be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	stay := flag.Bool("stay", false, "after the last step keep everything running until Ctrl-C, to look around with kubectl")
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // what goes wrong is told as part of the story

	started := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx = whileParentLives(ctx)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once; the control plane's watchdog cleans up

	screen := newScreen(os.Stdout)
	checks := &ledger{}
	err := demonstrate(ctx, screen, checks, *stay)
	if ctx.Err() != nil {
		screen.say("Interrupted. Everything that was started has been ended, and its files are removed.")
		os.Exit(1)
	}
	screen.table(checks)
	elapsed := time.Since(started).Round(time.Second)
	if err != nil {
		screen.fail(fmt.Sprintf("The demo ended early after %s: %v", elapsed, err))
	}
	if failed := checks.failed(); err != nil || failed > 0 {
		screen.fail(fmt.Sprintf("%d of %d steps were not as they should be.", failed, len(checks.entries)))
		os.Exit(1)
	}
	screen.pass(fmt.Sprintf("All %d steps were as they should be, in %s.", len(checks.entries), elapsed))
}

// demonstrate tells the story and ends whatever it started, however it goes.
func demonstrate(ctx context.Context, screen *screen, checks *ledger, stay bool) (err error) {
	site, err := startSite(ctx, screen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.stop()) }()
	story := &story{site: site, screen: screen, checks: checks}
	if err := story.tell(ctx); err != nil {
		return errors.Join(err, site.managerLog())
	}
	if stay {
		screen.say("Everything keeps running until Ctrl-C. To look around:\n\n    export KUBECONFIG=" + site.admin.kubeconfig)
		<-ctx.Done()
	}
	return nil
}

// whileParentLives ends with the parent process: `go run` is ended by a signal that its child does not get.
func whileParentLives(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		defer cancel()
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil && os.Getppid() == parent {
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}()
	return ctx
}
