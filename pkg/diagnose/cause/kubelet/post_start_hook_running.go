package kubelet

import (
	"fmt"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// PostStartHookRunning is a postStart hook that does not end. The kubelet runs it within the start of the container (startContainer,
// pkg/kubelet/kuberuntime/kuberuntime_container.go). Its worker for the pod turns to the deletion only when the start is complete: SyncPod takes a
// context that the deletion does not cancel (pkg/kubelet/kubelet.go). A hook that sleeps or sends an HTTP request has no process on the node: the
// kubelet does it itself (pkg/kubelet/lifecycle/handlers.go).
var PostStartHookRunning = &diagnose.Rule{
	Cause:  "PostStartHookRunning",
	Phases: []diagnose.Phase{diagnose.Startup, diagnose.PreStop, diagnose.StopSignal},
	Shows:  diagnose.Startup,
	Doc: diagnose.Doc{
		Layer:   "kubelet",
		Title:   "a postStart hook does not end",
		Who:     diagnose.ByApp,
		Message: "container {container}: its postStart hook {what}. The kubelet stops the pod only after the hook",
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: sleeps, Text: "sleeps until {until} (sleep of {sleep})"},
				{Variant: requests, Text: "(HTTP request to port {port} of the pod) has had no response since {since}"},
				{Variant: left, Text: "has exited, but {program} (PID {pid} on the node), started by it, holds its output open"},
				{Text: "{program} (PID {pid} on the node) has been running since {since}"},
			},
			"proof": {
				{Variant: sleeps, Text: "The container's specification has a postStart sleep of {sleep}, counted from its first process"},
				{Variant: requests, Text: "A connection of the kubelet to port {port} has been open since {since}, and nothing has come back over it"},
				{Variant: left, Text: "{program} (PID {pid}) has run in the container since {since}, as an orphan in a process group without a leader"},
				{Text: "{program} (PID {pid}) was started by the container's shim at {since}, right after the container's first process"},
			},
			"first": {
				{Variant: left, Text: "if {program} is no longer needed, ask the node admin to end it (SIGTERM command under Fix). If unsure: wait"},
				{Text: "see in the hook's command what it waits for, and provide that. If you cannot: ask the node admin to end the hook " +
					"(SIGTERM command under Fix)"},
			},
			"end": {{Variant: left, Text: "{terminate}"}, {Text: "{terminategroup}"}},
		},
		Seen: []string{
			"{proof}",
			"The kubelet has not reported container {container} as running, and no container of the pod has been sent its stop signal",
		},
		First: "{first}",
		Avoid: "killing the main program (not asked to stop yet)",
		Meaning: "The kubelet runs the postStart hook of a container right after its start, and waits for the hook's end. " +
			"Until then it does nothing else for the pod. " +
			"containerd reports the end of a hook only when everything that holds its output has ended, too. " +
			"The hook is a program that is executed in the container (exec), or the kubelet itself sleeps (sleep) or sends a request (httpGet). " +
			"The grace period begins when the hook has ended.",
		Remedy: "Ask the pod's owner what the hook waits for. To continue without it, on the node: {end}. The kubelet then stops the " +
			"pod; the grace period begins then. " +
			"For the future: give the hook a time limit of its own, timeout 30 PROGRAM || true, since the kubelet kills the container of a hook that fails.",
		Danger: "Do not force-delete the pod: the kubelet still waits for the hook, and the containers keep running with their volumes. " +
			"What the hook sets up, or registers elsewhere, may be left half done.",
		Families: []diagnose.Family{
			{
				Name: sleeps,
				Who:  diagnose.ByApp, Ends: true,
				Meaning: "The hook is a sleep of the kubelet, which may be as long as terminationGracePeriodSeconds. " +
					"It outlasts the grace period of a deletion that requests a shorter one.",
				First: "nothing now: the kubelet stops the pod when the sleep ends. Before the next deletion, shorten the hook's sleep",
				Remedy: "Wait: the sleep ends by itself at {until}, and the kubelet then stops the pod. The grace period begins then. " +
					"For the future: shorten the hook's sleep if that is too late.",
			},
			{
				Name: requests,
				Meaning: "The hook is an HTTP request of the kubelet to a port of the pod, without a time limit. Any response ends it, whatever " +
					"its status is.",
				First: "use kubectl exec to see why port {port} does not respond (kubectl logs fails until the hook ends). Any HTTP response ends the hook",
				Remedy: "Find out why nothing responds on port {port} of the pod. Any response ends the hook, whatever its status. " +
					"So does the exit of the program that accepted the connection. The kubelet then stops the pod. " +
					"For the future: let it respond in time, or use an exec hook with a time limit.",
			},
		},
	},
	By: diagnose.Ways{
		diagnose.By[*evidence.Container]{
			Title: "A program (exec) runs", From: containers, Of: containersWith(postStartProgram),
			Facts: slices.Concat(beingStarted, []diagnose.Fact[*evidence.Container]{
				{
					Says: "The shim names that process, or the containers of the pod share no PID namespace.",
					Is:   diagnose.If(firstCertain), From: hookSources, Partly: shims,
				},
				{Says: "It is known when each process was started that the shim has executed in the container.", Is: diagnose.If(agesKnown), From: hookSources},
				{
					Says: "One of these was started within " + fact.HookBegins.String() + " after the first process. " +
						"It leads a process group, and has no terminal, unlike one of kubectl exec -t.",
					Is: diagnose.If(hookFound), From: hookSources, Partly: shims,
				},
				{Says: "It is the only such process.", Is: diagnose.If(onlyOneFound), From: hookSources, Partly: shims},
				{Says: "It was started before the deletion request.", Is: diagnose.If(begunBefore), From: hookSources, Partly: shims},
				{Says: "It has the hook's name, or any name if the hook is a shell.", Is: diagnose.If(namedAsHook), From: hookSources, Partly: shims},
				{Says: "With hostPID, the hook is no shell.", Is: diagnose.If(noShellOfHost)},
				{Says: "With hostPID, all other containers run.", Is: diagnose.If(lastOfHost)},
				{Says: "The kubelet runs, and has not been restarted since.", Is: diagnose.If(kubeletSinceHook), From: hookSources, Partly: shims},
				{Says: containerdStays, Is: containerdSinceHook, From: hookSources, Partly: shims},
				{Says: "The kubelet has started no other container since.", Is: diagnose.If(noneStartedSinceHook), From: hookSources, Partly: shims},
				{Says: "It is proved if all other containers run, and the start of the kubelet and of containerd is known. " +
					"Otherwise the kubelet may be at the start of another container, and it is inferred. With hostPID it is inferred, too."},
			}),
			Tell: diagnose.Each(tellPostStart),
		},
		diagnose.By[leftByHook]{
			Title: "A program (exec) has ended, and what it has started holds its output open",
			From:  slices.Concat(containers, hookSources), Partly: shims, Of: childrenOfFirst,
			Facts: []diagnose.Fact[leftByHook]{
				{Says: startsWithHook, Is: diagnose.If(leftStarts)},
				{Says: "Each container of the pod has a PID namespace of its own.", Pod: diagnose.IfPod(ownNamespaces)},
				{Says: "All other containers run.", Is: diagnose.If(leftIsLast)},
				{Says: "It is known since when the kubelet and containerd run.", Pod: diagnose.IfPod(startsKnown)},
				{Says: "No process of the container may be the hook: none but the first was started by its shim.", Is: diagnose.If(hookEnded)},
				{Says: "The process is an orphan in a process group without a leader.", Is: diagnose.If(leftOrphaned)},
				{Says: "It was started before the deletion request.", Is: diagnose.If(leftBefore)},
				{Says: "The kubelet runs, and has not been restarted since.", Is: diagnose.If(kubeletSinceLeft)},
				{Says: containerdStays, Is: containerdSinceLeft},
				{Says: "The kubelet has started no other container since.", Is: diagnose.If(noneStartedSinceLeft)},
				{Says: "It is inferred: the program itself may have left such a process. Of several, the oldest counts."},
			},
			Tell: tellOldestLeft,
		},
		diagnose.By[*evidence.Container]{
			Title: "A sleep", From: containers, Of: containersWith(postStartSleep),
			Facts: slices.Concat(beingStarted, sinceFirst, []diagnose.Fact[*evidence.Container]{
				{Says: containerdStays, Is: containerdSinceSleep, From: hookSources, Partly: shims},
				{
					Says: "The container's first process was started less long ago than the hook sleeps.",
					Is:   diagnose.If(sleepsOn), From: hookSources, Partly: shims,
				},
				{Says: "It is inferred, because a kubelet before 1.30 may not know such hooks."},
			}),
			Tell: diagnose.Each(tellPostStartSleep),
		},
		diagnose.By[*evidence.Container]{
			Title: "A request (httpGet)", From: containers, Of: containersWith(postStartPort),
			Facts: slices.Concat(beingStarted, sinceFirst, []diagnose.Fact[*evidence.Container]{
				{Says: containerdStays, Is: containerdSinceFirst, From: hookSources, Partly: shims},
				{
					Says: "The kubelet has a connection to the port in the specification, over which nothing at all has come back. " +
						"A begun response or a TLS handshake counts as an answer.",
					Is: diagnose.If(postStartAsked), Partly: requestSources,
				},
				{Says: "It has only one.", Is: diagnose.If(postStartAskedOnce), Partly: requestSources},
				{Says: "It is established. The kernel gives up one that is being made after two minutes.", Is: diagnose.If(established), Partly: requestSources},
				{Says: "It has been so for five seconds or more.", Is: requestLastsBeyondProbes, Partly: requestSources},
				{Says: "It is inferred, because a hook or a probe of another pod may name this pod's address."},
				{Says: "Such hooks are looked for if the pod has a network of its own. No probe of it may have a timeout of five seconds or more. " +
					"A container with an httpGet preStop hook must not have been restarted."},
			}),
			Tell: diagnose.Each(tellPostStartRequest),
		},
	},
}

