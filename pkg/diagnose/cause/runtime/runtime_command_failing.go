package runtime

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// RuntimeCommandFailing is a runtime, such as runc, that cannot signal a container.
var RuntimeCommandFailing = &diagnose.Rule{
	Cause:  "RuntimeCommandFailing",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Runtime, diagnose.Sandbox},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "the runtime, such as runc, fails to signal a container",
		Who:     diagnose.ByNode,
		Message: "{what} still runs: the runtime fails to signal it each time: {error}",
		Phrases: map[string][]diagnose.Choice{
			"what": {{Variant: aboutSandbox, Text: "the pod's sandbox"}, {Text: "container {container}"}},
		},
		Meaning: "The shim does not signal a container itself. It runs a program for that, usually runc, and this program exits with an error. A " +
			"stop signal that failed is not sent again. SIGKILL is, each time that the kubelet tries to stop the pod.",
		Seen: []string{
			"The kubelet's Events (FailedKillPod) report this failure at least twice since the deletion",
			"{process} is alive and has no pending SIGKILL, and the shim says running",
		},
		First: "on the node, as root: if permission denied, dmesg or /var/log/audit/audit.log (grep -i denied) names the policy; " +
			"ask its owner to allow signals. " +
			"If not: Fix",
		Avoid: "killing the shim (loses exit codes and output)",
		Remedy: "On the node: journalctl -u containerd | grep 'unknown error after kill' shows the whole error. Repair what it names. " +
			"Usual reasons: the runtime's binary is missing or was replaced, /run is full, TasksMax of containerd's unit is reached, or " +
			"AppArmor or SELinux denies it. " +
			"The kubelet's next attempt then succeeds. If the runtime cannot be repaired, end the first process of {what}: {kill}.",
		Danger: "SIGKILL loses what the container's processes have not written. " +
			"Do not kill the shim: that loses the exit codes and the output of all containers of the pod. " +
			"A force delete leaves the container running with no API object tracking it.",
	},
	By: diagnose.By[*evidence.Container]{
		From: []evidence.Source{evidence.Containers},
		// containerd stops the containers in any order, and each try ends with the first one that fails.
		Of: containers,
		Facts: slices.Concat([]diagnose.Fact[*evidence.Container]{
			{
				Says: "Since the deletion, the kubelet has reported that stopping this container failed (Events of this pod with reason FailedKillPod). " +
					"The ID in the report is compared with containerd's.",
				Is: diagnose.If(isReported), From: []evidence.Source{evidence.Events},
			},
			{
				Says: "The report says that the runtime failed to signal it (unknown error after kill).",
				Is:   diagnose.If(signalFails), From: []evidence.Source{evidence.Events},
			},
			{
				Says: "The kubelet's last report for the pod is about the same failure, of this container or another one, or of the sandbox.",
				Pod:  diagnose.IfPod(lastSignalFails), From: []evidence.Source{evidence.Events},
			},
			{Says: "The request of that report did not time out.", Pod: diagnose.IfPod(signalAnswered), From: []evidence.Source{evidence.Events}},
			{Says: recent, Pod: diagnose.IfPod(signalFailsOfLate), From: []evidence.Source{evidence.Events}},
		}, diagnose.StopFails(signalFailureOf, evidence.Events), []diagnose.Fact[*evidence.Container]{
			{Says: "The container's runtime is io.containerd.runc.v2.", Is: diagnose.If(ofRunc)},
			{Says: "containerd's CRI status says that the container runs.", Is: diagnose.If(isRunning)},
			{Says: "The shim says that the container runs.", Is: diagnose.If(shimSaysRunning), From: []evidence.Source{evidence.Shims}},
			{
				Says: "The container's first process, whose PID the shim names, is alive.",
				Is:   diagnose.If(namedLives), From: []evidence.Source{evidence.Processes, evidence.Shims},
			},
			{
				Says: "No thread of the container has a pending SIGKILL, or is exiting.",
				Is:   diagnose.If(noneDies), From: []evidence.Source{evidence.Processes, evidence.Suspects},
			},
			{Says: "Inferred: any user who may create Events in the pod's namespace can have created these."},
		}),
		Tell: diagnose.Each(tellSignalFails),
	},
}

// failureOf returns the kubelet's last failure to have a container signalled; nil when there is none that names it.
func failureOf(p *fact.View, c *evidence.Container) *fact.SandboxFailure {
	naming := func(e fact.StopError) bool { return strings.Contains(e.Answer, `"`+c.ID+`"`) }
	if f := fact.LastStop(p, only(signalErrors(p), naming)); f != nil && f.ID == c.ID {
		return f
	}
	return nil
}

