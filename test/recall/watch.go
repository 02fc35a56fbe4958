package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// A watch has the last state of each pod of the bed, that of the moment in which it was removed among them, and all
// verdicts that its condition has had.
type watch struct {
	mu   sync.Mutex
	pods map[types.UID]*seen
}

// A seen is a pod as the watch has seen it.
type seen struct {
	last     *corev1.Pod
	gone     bool
	verdicts []verdict
}

func newWatch(ctx context.Context, c *bed.Cluster) (*watch, error) {
	w := &watch{pods: make(map[types.UID]*seen)}
	factory := informers.NewSharedInformerFactoryWithOptions(c.API, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = "scenario"
	}))
	pods := factory.Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.note(object, false) },
		UpdateFunc: func(_, object any) { w.note(object, false) },
		DeleteFunc: func(object any) { w.note(object, true) },
	}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return nil, fmt.Errorf("list pods: %w", context.Cause(ctx))
	}
	return w, nil
}

func (w *watch) note(object any, gone bool) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	p, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[p.UID]
	if s == nil {
		s = &seen{}
		w.pods[p.UID] = s
	}
	s.last, s.gone = p, s.gone || gone
	if c := bed.Condition(p); c != nil && c.Status == corev1.ConditionTrue {
		s.add(verdict{Cause: c.Reason, Note: c.Message, After: c.LastTransitionTime.Sub(requested(p))})
	}
}

// add adds a verdict, unless the cause is known.
func (s *seen) add(v verdict) {
	if !slices.ContainsFunc(s.verdicts, func(o verdict) bool { return o.Cause == v.Cause }) {
		s.verdicts = append(s.verdicts, v)
	}
}

// requested is when the pod's deletion was asked for.
func requested(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return p.CreationTimestamp.Time
	}
	// The last deletion, by the kubelet, is without a grace period and leaves the timestamp as it was.
	return p.DeletionTimestamp.Add(-time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second)
}

// gone reports whether the pod is gone from the API.
func (w *watch) gone(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[uid]
	return s != nil && s.gone
}

// of returns how a pod ended, and the verdicts of its condition.
func (w *watch) of(uid types.UID, c cell, deleted time.Time) (ending, []verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[uid]
	if s == nil {
		return ending{Odd: "nobody has seen it"}, nil
	}
	return ended(s.last, c, deleted), slices.Clone(s.verdicts)
}

// killedBy is the exit code of what SIGKILL has ended.
const killedBy = 137

// ended reads how a pod ended from its last status.
func ended(p *corev1.Pod, c cell, deleted time.Time) ending {
	var e ending
	var odd []string
	all := p.Status.ContainerStatuses
	if c.shape.init {
		all = p.Status.InitContainerStatuses
	}
	for _, s := range all {
		if s.Name == crashes {
			continue
		}
		t := s.State.Terminated
		switch {
		case t == nil:
			odd = append(odd, fmt.Sprintf("no end of container %s is known", s.Name))
			continue
		case s.RestartCount > 0:
			odd = append(odd, fmt.Sprintf("container %s was started %d times", s.Name, s.RestartCount+1))
		case t.FinishedAt.Time.Before(deleted.Add(-time.Second)):
			odd = append(odd, fmt.Sprintf("container %s had ended before the deletion: %s, exit code %d", s.Name, t.Reason, t.ExitCode))
		case t.Reason == "OOMKilled":
			odd = append(odd, fmt.Sprintf("container %s ran out of memory", s.Name))
		}
		// In whole seconds: the deadline and the end are cut off each.
		killed := t.ExitCode == killedBy && !t.FinishedAt.Time.Before(deleted.Add(time.Duration(*p.Spec.TerminationGracePeriodSeconds-1)*time.Second))
		if s.Name != c.container() {
			if killed {
				odd = append(odd, fmt.Sprintf("container %s was killed", s.Name))
			}
			continue
		}
		e.Killed, e.Code, e.After = killed, t.ExitCode, t.FinishedAt.Sub(deleted.Truncate(time.Second))
	}
	e.Odd = strings.Join(odd, ", ")
	return e
}
