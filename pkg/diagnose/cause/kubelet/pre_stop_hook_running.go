package kubelet

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// seenAtEnd is how long before the container's end a reading may have shown the hook running, for the hook to have run until then.
const seenAtEnd = 6 * time.Second

// leastStop is by how much a container whose hook used up the grace period outlives it at least. The kubelet leaves two seconds, and the time of the
// end is in whole seconds. A container whose hook had ended before is killed at the end of the grace period.
const leastStop = time.Second

// leastBeyond is the same from the deletion on. That time is in whole seconds too, rounded down, so a program that is killed at the end of the grace
// period may look a second late.
const leastBeyond = 2 * time.Second

// PreStopHookRunning is a preStop hook that has run for long, or has used up the grace period. The program then had two seconds for its stop signal
// (executePreStopHook and minimumGracePeriodInSeconds, pkg/kubelet/kuberuntime/kuberuntime_container.go). A hook that sleeps or sends an HTTP
// request has no process on the node: the kubelet does it itself (pkg/kubelet/lifecycle/handlers.go).
var PreStopHookRunning = &diagnose.Rule{
	Cause: "PreStopHookRunning",
	When:  diagnose.InGrace,
	Doc: diagnose.Doc{
		Layer:   "kubelet",
		Title:   "a preStop hook uses up the grace period",
		Who:     diagnose.ByApp,
		Message: "container {container}: its preStop hook {what}{outcome}",
		Quiet:   true,
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: sleeps, Text: "(sleep of {sleep}){runs}"},
				{Variant: requests, Text: "(HTTP request to port {port} of the pod) {answered}"},
				{Text: "{program} (PID {pid} on the node){runs}"},
			},
			"runs":     {{Variant: diagnose.Gone, Text: ""}, {Text: " has been running since {since}"}},
			"answered": {{Variant: diagnose.Gone, Text: "had no response and"}, {Text: "has had no response since {since}"}},
			"outcome": {
				{Variant: endedBySignal, Text: " used up the grace period of {grace}, so {signal} came only then, and the program exited at {ended}"},
				{Variant: diagnose.Gone, Text: " used up the grace period of {grace}. " +
					"{signal} came only two seconds before SIGKILL killed the program at {ended}"},
				{Text: ". {signal} comes only after the hook; SIGKILL comes at {deadline}"},
			},
			"proof": {
				{Variant: sleeps, Text: "The container's specification has a preStop sleep of {sleep}, and the pod was deleted at {since}"},
				{Variant: requests, Text: "A connection of the kubelet to port {port} has been open since {since}, and nothing has come back over it"},
				{Text: "{program} (PID {pid}) was started in the container by its shim at {since}, after the deletion"},
			},
			"end": {
				{Variant: diagnose.Gone, Text: ""},
				{Text: "To continue without the hook, on the node: {terminategroup}. The kubelet then sends {signal}. "},
			},
			"killed": {{Variant: endedBySignal, Text: "Next time SIGKILL may end the program and cost it unsaved data"}, {Text: "SIGKILL " +
				"may cost the program unsaved data"}},
			"ending": {{Variant: diagnose.Gone, Text: ""}, {Variant: sleeps, Text: ""}, {Variant: requests, Text: ""}, {Text: " Ending the " +
				"hook gives up what it waits for."}},
			"asked": {{Variant: diagnose.Gone, Text: " The hook itself may have asked the program to stop earlier."}, {Text: ""}},
			"shorten": {
				{Variant: sleeps, Text: "shorten the sleep or raise terminationGracePeriodSeconds above the sleep plus the time the program needs"},
				{Variant: onlySleeps, Text: "shorten the sleep or raise terminationGracePeriodSeconds above the sleep plus the time the program needs"},
				{Variant: requests, Text: "let port {port} respond in time or raise terminationGracePeriodSeconds"},
				{Text: "let the hook give up in time (timeout(1)) or raise terminationGracePeriodSeconds"},
			},
			"first": {
				{Variant: diagnose.Gone, Text: "nothing now; before the next deletion, {shorten}"},
				{Variant: requests, Text: "nothing now: the pod ends by itself. To end the hook sooner: kubectl logs may show why port {port} does not " +
					"respond; any HTTP response ends it"},
				{Text: "nothing now: the pod ends by itself. Before the next deletion, {shorten}"},
			},
			"ask": {
				{Variant: onlySleeps, Text: ""},
				{Text: "Ask the pod's owner what the hook waits for: it may do so on purpose, as for a quorum. " +
					"If it waits for the program, the program's shutdown takes too long.{asked} "},
			},
			"suffices": {{Variant: onlySleeps, Text: ""}, {Text: ": it must suffice for the hook and the program"}},
			"calm":     {{Variant: diagnose.Gone, Text: ""}, {Text: "Nothing is broken. "}},
			"harm":     {{Variant: diagnose.Gone, Text: ""}, {Text: "a force delete (may lose unsaved data)"}},
		},
		Seen:  []string{"{proof}"},
		First: "{first}",
		Avoid: "{harm}",
		Meaning: "The kubelet runs the preStop hook of a container before it sends the stop signal, and both share the grace period. " +
			"If the hook has not ended by then, the kubelet continues without it and leaves the program two seconds. " +
			"The hook is a program that is executed in the container (exec), or the kubelet itself sleeps (sleep) or sends a request (httpGet).",
		Remedy: "{calm}{ask}" +
			"{end}Before the next deletion, {shorten}{suffices}.",
		Danger: "{killed}.{ending} A shorter grace period or a force delete makes that worse.",
		Families: []diagnose.Family{
			{
				Name: sleeps,
				Meaning: "The hook is a sleep of the kubelet that leaves two seconds of the grace period or less. " +
					"The API server accepts a sleep that is as long as terminationGracePeriodSeconds, and a deletion may request a shorter " +
					"grace period.",
				Remedy: "{calm}Before the next deletion, {shorten}.",
			},
			{
				Name: requests,
				Meaning: "The hook is an HTTP request of the kubelet to a port of the pod. Its only time limits are the grace period, and two " +
					"minutes for a connection that cannot be made. " +
					"Any response ends it, whatever its status is.",
				Remedy: "{calm}Find out why nothing responds on port {port} of the pod. " +
					"If the response waits for the program, the program's shutdown takes too long.{asked} " +
					"Before the next deletion, {shorten}: it must suffice for the hook and the program.",
			},
		},
	},
	By: diagnose.Ways{
		diagnose.By[*evidence.Container]{
			Title: "A program (exec), inside the grace period", From: containers, Of: containersWith(preStopProgram),
			Facts: slices.Concat(insideGrace, seenHook, []diagnose.Fact[*evidence.Container]{
				{Says: "The hook" + hasRunForLong, Is: hookLasts, From: hookSources, Partly: shims},
			}),
			Tell: diagnose.Each(tellProgram),
		},
		diagnose.By[*evidence.Container]{
			Title: "A program (exec), when the pod is gone", From: containers, Of: containersWith(preStopProgram),
			Facts: slices.Concat(outlasted, seenHook, []diagnose.Fact[*evidence.Container]{
				{Says: "SIGKILL ended the container (exit code 137) a second or more after the hook had run for the grace period. " +
					"Or the container ended by itself when the hook had.", Is: diagnose.If(outlivedHook), From: hookSources, Partly: shims},
				{Says: "It ended no more than eleven seconds after that.", Is: diagnose.If(soonAfterHook), From: hookSources, Partly: shims},
				{Says: "The hook was seen within six seconds of the container's end.", Is: diagnose.If(lastReadAtEnd)},
				{Says: "If the container ended by itself, the hook was seen two seconds or less before the deadline.", Is: diagnose.If(killedOrReadAtDeadline)},
				{Says: "On a node that reports pressure, nothing of the hook was ready to run (state R).", Is: diagnose.If(awaitsNoTurn), From: hookSources},
				noneTookAsLong,
			}),
			Tell: diagnose.Each(tellProgram),
		},
		diagnose.By[*evidence.Container]{
			Title: "A sleep, inside the grace period", From: containers, Of: containersWith(preStopSleep),
			Facts: slices.Concat(insideGrace, []diagnose.Fact[*evidence.Container]{
				delivered,
				{Says: "The sleep in the specification is not over.", Is: diagnose.If(sleepGoesOn)},
				{Says: "It" + hasRunForLong + " It began with the deletion request.", Is: sleepLasts},
				{Says: "It is inferred: a kubelet before 1.30 may not know such hooks."},
			}),
			Tell: diagnose.Each(tellSleep),
		},
		diagnose.By[*evidence.Container]{
			Title: "A sleep, when the pod is gone", From: containers, Of: containersWith(preStopSleep),
			Facts: slices.Concat(outlasted, []diagnose.Fact[*evidence.Container]{
				signalKnown, delivered,
				{Says: "The sleep in the specification leaves two seconds of the grace period, or less.", Is: diagnose.If(leavesLittle)},
				{Says: "If the sleep is shorter than the grace period, SIGKILL ended the container (exit code 137).", Is: diagnose.If(killedOrNoneLeft)},
				{Says: "SIGKILL ended it two seconds or more after the grace period, counted from the deletion request. " +
					"It is one second where the sleep is shorter than that. Or the container ended by itself at that time.", Is: diagnose.If(outlivedSleep)},
				soonAfterGrace,
				{Says: "It is inferred: a kubelet before 1.30 may not know such hooks."},
			}),
			Tell: diagnose.Each(tellSleep),
		},
		diagnose.By[*evidence.Container]{
			Title: "A request (httpGet), inside the grace period", From: containers, Of: containersWith(preStopPort),
			Facts: slices.Concat(insideGrace, unanswered, []diagnose.Fact[*evidence.Container]{
				{Says: "The hook" + hasRunForLong, Is: requestLasts, Partly: requestSources},
			}),
			Tell: diagnose.Each(tellRequest),
		},
		diagnose.By[*evidence.Container]{
			Title: "A request (httpGet), when the pod is gone", From: containers, Of: containersWith(preStopPort),
			Facts: slices.Concat(outlasted, unanswered, []diagnose.Fact[*evidence.Container]{
				{Says: "It had been there for five seconds or more.", Is: diagnose.If(slowerThanProbes), Partly: requestSources},
				{Says: "It was also there two seconds or less before the deadline.", Pod: diagnose.IfPod(untilEnd)},
				{Says: "It was there within six seconds of the container's end.", Is: diagnose.If(lastReadAtEnd)},
				{Says: "SIGKILL ended the container (exit code 137) two seconds or more after the grace period, counted from the deletion request. " +
					"Or the container ended by itself at that time.", Is: diagnose.If(outlivedRequest)},
				soonAfterGrace, noneTookAsLong,
			}),
			Tell: diagnose.Each(tellRequest),
		},
	},
}

