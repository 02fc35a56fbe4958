package runtime

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A bug is one of containerd by which the exit of a container gets lost.
type bug struct {
	issue string // of github.com/containerd/containerd
	// from is the first version with the bug, fixed the first one of the same minor version without it. Where no
	// fixed version is known, last is the last one that is known to have it.
	from, fixed, last version
	// shim is what the shim answers about the container then, and cgroup the version of
	// cgroups that it needs, 0 for any.
	shim   string
	cgroup int
	// starting reports whether containerd must have been started in the meantime, and behind
	// whether another container of the pod must have ended before.
	starting, behind bool
}

type version [3]int

// bugs holds those of which the versions are known from release notes and the source.
var bugs = []bug{
	// The shim drops the end of a first process while a process is being executed in the
	// container: since "runc-shim: process exec exits before init" (#9928), until #10675.
	{issue: "#10589", from: version{1, 7, 14}, fixed: version{1, 7, 22}, shim: running},
	// Of an end that comes while containerd starts, before it knows the container: #11634.
	{issue: "#11634", from: version{1, 7, 0}, fixed: version{1, 7, 34}, shim: stopped, starting: true},
	// Before it handles the next exit, the shim waits without a limit for its watch of the cgroup's memory.events
	// (internal/oom/watcher.go, stop). The exit at which it waits is recorded: containerd, which waits for that
	// container (Wait of the task), is woken before (SetExited, cmd/containerd-shim-runc-v2/task/service.go). The shim
	// reports the containers behind it as running, the sandbox last. What the watch waited for in the report is not
	// known. It opens the file, which a fanotify permission listener can hold up, and sends an event within seconds.
	{issue: "#13814", from: version{2, 3, 0}, last: version{2, 3, 4}, shim: running, cgroup: 2, behind: true},
	{issue: "#13814", from: version{2, 4, 0}, last: version{2, 4, 2}, shim: running, cgroup: 2, behind: true},
}

// knownBug returns the bug of the node's containerd that explains the shim's answer about a container; nil when none is
// known. If nodeagent has been connected since before the deletion, containerd has not been restarted since. A version
// of a distribution, such as 1.7.12-0ubuntu4, may have the fix of a later one.
func knownBug(p *fact.View, c *evidence.Container) *bug {
	v, ok := parseVersion(p.Node.Containerd.Version)
	if !ok {
		return nil
	}
	i := slices.IndexFunc(bugs, func(b bug) bool {
		below := b.fixed != version{} && slices.Compare(v[:], b.fixed[:]) < 0 || slices.Compare(v[:], b.last[:]) <= 0
		if b.starting && !p.Node.Containerd.ConnectedSince.After(p.DeletionRequested) || b.behind && !othersEnded(p, c) {
			return false
		}
		return b.shim == c.Task.Status && (b.cgroup == 0 || cgroupsOf(p) == b.cgroup) && slices.Compare(v[:], b.from[:]) >= 0 && below
	})
	if i < 0 {
		return nil
	}
	return &bugs[i]
}

// othersEnded reports whether the CRI status says that another container of the pod has exited.
func othersEnded(p *fact.View, c *evidence.Container) bool {
	return slices.ContainsFunc(p.Containers, func(o evidence.Container) bool { return o.ID != c.ID && o.State == evidence.StateExited })
}

// cgroupsOf returns the version of the pod's cgroups, 0 when there are none, or some of both. The container's own may
// be gone: systemd removes it as soon as it is empty.
func cgroupsOf(p *fact.View) int {
	if len(p.Cgroups) == 0 {
		return 0
	}
	version := p.Cgroups[0].Version
	if slices.ContainsFunc(p.Cgroups, func(g evidence.Cgroup) bool { return g.Version != version }) {
		return 0
	}
	return version
}

// parseVersion parses the version of a release, as in v2.4.2.
func parseVersion(s string) (v version, ok bool) {
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(parts) != len(v) {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return v, false
		}
		v[i] = int(n)
	}
	return v, true
}

// String returns a version as in 2.4.2, "" for none.
func (v version) String() string {
	if v == (version{}) {
		return ""
	}
	return strconv.Itoa(v[0]) + "." + strconv.Itoa(v[1]) + "." + strconv.Itoa(v[2])
}
