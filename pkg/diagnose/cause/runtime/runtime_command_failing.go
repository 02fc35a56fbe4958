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
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Containers, evidence.Shims, evidence.Events},
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
		Evidence: []string{
			"The kubelet has reported at least twice that the runtime failed to signal a container of the pod (Events of this pod with reason " +
				"FailedKillPod). The reports came since the deletion, over eight seconds or more.",
			"At least one of these reports is about this container. The ID in it is compared with containerd's.",
			"The last report is recent. The kubelet waits for the grace period before each new attempt, so reports can be that far apart.",
			"The container's first process is alive, and none of its threads has a pending SIGKILL.",
			"The shim says that the container runs.",
			"Inferred: any user who may create Events in the pod's namespace can have created these.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		f := fact.SandboxStop(onlySignals(p))
		if f == nil || f.Step != fact.StepContainer && f.Step != fact.StepSandbox || f.TimedOut() || !f.Persists(p) || !f.StillTries(p) || !ofLate(p, f) {
			return diagnose.Result{}
		}
		// containerd stops the containers in any order, and each try ends with the first one that fails.
		var out []diagnose.Finding
		for i := range p.Containers {
			c := &p.Containers[i]
			f := fact.SandboxStop(naming(onlySignals(p), c.ID))
			if f == nil || f.ID != c.ID {
				continue
			}
			_, text, ok := strings.Cut(f.Error, afterKill)
			first := alive(p, c)
			if !ok || first == nil {
				continue
			}
			found := about(c, diagnose.Inferred)
			// The end of the line that the runtime has printed stands there as \n.
			found.Objects = diagnose.Objects{Process: diagnose.ProcessOf(p, first), Error: strings.TrimSuffix(text, `\n`)}
			out = append(out, found)
		}
		return diagnose.Found(out...)
	},
}

// afterKill is what containerd's shim has before the error of a runtime that was to signal a
// container (checkKillError in cmd/containerd-shim-runc-v2/process/utils.go).
const afterKill = "unknown error after kill: "

// onlySignals returns the pod with only those of the kubelet's failures to stop the sandbox where a runtime could not
// signal. It returns none if the last failure is another one, because that one does not tell how often a signal failed.
func onlySignals(p *fact.View) *fact.View {
	pod := *p.Pod
	pod.KillFailures = nil
	of := *p
	of.Pod = &pod
	for _, f := range p.KillFailures {
		_, text, ok := strings.Cut(f.Text, "KillPodSandboxError: ")
		switch {
		case !ok:
		case strings.Contains(text, afterKill):
			of.KillFailures = append(of.KillFailures, f)
		case len(of.KillFailures) == 0:
			return &of
		}
	}
	return &of
}

// naming returns the pod with those of the kubelet's failures that name a container.
func naming(p *fact.View, id string) *fact.View {
	pod, of := *p.Pod, *p
	pod.KillFailures = slices.DeleteFunc(slices.Clone(p.KillFailures), func(f evidence.KillFailure) bool { return !strings.Contains(f.Text, `\"`+id+`\"`) })
	of.Pod = &pod
	return &of
}

// nextTry is how long after its last report the kubelet must report a failure again, on top of the grace period. It
// tries again after ten seconds or a little more, and waits for the grace period before it has SIGKILL sent. After
// toldBusy reports, it sends one in five minutes (k8s.io/client-go/tools/record/events_cache.go).
const (
	nextTry  = 45 * time.Second
	toldBusy = 25
)

// ofLate reports whether a failure has been reported so recently that no later attempt of the kubelet can have
// succeeded.
func ofLate(p *fact.View, f *fact.SandboxFailure) bool {
	return f.Count >= toldBusy || p.Time.Sub(f.Last) <= fact.Grace(p)+nextTry
}

// alive returns the first process of a container that runs, by the shim's answer, and has not been killed; nil when there
// is none, or it is not known.
func alive(p *fact.View, c *evidence.Container) *evidence.Task {
	if c.Runtime != fact.RuncV2 || c.State != evidence.StateRunning || c.Task.Status != running || c.Task.PID == 0 {
		return nil
	}
	if slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.Container == c.ID && fact.Dying(&t) }) {
		return nil
	}
	i := slices.IndexFunc(p.Tasks, func(t evidence.Task) bool {
		return t.Leader() && t.PID == c.Task.PID && t.Container == c.ID && t.State != evidence.Zombie
	})
	if i < 0 {
		return nil
	}
	return &p.Tasks[i]
}
