package fact

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A SandboxFailure is why the kubelet could not have the pod's sandbox stopped, by
// what it said in its Events, and how often the same has come back.
type SandboxFailure struct {
	// Error is what containerd answered, without what says which sandbox it is
	// about.
	Error string
	// Step is what of stopping the sandbox failed; StepUnknown where the request
	// did not get an answer that says it.
	Step Step
	// ID is that of the container, or of the sandbox, that the step is about; "" where the
	// step is not known.
	ID string
	// Plugin is the type of the CNI plugin that failed, as the network's
	// configuration names it; "" when the error names none.
	Plugin string
	// First and Last are when it was told first and last, and Count how often.
	First, Last time.Time
	Count       int
}

// A Step is one of those that containerd takes to stop a sandbox
// (internal/cri/server/sandbox_stop.go, stopPodSandbox).
type Step string

// The steps, by the words that containerd begins an error of each with.
const (
	StepUnknown     Step = ""
	StepContainer   Step = "failed to stop container "
	StepSandbox     Step = "failed to stop sandbox "
	StepNetwork     Step = "failed to destroy network for sandbox "
	StepNamespace   Step = "failed to remove network namespace for sandbox "
	StepImageMounts Step = "failed to cleanup image mounts for sandbox "
)

var steps = []Step{StepContainer, StepSandbox, StepNetwork, StepNamespace, StepImageMounts}

// noMessage is how the error of a plugin begins that has printed nothing, with how its process ended, or why it was not
// started, behind it (pluginErr, pkg/invoke/raw_exec.go in github.com/containernetworking/cni).
const noMessage = "netplugin failed with no error message: "

// TimedOut reports whether the kubelet's request ended without an answer from
// containerd, or a plugin was killed when its time was over. What a plugin prints may be about
// a request of its own, as to the API server, which has run out of time.
func (f *SandboxFailure) TimedOut() bool {
	if f.Plugin != "" && !strings.HasPrefix(f.Error, noMessage) {
		return strings.Contains(f.Error, "signal: killed")
	}
	return strings.Contains(f.Error, "context deadline exceeded") || strings.Contains(f.Error, "DeadlineExceeded") ||
		strings.Contains(f.Error, "signal: killed")
}

// How long the kubelet may be silent about a failure that goes on: it tells each at
// first, and one in five minutes when it has told 25
// (k8s.io/client-go/tools/record/events_cache.go). And how long the same must come
// back for: the kubelet tries again after ten seconds or a little more (backOffPeriod,
// pkg/kubelet/kubelet.go).
const (
	FailureSilence = 6 * time.Minute
	failurePersist = 8 * time.Second
	failureRepeat  = 2
)

// CameBack reports whether the failure has come back: one that did not may have ended with the next try.
func (f *SandboxFailure) CameBack() bool {
	return f.Count >= failureRepeat && f.Last.Sub(f.First) >= failurePersist
}

// IsFresh reports whether the failure has not ended, by what the Events show.
func (f *SandboxFailure) IsFresh(p *View) bool { return p.Time.Sub(f.Last) <= FailureSilence }

// StillTries reports whether the kubelet that has told of a failure still runs, as far
// as is seen: what another one, or none, makes of it has not been told yet.
func (f *SandboxFailure) StillTries(p *View) bool {
	t := p.Node.Kubelet.Process
	return p.Kubelet.State != Gone && (t == nil || !Halted(t) && (t.Probe == nil || !t.Probe.Started.After(f.Last)))
}

// freshWithClaims is how old the kubelet's last failure may be for a pod with resource
// claims: they are what comes next, and a driver that hangs looks the same.
const freshWithClaims = 45 * time.Second

// BeforeClaims reports whether the failure is as fresh as that of a pod with resource claims has to be.
func (f *SandboxFailure) BeforeClaims(p *View) bool {
	return p.ResourceClaims == 0 || p.Time.Sub(f.Last) <= freshWithClaims
}

// A StopError is what the kubelet has told of one try to have a pod's sandbox stopped that failed.
type StopError struct {
	*evidence.KillFailure
	// Answer is that of containerd: it begins with the step that failed, where that is known.
	Answer string
	fits   bool // it is about this pod, since the deletion
}

// stopErrors returns what the kubelet has told, its last words first.
func stopErrors(p *View) (out []StopError) {
	for i := range p.KillFailures {
		f := &p.KillFailures[i]
		_, rest, ok := strings.Cut(f.Text, `KillPodSandboxError: "`)
		if !ok {
			continue
		}
		out = append(out, StopError{f, answer(rest), ofPod(f.Text, p.RuntimeUID) && during(p, f)})
	}
	return out
}

