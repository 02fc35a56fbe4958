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

// hanging returns the finding of the first plugin that counts and has not returned for that long.
// For the others that are slow, it returns until when they are not reported to hang.
func hanging(p *fact.View, plugins []evidence.Task, limit time.Duration, counts func(*evidence.Task) bool) diagnose.Result {
	var r diagnose.Result
	for i := range plugins {
		plugin := &plugins[i]
		if isChild(plugins, plugin) || !counts(plugin) || plugin.Probe == nil || plugin.Probe.Started.IsZero() {
			continue
		}
		age := p.Time.Sub(plugin.Probe.Started)
		if age < limit {
			if age >= fact.SlowDevice {
				r.Open = append(r.Open, diagnose.Waits(plugin.Probe.Started, limit, diagnose.Slow))
			}
			continue
		}
		last := fact.LastOf(plugins, plugin)
		o := diagnose.Objects{Process: diagnose.ProcessOf(p, plugin), Since: plugin.Probe.Started, Thread: diagnose.ThreadOf(last)}
		if last != plugin {
			o.Child = diagnose.ProcessOf(p, last)
		}
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: o}
		if age < patience {
			f.Confidence = diagnose.Inferred
		}
		return diagnose.Found(f)
	}
	return r
}

// isChild reports whether a process was started by another one of the plugins.
func isChild(plugins []evidence.Task, t *evidence.Task) bool {
	return slices.ContainsFunc(plugins, func(of evidence.Task) bool { return of.PID == t.PPID })
}
