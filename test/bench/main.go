// Bench prints one table: how fast, how small and how quiet the agent is,
// against the targets that it was built for. `make bench` builds what is
// measured and runs it; arguments choose parts: reading, opens, round,
// size, verdicts, idle, writes, hung, attack, starve, policy, plugin.
//
// A missed target is no failure: the machines that this runs on are shared and
// the cluster's node may be emulated, so a number is a count, a ratio within
// one run, or time on the CPU. It fails only when something could not be
// measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

// A row is one line of the table. What has no target is told for comparison.
type row struct {
	what, target, measured string
	met                    bool
}

// A part measures one thing or a few that are measured together. The cheap
// ones come first, so that something is there when the cluster is not.
type part struct {
	name    string
	measure func(context.Context) ([]row, error)
}

var parts = []part{
	{"reading", reading},
	{"opens", opens},
	{"round", round},
	{"size", size},
	{"verdicts", verdicts},
	{"idle", idle},
	{"writes", writes},
	{"hung", hung},
	{"attack", attack(memoryAttackers)},
	{"starve", attack(starvers)},
	{"policy", policy},
	{"plugin", plugin},
}

// against is the program of another commit, "" for none.
var against string

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "probe": // the helper process of a gathering
			os.Exit(probe.Main(os.Stdin, os.Stdout))
		case "baseline":
			if err := baselines(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, "bench baseline:", err)
				os.Exit(1)
			}
			return
		case "scene":
			if err := readScene(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, "bench scene:", err)
				os.Exit(1)
			}
			return
		case "gather":
			if err := gather(os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, "bench gather:", err)
				os.Exit(1)
			}
			return
		}
	}
	flag.StringVar(&against, "against", "", "this program as another commit has it, whose rounds are measured by turns with ours")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first interrupt cleans up and prints what there is; the second ends it.
	context.AfterFunc(ctx, stop)
	if err := bench(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, names []string) error {
	for _, n := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == n }) {
			var all []string
			for _, p := range parts {
				all = append(all, p.name)
			}
			return fmt.Errorf("no part is called %q; there are %s", n, strings.Join(all, ", "))
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "WHAT\tTARGET\tMEASURED\t\n")
	var errs []error
	for _, p := range parts {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		begin := time.Now()
		progress("%s ...", p.name)
		rows, err := p.measure(ctx)
		progress("%s: %s", p.name, time.Since(begin).Round(time.Second))
		for _, r := range rows {
			verdict := "ok"
			switch {
			case r.target == "":
				verdict = ""
			case !r.met:
				verdict = "missed"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.target, r.measured, verdict)
		}
		if err != nil {
			fmt.Fprintf(w, "%s\t\tcould not be measured, see below\t\n", p.name)
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		// A long run that is interrupted has printed what it has.
		if err := w.Flush(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// progress prints on standard error, apart from the table, what takes so long.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// file returns a file of the checkout.
func file(elements ...string) string {
	return filepath.Join(append([]string{bed.Root()}, elements...)...)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}