const hasRunForLong = " has run for a tenth of the grace period, but for five minutes at least and fifteen at most."

var (
	containers     = []evidence.Source{evidence.Containers}
	hookSources    = []evidence.Source{evidence.Processes, evidence.Suspects}
	requestSources = []evidence.Source{evidence.Requests}
	shims          = []evidence.Source{evidence.Shims}
)

// insideGrace are the facts about a hook of any kind that runs inside the grace period.
var insideGrace = []diagnose.Fact[*evidence.Container]{
	{Says: "The pod is not gone.", Pod: diagnose.IfPod(there)},
	{Says: "The container runs.", Is: diagnose.If(runs)},
	{Says: "No other app container without a preStop hook runs: the hook may wait for that.", Is: diagnose.If(othersRest)},
	{Says: "It is known when SIGKILL comes: nodeagent has seen the first deletion, or the grace period is that of the specification.",
		Pod: diagnose.IfPod(deadlineSure)},
}

// outlasted are those when the pod is gone.
var outlasted = []diagnose.Fact[*evidence.Container]{
	{Says: "The pod is gone.", Pod: diagnose.IfPod(gone)},
	{Says: "The container was seen in the second half of the grace period, or in its last twenty seconds. " +
		"It ended at the deadline or up to a minute later, and not for lack of memory.", Is: diagnose.If(endedAtDeadline)},
}

