package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

const (
	// drained is how many pods terminate at once.
	drained = 50
	// deafFor is their grace period, which they use up: in it the agent is watched for hungWindow while containerd answers,
	// and hungBefore its end containerd is stopped.
	deafFor    = 100 * time.Second
	hungBefore = 5 * time.Second
	hungWindow = 40 * time.Second
	// hungSettle is how long the agent has been used to what there is when it is watched.
	hungSettle = 20 * time.Second
	// hungLimit is from the stop to the first verdict.
	hungLimit = 15 * time.Second
)

// hung measures the agent while many pods of a native node terminate, before containerd is stopped and after that.
func hung(ctx context.Context) (rows []row, err error) {
	c, err := bed.Find(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.Nodes, func(n *bed.Node) bool { return !n.Emulated() })
	if i < 0 {
		return nil, errors.New(`no node of the cluster is native; make cluster-up NODES="vm native" starts one`)
	}
	node := c.Nodes[i]
	if err := bed.Install(ctx, c); err != nil {
		return nil, err
	}
	if err := makeNamespace(ctx, node); err != nil {
		return nil, err
	}
	// Nobody is left alone with a containerd that is stopped.
	goOn := func(ctx context.Context) error {
		_, err := node.Exec(ctx, "kill -CONT $(pidof containerd)")
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, goOn(ctx), disperse(ctx, node))
	}()
	pods := node.API.CoreV1().Pods(namespace)
	for i := range drained {
		p, grace := sleeper(node.Name, i), int64(deafFor/time.Second)
		p.Spec.TerminationGracePeriodSeconds = &grace
		if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	begins, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := bed.Until(begins, fmt.Sprintf("%d pods to run", drained), func() (bool, string) {
		n, err := countRunning(begins, node, namespace)
		return err == nil && n == drained, fmt.Sprint(n, " run ", err)
	}); err != nil {
		return nil, err
	}
	deleted := time.Now()
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return nil, err
	}
	if err := sleep(ctx, hungSettle); err != nil {
		return nil, err
	}
	answers, err := watchLoops(ctx, node)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, time.Until(deleted.Add(deafFor-hungBefore))); err != nil {
		return nil, err
	}
	stopped := time.Now()
	if _, err := node.Exec(ctx, "kill -STOP $(pidof containerd)"); err != nil {
		return nil, err
	}
	first, err := awaitHung(ctx, node, 1)
	if err != nil {
		return nil, err
	}
	all, err := awaitHung(ctx, node, drained)
	if err != nil {
		return nil, err
	}
	silent, err := watchLoops(ctx, node)
	if err != nil {
		return nil, err
	}
	return []row{{
		what:     fmt.Sprintf("Loops of the agent in %s, %d pods terminate", hungWindow, drained),
		measured: answers.String(),
	}, {
		what:     "  with containerd stopped",
		target:   "≥90 % of that",
		measured: silent.String(),
		met:      silent.loops*10 >= answers.loops*9,
	}, {
		what:   "  ContainerdHung on the first pod, from the stop",
		target: "≤" + hungLimit.String(),
		measured: fmt.Sprintf("%s (%s of it in the grace period); on all of them "+
			"%s", first.Sub(stopped).Round(100*time.Millisecond), hungBefore, all.Sub(stopped).Round(100*time.Millisecond)),
		met: first.Sub(stopped) <= hungLimit,
	}}, nil
}

// awaitHung returns when that many pods are first seen to have the condition ContainerdHung.
func awaitHung(ctx context.Context, node *bed.Node, many int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := bed.Until(ctx, fmt.Sprintf("ContainerdHung on %d pods", many), func() (bool, string) {
		list, err := node.API.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		n := 0
		for i := range list.Items {
			if c := bed.Condition(&list.Items[i]); c != nil && c.Status == corev1.ConditionTrue && c.Reason == "ContainerdHung" {
				n++
			}
		}
		return n >= many, fmt.Sprintf("on %d of %d", n, len(list.Items))
	})
	return time.Now(), err
}

// loops is what the agent has done in a while: its loops, how often it has looked at a pod, and its requests to containerd, of which shims
// are those that containerd has to ask a shim for.
type loops struct{ loops, looks, requests, shims float64 }

func (l loops) String() string {
	of := func(n float64) float64 { return n / max(l.loops, 1) }
	return fmt.Sprintf("%.0f; in each %.1f looks at pods, %.1f requests to containerd, %.1f of them to shims", l.loops, of(l.looks), of(l.requests), of(l.shims))
}

// countLoops reads what the agent has done since its start.
func countLoops(ctx context.Context, node *bed.Node) (l loops, err error) {
	metrics, err := node.Metrics(ctx)
	if err != nil {
		return l, err
	}
	if l.loops, err = value(metrics, "nodeagent_loops_total"); err != nil {
		return l, err
	}
	if l.looks, err = value(metrics, "nodeagent_gather_duration_seconds_count"); err != nil {
		return l, err
	}
	for line := range strings.Lines(metrics) {
		labels, ok := strings.CutPrefix(line, "nodeagent_containerd_requests_total{")
		if !ok {
			continue
		}
		method, number, _ := strings.Cut(labels, "} ")
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil {
			return l, fmt.Errorf("metric %s: %w", line, err)
		}
		l.requests += n
		if strings.Contains(method, "Tasks/Get") {
			l.shims += n
		}
	}
	return l, nil
}

// since returns what was done since another count.
func (l loops) since(before loops) loops {
	return loops{l.loops - before.loops, l.looks - before.looks, l.requests - before.requests, l.shims - before.shims}
}

// watchLoops counts for hungWindow.
func watchLoops(ctx context.Context, node *bed.Node) (loops, error) {
	before, err := countLoops(ctx, node)
	if err != nil {
		return loops{}, err
	}
	if err := sleep(ctx, hungWindow); err != nil {
		return loops{}, err
	}
	after, err := countLoops(ctx, node)
	return after.since(before), err
}
