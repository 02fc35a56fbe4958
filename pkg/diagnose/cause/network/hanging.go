package network

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// patience is how long a CNI plugin must not have returned to prove by itself that it hangs.
const patience = time.Minute

// waits are the wordings for what a plugin waits for.
var waits = []diagnose.Choice{
	{Text: "The plugin waits for its child {child} (PID {childpid}), which sleeps in {syscall} ({function})"},
	{Text: "The plugin waits for its child {child} (PID {childpid})"},
	{Text: "The plugin sleeps in {syscall} ({function})"},
	{Text: "What the plugin waits for is not known"},
}

// bring are the wordings for the first step about a plugin that hangs.
var bring = []diagnose.Choice{{Text: itsPodHere + ifReady}, {Text: itsPod + ifReady}}

// ifReady is what is done where that pod is well.
const ifReady = ". If Ready or none: use Fix"

// What is done about the pod of a plugin's daemon, with and without the node's name.
const (
	itsPod     = "if the CNI pod (such as calico-node) of this node is not Ready, repair what its log shows"
	itsPodHere = "kubectl get pods -A --field-selector spec.nodeName={node} (cluster rights): if the CNI pod (such as calico-node) is not Ready, " +
		"repair what its log shows"
)

// roots returns those of some plugins that containerd itself has started, and not another one of them.
func roots(plugins []evidence.Task) (out []*evidence.Task) {
	for i := range plugins {
		if t := &plugins[i]; !slices.ContainsFunc(plugins, func(of evidence.Task) bool { return of.PID == t.PPID }) {
			out = append(out, t)
		}
	}
	return out
}

// suspects is the source that tells when a plugin was started.
var suspects = []evidence.Source{evidence.Suspects}

// hasRunFor answers whether a plugin has not returned for that long. One that has just been started is not waited for: each try starts another.
func hasRunFor(p *fact.View, plugin *evidence.Task, limit time.Duration) diagnose.Holding {
	if plugin.Started().IsZero() {
		return diagnose.NotRead(evidence.Suspects)
	}
	if age := p.Time.Sub(plugin.Started()); age < min(limit, fact.SlowDevice) {
		return diagnose.NotYet(diagnose.Seen(p, diagnose.Slow)).KnownAt(plugin.Started().Add(limit))
	}
	return diagnose.Lasted(p, plugin.Started(), limit, diagnose.Slow)
}

// tellHanging is what is told of a plugin of these that hangs.
func tellHanging(p *fact.View, plugins []evidence.Task, plugin *evidence.Task) diagnose.Finding {
	last := fact.LastOf(plugins, plugin)
	o := diagnose.Objects{Process: diagnose.ProcessOf(p, plugin), Since: plugin.Started(), Thread: diagnose.ThreadOf(last)}
	if last != plugin {
		o.Child = diagnose.ProcessOf(p, last)
	}
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: o}
	if p.Time.Sub(plugin.Started()) < patience {
		f.Confidence = diagnose.Inferred
	}
	return f
}

// waitsFor is the line about what a plugin waits for.
const waitsFor = "What the plugin waits for is the system call that its last descendant sleeps in. " +
	"The line of descendants is followed as long as each process has one child."