const (
	startsWithHook  = "containerd runs a container with a postStart hook, and the kubelet has not written into the pod's status that it runs."
	containerdStays = "containerd has not been restarted since, or for so long that the kubelet would have stopped the pod by now " +
		"(the grace period and a minute)."
)

// beingStarted are the facts about a container whose start the kubelet has not completed.
var beingStarted = []diagnose.Fact[*evidence.Container]{
	{Says: startsWithHook, Is: diagnose.If(fact.Starts)},
	{Says: "The container's first process is known, and when it was started.", Is: diagnose.If(firstKnown), From: hookSources, Partly: shims},
}

// sinceFirst are those about a hook that is the kubelet's own doing, since the container's first process was started.
var sinceFirst = []diagnose.Fact[*evidence.Container]{
	{Says: "The kubelet's process is not stopped.", Pod: diagnose.IfPod(kubeletGoesOn)},
	{Says: "The kubelet runs, and has not been restarted since.", Is: diagnose.If(kubeletSinceFirst), From: hookSources, Partly: shims},
	{Says: "The kubelet has started no other container since.", Is: diagnose.If(noneStartedSinceFirst), From: hookSources, Partly: shims},
}

func postStartProgram(c *evidence.Container) bool { return c.PostStartProgram != "" }

func postStartSleep(c *evidence.Container) bool { return c.PostStartSleep > 0 }

