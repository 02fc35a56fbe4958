// kubectl-why_terminating is a plugin of kubectl that says why pods are stuck Terminating.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/terminal"
	"github.com/nodeagent-io/nodeagent/pkg/why"
	"github.com/nodeagent-io/nodeagent/pkg/why/collect"
)

// version is set by the linker.
var version = "dev"

// The exit statuses.
const (
	nothingLate = 0
	somethingIs = 1
	cannotTell  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := &options{config: genericclioptions.NewConfigFlags(true), out: os.Stdout}
	context.AfterFunc(ctx, stop) // a second signal ends it, whatever it waits for
	err := command(o).ExecuteContext(ctx)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintln(os.Stderr, "error:", terminal.Printable(err.Error())) // the API server has said some of it
		os.Exit(cannotTell)
	}
	os.Exit(o.status)
}

type options struct {
	config                         *genericclioptions.ConfigFlags
	all, lateOnly, script, watch   bool
	selector, node, output, colors string
	out                            io.Writer
	status                         int
	// ahead is how far the API server's clock is ahead of this machine's, in nanoseconds.
	ahead atomic.Int64
}

func command(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "kubectl-why_terminating [POD... | ns/NAME]",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl why-terminating"},
		Short:       "Explain why a pod is stuck Terminating",
		Long: `List the pods that are terminating and what holds them up, the most overdue first. With
the name of a pod, say all that is known of it: the cause, what is safe to do, what to
avoid, and whether a force delete is safe. With ns/NAME, say what holds up a namespace
that is being deleted. It changes nothing in the cluster.

It reads what the nodeagent of the pod's node has found. Without one it says what the
API alone shows: a node that is lost, finalizers, a mirror pod, a grace period.

A pod is late from 10 seconds after its grace period on.

Exit status:
  0  Nothing is late.
  1  A pod is late, or a namespace is held up.
  2  The answer could not be read, or there is no such pod.`,
		Args: cobra.ArbitraryArgs,
		Example: `  # What is stuck in the cluster
  kubectl why-terminating -A

  # All about one pod, and about a namespace
  kubectl why-terminating web-0 -n shop
  kubectl why-terminating ns/shop

  # Commands for the pods of a node that is powered off, to be read; nothing is run
  kubectl why-terminating -A --node node-7 --script`,
		Version:           version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		ValidArgsFunction: o.complete,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(o.explain())
	f := cmd.Flags()
	o.config.AddFlags(f)
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "list the pods of all namespaces")
	f.StringVarP(&o.selector, "selector", "l", "", "label selector")
	f.StringVar(&o.node, "node", "", "list the pods of this node only")
	f.BoolVar(&o.script, "script", false, "with --node: print, and do not run, commands that force-delete the pods of a node that is powered off")
	f.StringVarP(&o.output, "output", "o", "", "output format: wide, json, yaml or name")
	f.BoolVarP(&o.watch, "watch", "w", false, "print the table again every two seconds")
	f.BoolVar(&o.lateOnly, "late-only", false, "leave out pods inside their grace period")
	cmd.PersistentFlags().StringVar(&o.colors, "color", "auto", "color: auto, always or never")
	return cmd
}

// explain prints the page of a cause, as the agent's command of that name does.
func (o *options) explain() *cobra.Command {
	var capture string
	cmd := &cobra.Command{
		Use:   "explain [CAUSE]",
		Short: "Explain a cause and what to do about it, or list all causes",
		Args:  cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, _ []string, begin string) (out []string, _ cobra.ShellCompDirective) {
			for _, e := range cause.Entries() {
				if strings.HasPrefix(e.Cause, begin) {
					out = append(out, e.Cause+"\t"+e.Title)
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := io.WriteString(o.out, cause.Index())
				return err
			}
			page, err := pageOf(args[0], capture)
			if err != nil {
				return err
			}
			s, err := o.style()
			if err != nil {
				return err
			}
			_, err = io.WriteString(o.out, terminal.Page(page, terminal.PageWidth(s.Width), s.Color))
			return err
		},
	}
	cmd.Flags().StringVar(&capture, "for", "", "print which conditions of the cause a pod meets, by the output of nodeagent capture in this file")
	return cmd
}

// pageOf returns the page of a cause, with how to see which of its conditions a pod meets; or, by a capture in a file, which it meets.
func pageOf(name, capture string) (string, error) {
	if capture != "" {
		f, err := os.Open(capture)
		if err != nil {
			return "", err
		}
		defer f.Close()
		return cause.ExplainFor(name, f)
	}
	page, ok := cause.Explain(name)
	if !ok {
		return "", fmt.Errorf("no cause is called %q; kubectl why-terminating explain lists them", name)
	}
	return page + cause.HowToAsk, nil
}