// seenHook are those about the process of a hook.
var seenHook = []diagnose.Fact[*evidence.Container]{
	{
		Says: "After the deletion request, a process was started in the container, by its shim and not by another process of the " +
			"container. It has the name in the specification, or any name if that is a shell.",
		Is: diagnose.If(hookSeen), From: hookSources, Partly: shims,
	},
	{Says: "It was the only such process, and had no terminal, unlike one of kubectl exec -t."},
	{Says: "It only sleeps if the specification has nothing but sleep(1), or if the process is sleep. " +
		"Or if it is a shell whose only subprocess is a sleep that has run for half of its time."},
	{Says: "It is inferred for a shell, which may have executed another program in its place."},
}

// unanswered are those about the kubelet's request to a port of the pod that is a hook and has had no response. Of two simultaneous requests one may
// have taken the other's connection, and its own stays open unused.
var unanswered = []diagnose.Fact[*evidence.Container]{
	signalKnown, delivered,
	{
		Says: "The kubelet has a connection to the port in the specification over which nothing has come back. " +
			"A begun response or a TLS handshake is a response.",
		Is: diagnose.If(requestSeen), Partly: requestSources,
	},
	{Says: "It has as many of them as containers of the pod have such a hook for the same port, also containers that have ended.",
		Is: diagnose.If(oneForEachHook), Partly: requestSources},
	{Says: "The connection was there in the first half of the grace period.", Is: diagnose.If(inFirstHalf), Partly: requestSources},
	{Says: "It is inferred: another pod's hook or probe may name this pod's address."},
	{Says: "Such hooks are looked for if the pod has a network of its own. No probe of it may have a timeout of five seconds or more. " +
		"A container with an httpGet preStop hook must not have been restarted."},
}

