package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

const (
	// stuck pods are kept by a finalizer for writesFor.
	stuck     = 10
	writesFor = 10 * time.Minute
)

// writes counts what the agent writes about pods that stay stuck.
func writes(ctx context.Context) (rows []row, err error) {
	c, err := bed.Find(ctx)
	if err != nil {
		return nil, err
	}
	node := c.Nodes[len(c.Nodes)-1]
	if err := bed.Install(ctx, c); err != nil {
		return nil, err
	}
	if err := makeNamespace(ctx, node); err != nil {
		return nil, err
	}
	pods := node.API.CoreV1().Pods(namespace)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		for i := range stuck {
			_, e := pods.Patch(ctx, sleeper(node.Name, i).Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			err = errors.Join(err, e)
		}
		err = errors.Join(err, disperse(ctx, node))
	}()
	for i := range stuck {
		p := sleeper(node.Name, i)
		p.Finalizers = []string{"example.com/bench"}
		if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	begins, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := bed.Until(begins, fmt.Sprintf("%d pods to run", stuck), func() (bool, string) {
		n, err := countRunning(begins, node, namespace)
		return err == nil && n == stuck, fmt.Sprint(n, " run ", err)
	}); err != nil {
		return nil, err
	}
	deleted := time.Now()
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return nil, err
	}
	progress("  watching the API server's audit log for " + writesFor.String())
	if err := sleep(ctx, writesFor); err != nil {
		return nil, err
	}
	all, err := bed.Writes(ctx, c, deleted)
	if err != nil {
		return nil, err
	}
	count, bytes := map[string]int{}, map[string]int{}
	total := 0
	for _, w := range all {
		if w.Namespace != namespace {
			continue
		}
		kind := strings.TrimSuffix(w.Verb+" "+w.Resource+"/"+w.Subresource, "/")
		count[kind], bytes[kind] = count[kind]+1, bytes[kind]+len(w.Body)
		total++
	}
	var each []string
	for _, kind := range []string{"patch pods/status", "create events", "patch events"} {
		if n := count[kind]; n > 0 {
			each = append(each, fmt.Sprintf("%d %s of %d bytes", n, kind, bytes[kind]/n))
		}
	}
	return []row{{
		what:     fmt.Sprintf("Writes about each of %d stuck pods in %s", stuck, writesFor),
		target:   "≤2",
		measured: fmt.Sprintf("%.1f: %s", float64(total)/stuck, strings.Join(each, ", ")),
		met:      total > 0 && total <= 2*stuck,
	}}, nil
}
