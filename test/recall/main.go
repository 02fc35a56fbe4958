// Recall measures how often the agent tells why, of pods that burn their grace period: `make recall`. It runs 27 shapes of everyday
// images on native nodes, crossed with hooks and behaviours, and writes the table in docs/recall.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

const (
	// sideBySide is how many pods live on a node at a time, and startsSideBySide how many start: most of the time they wait.
	sideBySide       = 16
	startsSideBySide = 4
	// lastWords is for how long the agent may tell of a pod that is gone.
	lastWords = time.Minute
)

func main() {
	name := flag.String("name", "", "only the cells of this name or pattern, such as java-*")
	list := flag.Bool("list", false, "only list the cells")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *name, *list); err != nil {
		fmt.Fprintln(os.Stderr, "make recall:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pattern string, list bool) error {
	cells, err := named(pairwise(shapes()), pattern)
	if err != nil {
		return err
	}
	if list {
		for _, c := range cells {
			accepts, why := c.accepts()
			fmt.Printf("%-32s %-24s %s\n", c.name(), causes(accepts), why)
		}
		return nil
	}
	commit, err := bed.Commit(ctx)
	if err != nil {
		return err
	}
	c, err := bed.Find(ctx)
	if err != nil {
		return err
	}
	nodes := slices.DeleteFunc(slices.Clone(c.Nodes), func(n *bed.Node) bool { return n.Emulated() })
	if len(nodes) == 0 {
		return errors.New("the cluster has no native node; make recall starts one where no cluster runs: make cluster-down")
	}
	c.Nodes = nodes
	if err := bed.LoadImages(ctx, c, append(images(cells), bed.ServersInt)...); err != nil {
		return err
	}
	if err := bed.Install(ctx, c); err != nil {
		return err
	}
	results, err := measure(ctx, c, cells)
	if err != nil {
		return err
	}
	t := table{commit: commit, on: nodes[0].Software(), results: results}
	if err := t.remedy(ctx, c, cells); err != nil {
		return err
	}
	if err := t.count(ctx, nodes); err != nil {
		return err
	}
	if err := errors.Join(t.keep(), keepLogs(ctx, nodes)); err != nil {
		return err
	}
	fmt.Print(t.rows(), "\n")
	switch {
	case pattern != "":
	case strings.HasSuffix(commit, "-dirty"):
		fmt.Printf("%s is left as it is: something is not committed.\n", document)
	default:
		if err := os.WriteFile(filepath.Join(bed.Root(), document), []byte(t.markdown()), 0o644); err != nil {
			return err
		}
		fmt.Printf("%s is written; commit it.\n", document)
	}
	fmt.Println(t.sum())
	fmt.Println(t.remediesSum())
	fmt.Println(t.counted())
	return t.verdict()
}

// named returns the cells of a name or pattern, all for "".
func named(cells []cell, pattern string) ([]cell, error) {
	if pattern == "" {
		return cells, nil
	}
	var out []cell
	for _, c := range cells {
		is, err := path.Match(pattern, c.name())
		if err != nil {
			return nil, fmt.Errorf("NAME=%s: %w", pattern, err)
		}
		if is {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no cell is called %s; go run ./test/recall -list lists them", pattern)
	}
	return out, nil
}

// images lists those that the cells need.
func images(cells []cell) []string {
	var out []string
	for _, c := range cells {
		if image := c.program().image; !slices.Contains(out, image) {
			out = append(out, image)
		}
	}
	return out
}

// measure runs the cells, and asks what was told of them when the agent has had its last words.
func measure(ctx context.Context, c *bed.Cluster, cells []cell) ([]result, error) {
	w, err := newWatch(ctx, c)
	if err != nil {
		return nil, err
	}
	slots := make(chan *bed.Node, sideBySide*len(c.Nodes))
	for range sideBySide {
		for _, n := range c.Nodes {
			slots <- n
		}
	}
	starts := make(chan struct{}, startsSideBySide*len(c.Nodes))
	runs := make([]*bed.Run, len(cells))
	failures := make([]error, len(cells))
	var wg sync.WaitGroup
	for i, cell := range cells {
		var n *bed.Node
		select {
		case n = <-slots:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		wg.Go(func() {
			defer func() { slots <- n }()
			runs[i] = &bed.Run{Scenario: cell.scenario(), Node: n}
			failures[i] = end(ctx, w, cell, runs[i], starts)
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-time.After(lastWords):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var out []result
	for i, r := range runs {
		e, err := assess(ctx, w, cells[i], r, failures[i])
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// end starts a cell's pod, deletes it and waits until it is gone. What fails before is force-deleted.
func end(ctx context.Context, w *watch, c cell, r *bed.Run, starts chan struct{}) error {
	starts <- struct{}{}
	started := sync.OnceFunc(func() { <-starts })
	defer started()
	wait := r.Break
	r.Break = nil
	err := r.Start(ctx)
	started()
	if err == nil {
		err = wait(ctx, r.Node, r.Pod)
	}
	if err == nil {
		err = r.Delete(ctx)
	}
	if err == nil && c.shape.again {
		err = deleteAgain(ctx, r)
	}
	if err == nil {
		err = r.Node.Await(ctx, r.Name+" to be gone", func() (bool, string) { return w.gone(r.Pod.UID), "it is there" })
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, r.Discard(ctx))
	}
	fmt.Printf("%s is gone%s\n", r.Name, map[bool]string{true: ", and has failed"}[err != nil])
	return err
}

// deleteAgain deletes a pod that is being deleted with a grace period of two seconds.
func deleteAgain(ctx context.Context, r *bed.Run) error {
	time.Sleep(4 * time.Second)
	seconds := int64(2)
	err := r.Node.API.CoreV1().Pods(r.Pod.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{GracePeriodSeconds: &seconds})
	if apierrors.IsNotFound(err) {
		return nil // it has ended
	}
	return err
}

// assess judges a cell by all that was seen of it.
func assess(ctx context.Context, w *watch, c cell, r *bed.Run, failure error) (result, error) {
	accepts, why := c.accepts()
	out := result{
		Name: c.name(), Shape: c.shape.name, Hook: string(c.hook), Behaviour: string(c.behaviour), Container: c.container(),
		StandIn: c.shape.standIn, Want: causes(accepts), Why: why, Node: r.Node.Name, Own: c.program().own,
	}
	if failure != nil {
		out.Outcome, out.Because = otherwise, failure.Error()
		return out, nil
	}
	out.Grace = *r.Pod.Spec.TerminationGracePeriodSeconds
	out.Ending, out.Verdicts = w.of(r.Pod.UID, c, r.Deleted)
	events, err := r.Events(ctx)
	if err != nil {
		return out, fmt.Errorf("list the Events of %s: %w", r.Name, err)
	}
	for _, e := range events {
		if m := firstOf.FindStringSubmatch(e.Note); m != nil && out.First == "" {
			out.First = m[1]
		}
		s := seen{verdicts: out.Verdicts}
		s.add(verdict{Cause: e.Reason, Note: e.Note, After: e.CreationTimestamp.Sub(r.Deleted.Truncate(time.Second))})
		out.Verdicts = s.verdicts
	}
	out.Outcome, out.Because = judge(c, out.Ending, out.Verdicts)
	return out, nil
}

// keepLogs writes the agents' logs to bin/recall. They have the last evidence of pods of which no cause was found.
func keepLogs(ctx context.Context, nodes []*bed.Node) error {
	for _, n := range nodes {
		p, err := n.AgentPod(ctx)
		if err != nil {
			return err
		}
		text, err := n.Kubectl(ctx, "-n", p.Namespace, "logs", p.Name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder(), n.Name+".log"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// count reads what the agents themselves have counted.
func (t *table) count(ctx context.Context, nodes []*bed.Node) error {
	for _, n := range nodes {
		metrics, err := n.Metrics(ctx)
		if err != nil {
			return err
		}
		for line := range strings.Lines(metrics) {
			series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			name, _, _ := strings.Cut(series, "{")
			into := map[string]*int{
				"nodeagent_containers_killed_at_deadline_total": &t.killed, "nodeagent_containers_killed_unexplained_total": &t.unexplained,
				"nodeagent_verdicts_held_back_total": &t.heldBack,
			}[name]
			if into == nil {
				continue
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return fmt.Errorf("%s of the agent on %s: %w", name, n.Name, err)
			}
			*into += int(v)
		}
	}
	return nil
}