func postStartPort(c *evidence.Container) bool { return c.PostStartPort != 0 }

func firstKnown(p *fact.View, c *evidence.Container) bool {
	return c.ID != "" && !firstStarted(p, c).IsZero()
}

// firstStarted returns when a container's first process was started, zero where that is not known.
func firstStarted(p *fact.View, c *evidence.Container) time.Time {
	return fact.FirstLeader(p, c).Started()
}

func firstCertain(p *fact.View, c *evidence.Container) bool {
	return c.Task.PID != 0 || !p.HostPID && !p.ShareProcessNamespace
}

// executedIn returns the processes that the shim has executed in a container.
func executedIn(p *fact.View, c *evidence.Container) []*evidence.Task {
	if first := fact.FirstLeader(p, c); first != nil {
		return fact.Executed(p, c, first.PID)
	}
	return nil
}

func agesKnown(p *fact.View, c *evidence.Container) bool {
	return !slices.ContainsFunc(executedIn(p, c), func(t *evidence.Task) bool { return t.Started().IsZero() })
}

// mayBeHooks returns those of them that were started soon after the container's first process. What people execute there comes later. What runc
// executes leads a session, and so a group, of its own (setsid, libcontainer/nsenter/nsexec.c), and what a shell runs in the background does not.
func mayBeHooks(p *fact.View, c *evidence.Container) []*evidence.Task {
	first := firstStarted(p, c)
	until := first.Add(fact.HookBegins.Told(p))
	return slices.DeleteFunc(executedIn(p, c), func(t *evidence.Task) bool {
		return t.Started().IsZero() || t.Probe.Terminal || t.Probe.Group != t.PID || t.Started().Before(first) || t.Started().After(until)
	})
}