// LastStop returns the last failure of the kubelet to have the pod's sandbox
// stopped among some that it has told of since the deletion; nil when there is none. An Event
// may be forged, by somebody who may create Events in the pod's namespace. Only one
// that fits what the node shows is looked at: it names the pod, is not from the future,
// and where it names a sandbox, that is the pod's, and has ended where that comes before
// the step that fails. The pod's own program can see the number of its sandbox, in
// mountinfo, so it makes another pod's Event useless and proves no more.
func LastStop(p *View, told []StopError) *SandboxFailure {
	i := slices.IndexFunc(told, func(e StopError) bool { return e.fits })
	if i < 0 {
		return nil
	}
	last := &told[i]
	out := &SandboxFailure{Error: last.Answer, First: last.First, Last: last.Last, Count: last.Count}
	if !out.parse(p) {
		return nil
	}
	for j := range told {
		other := &told[j]
		if j == i || !other.fits || !out.isSame(last.Answer, other.Answer) {
			continue
		}
		out.Count += other.Count
		if other.First.Before(out.First) {
			out.First = other.First
		}
	}
	return out
}

// parse takes the step, the container and the plugin out of the answer. It reports false where that names another pod's sandbox, or an
// invention.
func (f *SandboxFailure) parse(p *View) bool {
	answer := f.Error
	for _, s := range steps {
		rest, ok := strings.CutPrefix(answer, string(s)+`"`)
		if !ok {
			continue
		}
		id, rest, _ := strings.Cut(rest, `"`)
		if !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.ID == id && s.mayFailOf(&c) }) {
			return false
		}
		if s == StepSandbox {
			rest = sandboxState.ReplaceAllString(rest, "")
		}
		f.Step, f.ID, f.Error = s, id, strings.TrimPrefix(rest, ": ")
	}
	rest, ok := strings.CutPrefix(f.Error, `plugin type="`)
	if !ok || f.Step != StepNetwork {
		return true
	}
	plugin, rest, _ := strings.Cut(rest, `"`)
	if pluginName.MatchString(plugin) {
		f.Plugin = plugin
	}
	if _, text, ok := strings.Cut(rest, "failed (delete): "); ok {
		f.Error = text
	}
	return true
}

// mayFailOf reports whether a step may fail of a container, or of the sandbox: it comes when all before it have ended.
func (s Step) mayFailOf(c *evidence.Container) bool {
	if s == StepContainer {
		return c.Kind != evidence.Sandbox
	}
	return c.Kind == evidence.Sandbox && (s == StepSandbox || c.State != evidence.StateRunning)
}

// isSame reports whether what the kubelet has told in other words before is the same failure. It is when it is of the
// same kind, as where an error holds a number that changes, but not for want of something else. Of
// several containers each try fails at another one: containerd stops them in any order.
func (f *SandboxFailure) isSame(last, before string) bool {
	if f.Step == StepUnknown || Exhausted(last) != "" && Exhausted(before) != Exhausted(last) {
		return false
	}
	if f.Step == StepContainer {
		return strings.HasPrefix(before, string(f.Step)+`"`)
	}
	return strings.HasPrefix(before, string(f.Step)+`"`+f.ID+`"`)
}

// pluginName is what the type of a CNI plugin can be, which is the name of its program:
// no words.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// during reports whether a failure was told of since the deletion, and not in the
// future. The kubelet's clock is the node's. It stops some pods from before that on, as one that it evicts, or
// of which the containers have ended for good, and tells the same failure again and again in one Event.
func during(p *View, f *evidence.KillFailure) bool {
	goesOn := f.Last.Sub(p.DeletionRequested) >= ClockSkew+failurePersist
	return (goesOn || !f.First.Before(p.DeletionRequested.Add(-ClockSkew))) && !f.Last.After(p.Time.Add(ClockSkew))
}

// ofPod reports whether what the kubelet says is of a pod: failed to "KillPodSandbox" for "UID" with KillPodSandboxError:
// "rpc error: code = Unknown desc = …" (pkg/kubelet/container/sync_result.go).
func ofPod(text, uid string) bool {
	return uid != "" && strings.Contains(text, `failed to "KillPodSandbox" for "`+uid+`" with KillPodSandboxError: "`)
}

// answer returns containerd's answer out of what the kubelet quotes of it. The end may be missing.
func answer(quoted string) string {
	text := unquote(quoted)
	rest, ok := strings.CutPrefix(text, "rpc error: code = Unknown desc = ")
	if !ok {
		return strings.TrimPrefix(text, "rpc error: ")
	}
	if of, ok := strings.CutPrefix(rest, "failed to stop sandbox container "); ok {
		return string(StepSandbox) + of
	}
	return rest
}

// sandboxState is what containerd 1.7 has behind the number of the sandbox; what it begins with has one word more, too.
var sandboxState = regexp.MustCompile(`^ in "SANDBOX_[A-Z]+" state`)

// unquote undoes what %q does to a text, up to the quotation mark that ends it or to
// the end. Escapes other than of quotation marks and backslashes stay.
func unquote(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return out.String()
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