// Facts that several kinds of hooks have.
var (
	signalKnown    = diagnose.Fact[*evidence.Container]{Says: "The container's stop signal is known.", Is: diagnose.If(hasSignal)}
	noneTookAsLong = diagnose.Fact[*evidence.Container]{
		Says: "No other app container without a preStop hook took as long: the hook may wait for it.", Is: diagnose.If(othersEnded),
	}
	delivered = diagnose.Fact[*evidence.Container]{
		Says: "Nothing is seen that keeps the kubelet from stopping the pod.",
		Pod:  diagnose.IfPod(likely), From: []evidence.Source{evidence.Processes}, Partly: []evidence.Source{evidence.Kubelet},
	}
	soonAfterGrace = diagnose.Fact[*evidence.Container]{
		Says: "The container ended no more than eleven seconds after the grace period.", Is: diagnose.If(soonAfterDeletion),
	}
)

// containersWith lists the containers of a pod that have a hook of a kind.
func containersWith(hook func(*evidence.Container) bool) func(*fact.View) []*evidence.Container {
	return func(p *fact.View) (out []*evidence.Container) {
		for i := range p.Containers {
			if c := &p.Containers[i]; hook(c) {
				out = append(out, c)
			}
		}
		return out
	}
}

func preStopProgram(c *evidence.Container) bool { return c.PreStopProgram != "" }

func preStopSleep(c *evidence.Container) bool { return c.PreStopSleep > 0 }

func preStopPort(c *evidence.Container) bool { return c.PreStopPort != 0 }

func there(p *fact.View) bool { return !p.Gone }

func gone(p *fact.View) bool { return p.Gone }

// deadlineSure reports whether SIGKILL may not come sooner.
func deadlineSure(p *fact.View) bool { return !p.DeadlineUnsure }

func likely(p *fact.View) bool { return p.Delivery.Likely }

func runs(_ *fact.View, c *evidence.Container) bool { return c.State == evidence.StateRunning }

func hasSignal(_ *fact.View, c *evidence.Container) bool { return c.StopSignal != 0 }

func endedAtDeadline(p *fact.View, c *evidence.Container) bool { return fact.EndedAtDeadline(p, c) }

func hookSeen(p *fact.View, c *evidence.Container) bool { return p.Hook(c).Process != nil }

func hookLasts(p *fact.View, c *evidence.Container) diagnose.Holding {
	return diagnose.Lasted(p, p.Hook(c).Process.Started(), long(p), diagnose.Slow)
}

func sleepGoesOn(p *fact.View, c *evidence.Container) bool { return p.Hook(c).State == fact.HookSleeps }

func sleepLasts(p *fact.View, _ *evidence.Container) diagnose.Holding {
	return diagnose.Lasted(p, p.DeletionRequested, long(p), diagnose.Slow)
}

func requestLasts(p *fact.View, c *evidence.Container) diagnose.Holding {
	if r := preStopRequest(p, c); r != nil {
		return diagnose.Lasted(p, r.Since, max(long(p), fact.ProbeTimeout), diagnose.Slow)
	}
	return diagnose.Is(false)
}