// postStart returns the process of a container's hook, nil for none.
func postStart(p *fact.View, c *evidence.Container) *evidence.Task {
	if all := mayBeHooks(p, c); len(all) > 0 {
		return all[0]
	}
	return nil
}

func hookFound(p *fact.View, c *evidence.Container) bool { return postStart(p, c) != nil }

func onlyOneFound(p *fact.View, c *evidence.Container) bool { return len(mayBeHooks(p, c)) <= 1 }

func begunBefore(p *fact.View, c *evidence.Container) bool {
	hook := postStart(p, c)
	return hook != nil && hook.Started().Before(p.DeletionRequested.Add(fact.ClockSkew))
}

func namedAsHook(p *fact.View, c *evidence.Container) bool {
	hook := postStart(p, c)
	return hook != nil && (fact.IsShell(c.PostStartProgram) || fact.Runs(hook, c.PostStartProgram))
}

// noShellOfHost and lastOfHost are about a pod with hostPID: what a hook has left in the background becomes the shim's child as well there
// (find_new_reaper, kernel/exit.c).
func noShellOfHost(p *fact.View, c *evidence.Container) bool {
	return !p.HostPID || !fact.IsShell(c.PostStartProgram)
}

func lastOfHost(p *fact.View, c *evidence.Container) bool {
	return !p.HostPID || nothingLeftToStart(p, c)
}

// kubeletStays reports whether the kubelet that was there at a time still is: one that was started after it knows nothing of the hook.
func kubeletStays(p *fact.View, since time.Time) bool {
	return p.Kubelet.State != fact.Gone && !p.Node.Kubelet.Process.Started().After(since)
}

func kubeletSinceHook(p *fact.View, c *evidence.Container) bool {
	return kubeletStays(p, postStart(p, c).Started())
}

func kubeletSinceFirst(p *fact.View, c *evidence.Container) bool {
	return kubeletStays(p, firstStarted(p, c))
}

// containerdSince answers whether containerd was there before a time. Its end ends the kubelet's request, after which the kubelet gives the
// container a grace period.
func containerdSince(p *fact.View, t time.Time) diagnose.Holding {
	since := p.Node.Containerd.ConnectedSince
	if !since.After(t) {
		return diagnose.Is(true)
	}
	return diagnose.Lasted(p, since, fact.Grace(p)+fact.UnknownAfter, diagnose.Restarting)
}

func containerdSinceHook(p *fact.View, c *evidence.Container) diagnose.Holding {
	return containerdSince(p, postStart(p, c).Started())
}

func containerdSinceFirst(p *fact.View, c *evidence.Container) diagnose.Holding {
	return containerdSince(p, firstStarted(p, c))
}

// containerdSinceSleep is open for as long as the hook sleeps: containerd may have been started before it.
func containerdSinceSleep(p *fact.View, c *evidence.Container) diagnose.Holding {
	if h := containerdSinceFirst(p, c); h.Yes() {
		return h
	}
	return diagnose.NotYet(diagnose.Open{Container: c.Name, Since: p.Node.Containerd.ConnectedSince, Until: sleptAt(p, c), Why: diagnose.Restarting})
}

