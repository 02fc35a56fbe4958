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
	Cause:  "PreStopHookRunning",
	When:   diagnose.InGrace,
	Needs:  fact.SignalSources,
	Partly: []evidence.Source{evidence.Requests},
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
		Evidence: []string{
			"Inside the grace period: the hook has run for a tenth of it, but for five minutes at least and fifteen at most.",
			"When the pod is gone: SIGKILL ended the container (exit code 137) a second or more after the hook had run for the grace " +
				"period. Or the container ended by itself when the hook had.",
			"For sleep and httpGet it is two seconds or more, counted from the deletion. It is one second where the sleep is shorter " +
				"than the grace period.",
			"exec: after the deletion request, a process was started in the container, by its shim and not by another process of the " +
				"container. It has the name in the specification, or any name if that is a shell.",
			"exec: it only sleeps if the specification has nothing but sleep(1), or if the process is sleep. " +
				"Or if it is a shell whose only subprocess is a sleep that has run for half of its time.",
			"exec: it was the only such process, and had no terminal, unlike one of kubectl exec -t.",
			"exec, when the pod is gone: it was seen within six seconds of the container's end. On a node that reports pressure, " +
				"nothing of it was ready to run (state R).",
			"sleep: the sleep in the specification leaves two seconds of the grace period, or less.",
			"httpGet: in the first half of the grace period, the kubelet had a connection to the port in the specification without any " +
				"response. When the pod is gone: also two seconds or less before the deadline, and within six seconds of the " +
				"container's " +
				"end.",
			"It is inferred for a shell that may have executed another program in its place, for sleep (a kubelet before 1.30 may not " +
				"know it), and for httpGet (another pod's hook or probe may name this pod's address).",
			"httpGet is not reported for pods in the network of the node, or once a response or a TLS handshake has begun. Nor if a " +
				"probe of the pod has a timeout of five seconds or more, or a container with an httpGet preStop hook was restarted.",
			"When the pod is gone, exec and httpGet are not reported if an app container without a hook took as long: a hook may wait " +
				"for it.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for i := range p.Containers {
			c := &p.Containers[i]
			f := diagnose.Finding{Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
				Signal: c.StopSignal.String(), GraceSeconds: int64(fact.Grace(p).Seconds()), Deadline: p.Kill.At, Latest: p.Kill.Latest,
				Requested: p.DeletionRequested,
			}}
			found := false
			switch {
			case !p.Gone:
				found = c.State == evidence.StateRunning && !othersRun(p, c) && runsForLong(p, c, &f)
			case fact.EndedAtDeadline(p, c) && fact.Grace(p) >= fact.LeastStill:
				f.Objects.Ended, f.Variants = c.Exit.At, []string{diagnose.Gone}
				if !fact.KilledAtDeadline(p, c) {
					f.Variants = append(f.Variants, endedBySignal)
				}
				found = executed(p, c, &f) || slept(p, c, &f) || requested(p, c, &f)
			}
			if found {
				out = append(out, f)
			}
		}
		return diagnose.Found(out...)
	},
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

// runsForLong reports whether a hook of any kind has run for long, and completes the finding.
func runsForLong(p *fact.View, c *evidence.Container, f *diagnose.Finding) bool {
	if p.DeadlineUnsure {
		return false // SIGKILL may come sooner
	}
	if hook, byName := fact.PreStopHook(p, c); hook != nil {
		aboutExec(p, c, hook, byName, f)
	} else if _, over := fact.HookOver(p, c); c.PreStopSleep > 0 && !over && p.Delivery.Likely {
		aboutSleep(p, c, f)
	} else if r := preStopRequest(p, c); r != nil {
		aboutRequest(r, f)
	} else {
		return false
	}
	return p.Time.Sub(f.Objects.Since) >= long(p)
}

func aboutExec(p *fact.View, c *evidence.Container, hook *evidence.Task, byName bool, f *diagnose.Finding) {
	f.Objects.Process, f.Objects.Since = diagnose.ProcessOf(p, hook), hook.Probe.Started
	if byName {
		f.Confidence = diagnose.Proved
	}
	if fact.OnlySleeps(p, c, hook) {
		f.Variants = append(f.Variants, onlySleeps)
	}
}

func aboutSleep(p *fact.View, c *evidence.Container, f *diagnose.Finding) {
	f.Family, f.Objects.Since, f.Objects.SleepSeconds = sleeps, p.DeletionRequested, c.PreStopSleep
}

func aboutRequest(r *evidence.Request, f *diagnose.Finding) {
	f.Family, f.Objects.Since, f.Objects.Port = requests, r.Since, r.Port
}