func (o *options) run(ctx context.Context, names []string) error {
	switch o.output {
	case "", "wide", "json", "yaml", "name":
	default:
		return fmt.Errorf("unknown output format %q; use wide, json, yaml or name", o.output)
	}
	if _, err := o.style(); err != nil {
		return err
	}
	switch {
	case o.script && o.node == "":
		return errors.New("--script needs --node NODE: it is for the pods of one node that is powered off")
	case o.script && (o.watch || o.output != ""):
		return errors.New("--script prints a script once: leave out --watch and --output")
	case o.watch && o.output != "" && o.output != "wide":
		return fmt.Errorf("--watch prints text: leave out -o %s", o.output)
	case len(names) > 0 && (o.selector != "" || o.node != ""):
		return errors.New("a pod is asked for by its name: leave out --selector and --node")
	}
	c, q, err := o.connect()
	if err != nil {
		return err
	}
	if len(names) > 0 {
		if name, ok := namespaceOf(names[0]); ok {
			if len(names) > 1 || o.watch {
				return errors.New("one namespace at a time, and without --watch")
			}
			return o.namespace(ctx, c, name)
		}
	}
	for _, name := range names {
		q.Names = append(q.Names, strings.TrimPrefix(strings.TrimPrefix(name, "pods/"), "pod/"))
	}
	if len(q.Names) > 0 && o.all {
		return errors.New("a pod is asked for by its name in one namespace: use -n instead of -A")
	}
	if o.watch {
		return o.keep(ctx, c, q)
	}
	return o.once(ctx, c, q, o.out)
}

// completeWithin is how long the completion of a name may take.
const completeWithin = 3 * time.Second

// complete returns the pods that terminate, each with what holds it up.
func (o *options) complete(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	c, q, err := o.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	v, err := collect.View(ctx, c, q)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	v.Now = o.clock()
	var out []string
	for _, a := range why.Judge(v) {
		if strings.HasPrefix(a.Name, begin) {
			out = append(out, a.Name+"\t"+terminal.Printable(cmp.Or(a.Cause, "not known")+", "+a.HeldBy))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// once answers the query.
func (o *options) once(ctx context.Context, c collect.Clients, q collect.Query, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout())
	defer cancel()
	v, err := collect.View(ctx, c, q)
	if err != nil {
		return explained{err, collect.Explain(err, q)}
	}
	v.Now = o.clock()
	answers := why.Judge(v)
	if o.lateOnly {
		answers = slices.DeleteFunc(answers, func(a why.Answer) bool { return !a.Late() })
	}
	o.status = nothingLate
	if slices.ContainsFunc(answers, func(a why.Answer) bool { return a.Late() }) {
		o.status = somethingIs
	}
	return o.print(w, answers, v, q.Names)
}

// An explained error is in words for a person.
type explained struct {
	error
	words string
}

func (e explained) Error() string { return e.words }
func (e explained) Unwrap() error { return e.error }

// Between two tables of --watch is at least this time, and several times what the last one took: a large cluster is not asked without pause.
const (
	watchEvery = 2 * time.Second
	watchShare = 5
)

// keep answers again and again. An API server that does not answer is said, and asked again.
func (o *options) keep(ctx context.Context, c collect.Clients, q collect.Query) error {
	for {
		var b bytes.Buffer
		clears := o.terminal() && os.Getenv("TERM") != "dumb"
		if clears {
			b.WriteString("\x1b[H\x1b[2J") // from the top of an empty screen
		}
		begun := time.Now()
		err := o.once(ctx, c, q, &b)
		if ctx.Err() != nil {
			return nil
		}
		var gone *collect.NotFound
		if errors.As(err, &gone) { // the pod that was watched
			_, err := fmt.Fprintln(o.out, terminal.Printable(err.Error()))
			o.status = nothingLate
			return err
		}
		if err != nil {
			fmt.Fprintf(&b, "%s; trying again\n", terminal.Printable(err.Error()))
			o.status = cannotTell
		}
		if !clears {
			b.WriteString("\n")
		}
		if _, err := o.out.Write(b.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(watchEvery, watchShare*time.Since(begun))):
		}
	}
}

// namespaceOf returns the name of a namespace that is asked for, as kubectl has it.
func namespaceOf(arg string) (string, bool) {
	for _, kind := range []string{"ns/", "namespace/", "namespaces/"} {
		if name, ok := strings.CutPrefix(arg, kind); ok {
			return name, true
		}
	}
	return "", false
}

func (o *options) namespace(ctx context.Context, c collect.Clients, name string) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout())
	defer cancel()
	v, err := collect.Namespace(ctx, c, name)
	if err != nil {
		return err
	}
	v.Now = o.clock()
	a := why.JudgeNamespace(v)
	if a.Held {
		o.status = somethingIs
	}
	switch o.output {
	case "json", "yaml":
		return o.encode(o.out, namespaceReport{"nodeagent.io/v1alpha1", "NamespaceTerminationReport", a, append([]why.Unread{}, v.Unread...)})
	case "name":
		_, err := fmt.Fprintln(o.out, "namespace/"+a.Name)
		return err
	}
	s, err := o.style()
	if err != nil {
		return err
	}
	s.Namespace(o.out, &a, v)
	return nil
}