// noneStarted reports whether the kubelet has started no other container of the pod since a time: it starts one after the other (SyncPod,
// pkg/kubelet/kuberuntime/kuberuntime_manager.go).
func noneStarted(p *fact.View, c *evidence.Container, since time.Time) bool {
	for i := range p.Containers {
		o := &p.Containers[i]
		if o.ID == c.ID || o.Kind == evidence.Sandbox || o.State != evidence.StateRunning {
			continue
		}
		if first := fact.FirstLeader(p, o); first == nil || first.Probe == nil || first.Probe.Started.After(since) {
			return false
		}
	}
	return true
}

func noneStartedSinceHook(p *fact.View, c *evidence.Container) bool {
	return noneStarted(p, c, postStart(p, c).Started())
}

func noneStartedSinceFirst(p *fact.View, c *evidence.Container) bool {
	return noneStarted(p, c, firstStarted(p, c))
}

// nothingLeftToStart reports whether all containers of the pod but this one run, so that
// the kubelet cannot be busy with the start of another one.
func nothingLeftToStart(p *fact.View, c *evidence.Container) bool {
	for i := range p.Containers {
		o := &p.Containers[i]
		if o.ID != c.ID && (o.Kind == evidence.App || o.Kind == evidence.Sidecar) && o.State != evidence.StateRunning {
			return false
		}
	}
	return true
}

// startsKnown reports whether it is known since when the kubelet and containerd run, so that a start of them would have been noticed.
func startsKnown(p *fact.View) bool {
	return !p.Node.Kubelet.Process.Started().IsZero() && !p.Node.Containerd.ConnectedSince.IsZero()
}

// tellPostStart tells of a hook that can be nothing else that it is proved: no container is left whose start the kubelet may be at instead, while
// somebody has executed the hook's program, and the kubelet and containerd are known to run since before.
func tellPostStart(p *fact.View, c *evidence.Container) diagnose.Finding {
	f := tellPostStartOf(p, c, postStart(p, c))
	if !p.HostPID && nothingLeftToStart(p, c) && startsKnown(p) {
		f.Confidence = diagnose.Proved
	}
	return f
}

func tellPostStartOf(p *fact.View, c *evidence.Container, hook *evidence.Task) diagnose.Finding {
	return diagnose.Finding{Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
		Process: diagnose.ProcessOf(p, hook), Since: hook.Started(), Deadline: p.Deadline,
	}}
}

// left is the variant in which the hook has ended, and a process that it has started holds its output open.
const left = "Left"

// A leftByHook is a process of a container with a postStart hook, of which the first process of the PID namespace is, or has become, the parent.
// containerd waits until no process holds the hook's output (drain_exec_sync_io_timeout of its CRI plugin is without end by default), and the kubelet
// waits for containerd.
type leftByHook struct {
	container   *evidence.Container
	first, task *evidence.Task
}

// Named says which process it is.
func (t leftByHook) Named(*fact.View) string {
	return fmt.Sprintf("container %.63q, process %.40q (PID %d)", t.container.Name, t.task.Comm, t.task.PID)
}

func childrenOfFirst(p *fact.View) (out []leftByHook) {
	for _, c := range containersWith(postStartProgram)(p) {
		first := fact.FirstLeader(p, c)
		for i := range p.Tasks {
			if t := &p.Tasks[i]; first != nil && t.Container == c.ID && t.Leader() && t.PPID == first.PID && t.State != evidence.Zombie {
				out = append(out, leftByHook{c, first, t})
			}
		}
	}
	return out
}

func leftStarts(p *fact.View, t leftByHook) bool { return fact.Starts(p, t.container) }

func ownNamespaces(p *fact.View) bool { return !p.HostPID && !p.ShareProcessNamespace }

func leftIsLast(p *fact.View, t leftByHook) bool { return nothingLeftToStart(p, t.container) }

// hookEnded reports whether no process of a container may be a hook: one that is not known to be no child of the shim may.
func hookEnded(p *fact.View, t leftByHook) bool {
	shims := fact.Shims(p)
	return !slices.ContainsFunc(p.Tasks, func(o evidence.Task) bool {
		return o.Container == t.container.ID && o.Leader() && o.PID != t.first.PID && (len(shims) == 0 || o.PPID == shims[0].PID)
	})
}