func isReported(p *fact.View, c *evidence.Container) bool { return failureOf(p, c) != nil }

func signalFails(p *fact.View, c *evidence.Container) bool {
	f := failureOf(p, c)
	return f != nil && strings.Contains(f.Error, afterKill)
}

// signalFailure returns the kubelet's last failure to have the pod's sandbox stopped, if that is about a signal; nil when it is not.
func signalFailure(p *fact.View) *fact.SandboxFailure { return fact.LastStop(p, signalErrors(p)) }

func lastSignalFails(p *fact.View) bool {
	f := signalFailure(p)
	return f != nil && (f.Step == fact.StepContainer || f.Step == fact.StepSandbox)
}

func signalAnswered(p *fact.View) bool {
	f := signalFailure(p)
	return f != nil && !f.TimedOut()
}

func signalFailsOfLate(p *fact.View) bool {
	f := signalFailure(p)
	return f != nil && ofLate(p, f)
}

func signalFailureOf(p *fact.View, _ *evidence.Container) *fact.SandboxFailure {
	return signalFailure(p)
}

func namedLives(p *fact.View, c *evidence.Container) bool { return namedFirst(p, c) != nil }

func noneDies(p *fact.View, c *evidence.Container) bool {
	return !slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.Container == c.ID && fact.Dying(&t) })
}

// namedFirst returns the living process of a container that the shim names as its first one; nil when there is none, or it is not known.
func namedFirst(p *fact.View, c *evidence.Container) *evidence.Task {
	i := slices.IndexFunc(p.Tasks, func(t evidence.Task) bool {
		return t.Leader() && t.PID == c.Task.PID && t.Container == c.ID && t.State != evidence.Zombie
	})
	if i < 0 {
		return nil
	}
	return &p.Tasks[i]
}

func tellSignalFails(p *fact.View, c *evidence.Container) diagnose.Finding {
	_, text, _ := strings.Cut(failureOf(p, c).Error, afterKill)
	f := about(c, diagnose.Inferred)
	// The end of the line that the runtime has printed stands there as \n.
	f.Objects = diagnose.Objects{Process: diagnose.ProcessOf(p, namedFirst(p, c)), Error: strings.TrimSuffix(text, `\n`)}
	return f
}

// afterKill is what containerd's shim has before the error of a runtime that was to signal a
// container (checkKillError in cmd/containerd-shim-runc-v2/process/utils.go).
const afterKill = "unknown error after kill: "

// signalErrors returns those of the kubelet's failures to stop the sandbox where a runtime could not
// signal. There are none if the last failure is another one, because that one does not tell how often a signal failed.
func signalErrors(p *fact.View) []fact.StopError {
	ofSignal := func(e fact.StopError) bool { return strings.Contains(e.Answer, afterKill) }
	if len(p.StopErrors) == 0 || !ofSignal(p.StopErrors[0]) {
		return nil
	}
	return only(p.StopErrors, ofSignal)
}

func only(errors []fact.StopError, is func(fact.StopError) bool) []fact.StopError {
	return slices.DeleteFunc(slices.Clone(errors), func(e fact.StopError) bool { return !is(e) })
}

// nextTry is how long after its last report the kubelet must report a failure again, on top of the grace period. It
// tries again after ten seconds or a little more, and waits for the grace period before it has SIGKILL sent. After
// toldBusy reports, it sends one in five minutes (k8s.io/client-go/tools/record/events_cache.go).
const (
	nextTry  = 45 * time.Second
	toldBusy = 25
)

// recent is the line of ofLate, which reports whether a failure has been reported so recently that no later attempt of the kubelet can have
// succeeded.
const recent = "The last report is recent. The kubelet waits for the grace period before each new attempt, so reports can be that far apart. " +
	"After 25 reports, the kubelet repeats one in five minutes."

func ofLate(p *fact.View, f *fact.SandboxFailure) bool {
	return f.Count >= toldBusy || p.Time.Sub(f.Last) <= fact.Grace(p)+nextTry
}

// alive returns the first process of a container that runs, by the shim's answer, and has not been killed; nil when there
// is none, or it is not known.
func alive(p *fact.View, c *evidence.Container) *evidence.Task {
	if !ofRunc(p, c) || !isRunning(p, c) || !shimSaysRunning(p, c) || !noneDies(p, c) {
		return nil
	}
	return namedFirst(p, c)
}