func tellProgram(p *fact.View, c *evidence.Container) diagnose.Finding {
	f, hook := tellHook(p, c), p.Hook(c)
	f.Objects.Process, f.Objects.Since = diagnose.ProcessOf(p, hook.Process), hook.Process.Started()
	if hook.ByName {
		f.Confidence = diagnose.Proved
	}
	if fact.OnlySleeps(p, c, hook.Process) {
		f.Variants = append(f.Variants, onlySleeps)
	}
	return f
}

func tellSleep(p *fact.View, c *evidence.Container) diagnose.Finding {
	f := tellHook(p, c)
	f.Family, f.Objects.Since, f.Objects.SleepSeconds = sleeps, p.DeletionRequested, c.PreStopSleep
	return f
}

func tellRequest(p *fact.View, c *evidence.Container) diagnose.Finding {
	f, r := tellHook(p, c), preStopRequest(p, c)
	f.Family, f.Objects.Since, f.Objects.Port = requests, r.Since, r.Port
	return f
}

// tellHook returns what is told of a hook of any kind.
func tellHook(p *fact.View, c *evidence.Container) diagnose.Finding {
	f := diagnose.Finding{Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
		Signal: c.StopSignal.String(), GraceSeconds: int64(fact.Grace(p).Seconds()), Deadline: p.Kill.At, Latest: p.Kill.Latest,
		Requested: p.DeletionRequested,
	}}
	if p.Gone {
		f.Objects.Ended, f.Variants = c.Exit.At, []string{diagnose.Gone}
		if !fact.KilledAtDeadline(p, c) {
			f.Variants = append(f.Variants, endedBySignal)
		}
	}
	return f
}

// sleeps and requests are the families of hooks that the kubelet runs itself. onlySleeps is the variant of a program that does
// nothing else, and endedBySignal of a program that exited by its stop signal, which it got only after the hook.
const (
	sleeps        = "Sleep"
	requests      = "HTTP"
	onlySleeps    = "OnlySleeps"
	endedBySignal = "EndedBySignal"
)

// A hook is long when it has run for a part of the grace period, in these limits.
const (
	longPart  = 10
	leastLong = 5 * time.Minute
	mostLong  = 15 * time.Minute
)

// long returns for how long a hook has to run to be reported inside the grace period.
func long(p *fact.View) time.Duration {
	if p.LongHook > 0 {
		return p.LongHook
	}
	return min(max(fact.Grace(p)/longPart, leastLong), mostLong)
}

// outlivedHook reports whether a container has outlived the grace period from when its hook began. The kubelet counts from its request to start the
// hook, and the start takes a while. A hook that was seen running until the end has used up the grace period all the same. With hostPID the process
// may be what the hook has left.
func outlivedHook(p *fact.View, c *evidence.Container) bool {
	hook := p.Hook(c).Process
	if untilEnd(p) && !p.HostPID {
		return hook != nil && outlived(p, c, hook.Probe.Started, -time.Second)
	}
	return hook != nil && outlived(p, c, hook.Probe.Started, leastStop)
}

func soonAfterHook(p *fact.View, c *evidence.Container) bool {
	hook := p.Hook(c).Process
	return hook != nil && soonAfter(p, c, hook.Probe.Started)
}

func soonAfterDeletion(p *fact.View, c *evidence.Container) bool {
	return soonAfter(p, c, p.DeletionRequested)
}

func soonAfter(p *fact.View, c *evidence.Container, began time.Time) bool {
	return c.Exit != nil && beyond(p, c, began) <= leastStop+fact.KillLatency
}

func lastReadAtEnd(p *fact.View, c *evidence.Container) bool {
	return c.Exit != nil && c.Exit.At.Sub(p.Time) <= seenAtEnd
}

func killedOrReadAtDeadline(p *fact.View, c *evidence.Container) bool {
	return fact.KilledAtDeadline(p, c) || untilEnd(p)
}

// awaitsNoTurn reports whether no hook, nor what it has started, is ready to run on a node that says that it is short of processors, memory or I/O: a
// sleep that is over may wait for its turn to exit.
func awaitsNoTurn(p *fact.View, c *evidence.Container) bool {
	hook := p.Hook(c).Process
	if hook == nil || !p.Starved() {
		return true
	}
	return !slices.ContainsFunc(append(fact.Below(p, hook), hook), func(t *evidence.Task) bool { return t.State == evidence.Runnable })
}

