package fact

import (
	"path"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// shells are the programs whose file or name says that they are a shell.
var shells = map[string]bool{
	"sh": true, "bash": true, "dash": true, "ash": true, "ksh": true, "mksh": true, "zsh": true, "busybox": true,
}

// Shell reports whether the process is a command interpreter. Of a script, comm
// is the script's name, so the program file decides where it is known; busybox
// is any of its applets, so there the name decides.
func Shell(t *evidence.Task) bool {
	comm := strings.TrimPrefix(t.Comm, "-")
	if t.Probe != nil && t.Probe.Exe != "" && t.Probe.Exe != "busybox" {
		return shells[t.Probe.Exe]
	}
	return comm != "busybox" && shells[comm] || path.Ext(comm) == ".sh"
}

// ShellOverChild reports whether the process is a shell that runs a program.
func (fp FirstProcess) ShellOverChild() bool { return Shell(fp.Leader) && len(fp.Children) > 0 }

// Foreground returns the child that a shell waits for in its foreground, and
// that can be expected to outlive the grace period; nil when there is none, or
// when the evidence leaves a doubt. It is proved where the kind of shell leaves
// no other reason for the wait, else inferred.
func (fp FirstProcess) Foreground(p *evidence.Pod) (child *evidence.Task, proved bool) {
	sh := fp.Leader
	if !Shell(sh) || sh.Probe == nil || sh.Probe.Syscall != "wait4" || sh.Probe.Group == 0 {
		return nil, false
	}
	var found *evidence.Task
	for _, c := range fp.Children {
		switch {
		case c.Probe == nil || c.Probe.Started.IsZero():
			return nil, false
		case c.Probe.Started.After(p.DeletionRequested.Add(-clockSkew)):
			return nil, false // the trap may be at work
		case c.Probe.Group != sh.Probe.Group:
			// Job control: the masks tell nothing.
		case (c.Ignored | c.Caught).Has(evidence.SIGINT), (c.Ignored | c.Caught).Has(evidence.SIGQUIT):
			// In the background, or a program with dispositions of its own.
		case p.Time.Sub(c.Probe.Started) >= p.Deadline.Sub(p.Time):
			found = c
		}
	}
	// dash and busybox wait for the background in sigsuspend, so wait4 is a
	// second proof; bash waits for both in wait4.
	return found, found != nil && slices.Contains([]string{"dash", "busybox"}, sh.Probe.Exe)
}

// WaitsForOldChild reports whether the process is a shell that waits for a child
// which was there before the deletion: in the foreground, where its trap is put
// off until the child has ended, or in the background. Programs that have
// dispositions of their own, such as python, java and node, do not show which.
func (fp FirstProcess) WaitsForOldChild(p *evidence.Pod) bool {
	sh := fp.Leader
	return Shell(sh) && sh.Probe != nil && sh.Probe.Syscall == "wait4" && slices.ContainsFunc(fp.Children, func(c *evidence.Task) bool {
		return c.Probe == nil || c.Probe.Started.IsZero() || c.Probe.Started.Before(p.DeletionRequested)
	})
}