// leftOrphaned reports whether the leader of a process's group is gone. Some of what the program itself has left may look so; that the kubelet is at
// something, with nothing left to start, tells that there is a hook.
func leftOrphaned(p *fact.View, t leftByHook) bool {
	return !t.task.Started().IsZero() && t.task.Probe.Group != 0 &&
		!slices.ContainsFunc(p.Tasks, func(o evidence.Task) bool { return o.PID == t.task.Probe.Group })
}

func leftBefore(p *fact.View, t leftByHook) bool { return t.task.Started().Before(p.DeletionRequested) }

func kubeletSinceLeft(p *fact.View, t leftByHook) bool { return kubeletStays(p, t.task.Started()) }

func containerdSinceLeft(p *fact.View, t leftByHook) diagnose.Holding {
	return containerdSince(p, t.task.Started())
}

func noneStartedSinceLeft(p *fact.View, t leftByHook) bool {
	return noneStarted(p, t.container, t.task.Started())
}

// tellOldestLeft tells the oldest process of each container.
func tellOldestLeft(p *fact.View, found []leftByHook) (out []diagnose.Finding) {
	for _, t := range found {
		if slices.ContainsFunc(found, func(o leftByHook) bool { return o.container == t.container && fact.Older(o.task, t.task) }) {
			continue
		}
		f := tellPostStartOf(p, t.container, t.task)
		f.Variants = []string{left}
		out = append(out, f)
	}
	return out
}

func kubeletGoesOn(p *fact.View) bool {
	k := p.Node.Kubelet.Process
	return k == nil || !fact.Halted(k)
}

// sleptAt returns when a sleep ends that began with the container's first process. It begins when the container has been started, and only the end
// of the kubelet ends it before its time (runSleepHandler, pkg/kubelet/lifecycle/handlers.go). A kubelet that had no answer from containerd to the
// start runs none.
func sleptAt(p *fact.View, c *evidence.Container) time.Time {
	return firstStarted(p, c).Add(time.Duration(c.PostStartSleep) * time.Second)
}

func sleepsOn(p *fact.View, c *evidence.Container) bool { return p.Time.Before(sleptAt(p, c)) }

func tellPostStartSleep(p *fact.View, c *evidence.Container) diagnose.Finding {
	return diagnose.Finding{Family: sleeps, Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
		Deadline: p.Deadline, Until: sleptAt(p, c), SleepSeconds: c.PostStartSleep,
	}}
}

// postStartRequests returns the kubelet's requests to the port of a container's postStart hook. If there are several, one is another's. The kubelet
// waits for the hook's without a limit: its client has none for hooks (NewMainKubelet, pkg/kubelet/kubelet.go).
func postStartRequests(p *fact.View, c *evidence.Container) (out []*evidence.Request) {
	for i := range p.Requests {
		if r := &p.Requests[i]; r.Port == c.PostStartPort {
			out = append(out, r)
		}
	}
	return out
}

func postStartAsked(p *fact.View, c *evidence.Container) bool {
	return len(postStartRequests(p, c)) > 0
}

func postStartAskedOnce(p *fact.View, c *evidence.Container) bool {
	return len(postStartRequests(p, c)) <= 1
}

// established reports whether the connection has been made: one that cannot be is given up after two minutes (net.ipv4.tcp_syn_retries).
func established(p *fact.View, c *evidence.Container) bool {
	return !slices.ContainsFunc(postStartRequests(p, c), func(r *evidence.Request) bool { return r.State != evidence.Established })
}

func requestLastsBeyondProbes(p *fact.View, c *evidence.Container) diagnose.Holding {
	for _, r := range postStartRequests(p, c) {
		return diagnose.Lasted(p, r.Since, fact.ProbeTimeout, diagnose.Slow)
	}
	return diagnose.Is(false)
}

func tellPostStartRequest(p *fact.View, c *evidence.Container) diagnose.Finding {
	r := postStartRequests(p, c)[0]
	return diagnose.Finding{Family: requests, Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
		Deadline: p.Deadline, Since: r.Since, Port: r.Port,
	}}
}
