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

	"github.com/routing-operator/routing-operator/test/fixtures"
)

func main() {
	stay := flag.Bool("stay", false, "after the last step keep everything running until Ctrl-C, and print what it takes to look around by hand")
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // what goes wrong is told as part of the story

	started := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx = whileParentLives(ctx)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once; the control plane's watchdog cleans up

	screen := newScreen(os.Stdout)
	if !demonstrate(ctx, screen, started, *stay) {
		os.Exit(1)
	}
}

// demonstrate tells the story, says whether every step was as it should be, and ends whatever it started.
func demonstrate(ctx context.Context, screen *screen, started time.Time, stay bool) (ok bool) {
	checks := &ledger{}
	site, err := startSite(ctx, screen)
	if err != nil {
		return conclude(ctx, screen, checks, err, started)
	}
	defer func() {
		if err := site.stop(); err != nil {
			screen.fail(fmt.Sprintf("What was started could not all be ended: %v", err))
			ok = false
		}
	}()
	story := &story{site: site, screen: screen, checks: checks}
	if err = story.tell(ctx); err != nil {
		err = errors.Join(err, site.managerLog())
	}
	if ok = conclude(ctx, screen, checks, err, started); stay && ctx.Err() == nil {
		screen.say(invitation(site.admin.kubeconfig, site.shell))
		<-ctx.Done()
	}
	return ok
}

// invitation is what somebody pastes into another terminal to look around. The story has deleted its plane; the files
// that it applied are in the shell's folder.
func invitation(kubeconfig string, s *shell) string {
	return fmt.Sprintf(`
Everything keeps running until Ctrl-C. To look around, paste this into another terminal:

    export KUBECONFIG=%q KUBERC=off
    export PATH=%q:"$PATH"   # kubectl, and its plugin kubectl-routing
    cd %q

Three things to try, one after the other:

    # the plane again, with the policies that are left, and how it gets there
    kubectl apply -f plane.yaml && kubectl routing status llm --watch

    # what two more models would change and restart
    kubectl routing plan -f llama.yaml %s

    # the same, done
    kubectl apply -f llama.yaml && kubectl routing status llm --watch`,
		kubeconfig, s.path(), s.folder, fixtures.GenerationsFlag())
}

// conclude tells how the story ended, and whether that is well.
func conclude(ctx context.Context, screen *screen, checks *ledger, err error, started time.Time) (ok bool) {
	if ctx.Err() != nil {
		screen.say("Interrupted; ending what was started.")
		return false
	}
	screen.table(checks)
	elapsed := time.Since(started).Round(time.Second)
	failed := checks.failed()
	switch {
	case err != nil:
		screen.fail(fmt.Sprintf("The demo ended early, after %s: %v", elapsed, err))
	case failed > 0:
		screen.fail(fmt.Sprintf("%d of %d steps were not as they should be, in %s.", failed, len(checks.entries), elapsed))
	default:
		screen.pass(fmt.Sprintf("All %d steps were as they should be, in %s.", len(checks.entries), elapsed))
	}
	return err == nil && failed == 0
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