// executed reports whether a hook that executes a program has used up the grace period, and completes the finding.
func executed(p *fact.View, c *evidence.Container, f *diagnose.Finding) bool {
	hook, byName := fact.PreStopHook(p, c)
	// The kubelet counts from its request to start the hook, and the start takes a while. A hook that was seen running until the end has used up the
	// grace period all the same. With hostPID the process may be what the hook has left.
	least := leastStop
	if untilEnd(p) && !p.HostPID {
		least = -time.Second
	}
	if hook == nil || !outlived(p, c, hook.Probe.Started, least) || c.Exit.At.Sub(p.Time) > seenAtEnd || othersTook(p, c) ||
		!fact.KilledAtDeadline(p, c) && !untilEnd(p) || awaitsTurn(p, hook) {
		return false
	}
	aboutExec(p, c, hook, byName, f)
	return true
}

// awaitsTurn reports whether a hook, or what it has started, is ready to run on a node that says that it is short of processors, memory or I/O: a sleep
// that is over may wait for its turn to exit.
func awaitsTurn(p *fact.View, hook *evidence.Task) bool {
	return p.Node.Pressure != nil && p.Pressed && slices.ContainsFunc(append(fact.Below(p, hook), hook), func(t *evidence.Task) bool {
		return t.State == evidence.Runnable
	})
}

// slept is the same for a hook that sleeps.
func slept(p *fact.View, c *evidence.Container, f *diagnose.Finding) bool {
	// A sleep that leaves the program some of its two seconds makes it end that much earlier.
	left := fact.Grace(p) - time.Duration(c.PreStopSleep)*time.Second
	if !preStopSleeps(p, c) || left > 0 && !fact.KilledAtDeadline(p, c) || !outlived(p, c, p.DeletionRequested, leastBeyond-min(max(left, 0), leastStop)) {
		return false
	}
	aboutSleep(p, c, f)
	return true
}

// requested is the same for a hook that sends an HTTP request to a port of the pod.
func requested(p *fact.View, c *evidence.Container, f *diagnose.Finding) bool {
	r := preStopRequest(p, c)
	if r == nil || !untilEnd(p) || !outlived(p, c, p.DeletionRequested, leastBeyond) || c.Exit.At.Sub(p.Time) > seenAtEnd || othersTook(p, c) {
		return false
	}
	aboutRequest(r, f)
	return true
}

// outlived reports whether a container has outlived the grace period that began at a time, by at least the given time. A container that ended by its
// stop signal may have done so immediately. The time of the end is in whole seconds, rounded down.
func outlived(p *fact.View, c *evidence.Container, began time.Time, least time.Duration) bool {
	if !fact.KilledAtDeadline(p, c) {
		least = -time.Second
	}
	beyond := c.Exit.At.Sub(began) - fact.Grace(p)
	return beyond >= least && beyond <= leastStop+fact.KillLatency
}

// othersTook reports whether a container without a hook was there until the deadline too. The hook may wait for that container, as those of proxies
// do.
func othersTook(p *fact.View, c *evidence.Container) bool {
	for i := range p.Containers {
		if o := &p.Containers[i]; o != c && o.Kind == evidence.App && !o.PreStop && fact.EndedAtDeadline(p, o) {
			return true
		}
	}
	return false
}

// othersRun is the same inside the grace period.
func othersRun(p *fact.View, c *evidence.Container) bool {
	for i := range p.Containers {
		if o := &p.Containers[i]; o != c && o.Kind == evidence.App && !o.PreStop && o.State == evidence.StateRunning {
			return true
		}
	}
	return false
}

// untilEnd reports whether a reading was made just before the kubelet continues without the preStop hook.
func untilEnd(p *fact.View) bool { return p.Deadline.Sub(p.Time) <= fact.MinimumGrace }

// preStopSleeps reports whether the preStop hook of a container is a sleep of the kubelet that leaves its program no more than the minimum. The
// kubelet does nothing else during the sleep, and ends it with the grace period. A kubelet before 1.30 may not know such hooks.
func preStopSleeps(p *fact.View, c *evidence.Container) bool {
	return c.PreStopSleep > 0 && c.StopSignal != 0 && p.Delivery.Likely && int64((fact.Grace(p)-fact.MinimumGrace)/time.Second) <= c.PreStopSleep
}

// preStopRequest returns the kubelet's request to a port of the pod that is the preStop hook of a container and has had no response; nil when none is
// known. It was there in the first half of the grace period. If several hooks request the same port, as many requests must be there, also of
// containers that have ended: of two simultaneous requests one may have taken the other's connection, and its own stays open unused.
func preStopRequest(p *fact.View, c *evidence.Container) *evidence.Request {
	if c.PreStopPort == 0 || c.StopSignal == 0 || !p.Delivery.Likely {
		return nil
	}
	var last *evidence.Request
	asked := 0
	for i := range p.Requests {
		r := &p.Requests[i]
		if r.Port != c.PreStopPort {
			continue
		}
		asked++
		if last == nil || r.Since.After(last.Since) {
			last = r
		}
	}
	for i := range p.Containers {
		if o := &p.Containers[i]; o.PreStopPort == c.PreStopPort {
			asked--
		}
	}
	if last == nil || asked < 0 || p.Time.Sub(last.Since) < fact.ProbeTimeout || last.Since.Sub(p.DeletionRequested) > fact.Grace(p)/2 {
		return nil
	}
	return last
}