// leavesLittle reports whether a sleep of the kubelet leaves its program no more than the minimum. The kubelet does nothing else during the sleep,
// and ends it with the grace period. A kubelet before 1.30 may not know such hooks.
func leavesLittle(p *fact.View, c *evidence.Container) bool {
	return int64((fact.Grace(p)-fact.MinimumGrace)/time.Second) <= c.PreStopSleep
}

func killedOrNoneLeft(p *fact.View, c *evidence.Container) bool {
	return leftBySleep(p, c) <= 0 || fact.KilledAtDeadline(p, c)
}

// outlivedSleep counts from the deletion on. A sleep that leaves the program some of its two seconds makes it end that much earlier.
func outlivedSleep(p *fact.View, c *evidence.Container) bool {
	return outlived(p, c, p.DeletionRequested, leastBeyond-min(max(leftBySleep(p, c), 0), leastStop))
}

// leftBySleep returns what a sleep leaves of the grace period.
func leftBySleep(p *fact.View, c *evidence.Container) time.Duration {
	return fact.Grace(p) - time.Duration(c.PreStopSleep)*time.Second
}

func outlivedRequest(p *fact.View, c *evidence.Container) bool {
	return outlived(p, c, p.DeletionRequested, leastBeyond)
}

// outlived reports whether a container has outlived the grace period that began at a time, by at least the given time. A container that ended by its
// stop signal may have done so immediately. The time of the end is in whole seconds, rounded down.
func outlived(p *fact.View, c *evidence.Container, began time.Time, least time.Duration) bool {
	if !fact.KilledAtDeadline(p, c) {
		least = -time.Second
	}
	return c.Exit != nil && beyond(p, c, began) >= least
}

// beyond returns for how long a container has outlived the grace period that began at a time.
func beyond(p *fact.View, c *evidence.Container, began time.Time) time.Duration {
	return c.Exit.At.Sub(began) - fact.Grace(p)
}

// othersEnded reports whether no container without a hook was there until the deadline too. The hook may wait for that container, as those of proxies
// do.
func othersEnded(p *fact.View, c *evidence.Container) bool {
	return !slices.ContainsFunc(othersWithoutHook(p, c), func(o *evidence.Container) bool { return fact.EndedAtDeadline(p, o) })
}

// othersRest is the same inside the grace period.
func othersRest(p *fact.View, c *evidence.Container) bool {
	return !slices.ContainsFunc(othersWithoutHook(p, c), func(o *evidence.Container) bool { return o.State == evidence.StateRunning })
}

func othersWithoutHook(p *fact.View, c *evidence.Container) []*evidence.Container {
	return containersWith(func(o *evidence.Container) bool { return o != c && o.Kind == evidence.App && !o.PreStop })(p)
}

// untilEnd reports whether a reading was made just before the kubelet continues without the preStop hook.
func untilEnd(p *fact.View) bool { return p.Deadline.Sub(p.Time) <= fact.MinimumGrace }

func requestSeen(p *fact.View, c *evidence.Container) bool { return preStopRequest(p, c) != nil }

func oneForEachHook(p *fact.View, c *evidence.Container) bool {
	asked := 0
	for i := range p.Requests {
		if p.Requests[i].Port == c.PreStopPort {
			asked++
		}
	}
	return asked >= len(containersWith(func(o *evidence.Container) bool { return o.PreStopPort == c.PreStopPort })(p))
}

func inFirstHalf(p *fact.View, c *evidence.Container) bool {
	r := preStopRequest(p, c)
	return r != nil && r.Since.Sub(p.DeletionRequested) <= fact.Grace(p)/2
}

func slowerThanProbes(p *fact.View, c *evidence.Container) bool {
	r := preStopRequest(p, c)
	return r != nil && p.Time.Sub(r.Since) >= fact.ProbeTimeout
}

// preStopRequest returns the kubelet's last request to the port of a container's preStop hook that has had no response; nil for none.
func preStopRequest(p *fact.View, c *evidence.Container) (last *evidence.Request) {
	for i := range p.Requests {
		if r := &p.Requests[i]; r.Port == c.PreStopPort && (last == nil || r.Since.After(last.Since)) {
			last = r
		}
	}
	return last
}
