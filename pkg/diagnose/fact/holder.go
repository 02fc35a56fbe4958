package fact

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ByID returns a task by the number that another one knows it by, its parent's
// or its tracer's, and says whether it is one of the pod's.
func ByID(p *View, pid int) (t *evidence.Task, inside bool) {
	for i := range p.Tasks {
		if p.Tasks[i].TID == pid {
			return &p.Tasks[i], true
		}
	}
	for i := range p.Parents {
		if p.Parents[i].TID == pid {
			return &p.Parents[i], false
		}
	}
	return nil, false
}

// Ended reports whether of a process only zombies are left.
func Ended(p *View, pid int) bool {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.PID == pid && t.State != evidence.Zombie && t.State != evidence.Dead {
			return false
		}
	}
	return true
}

// NameIsLate reports whether the container of a process is not known yet. One
// that has ended is in no control group any more: its container is the one whose
// shim names it, and a shim that is late is asked again.
func NameIsLate(p *View, t *evidence.Task) bool {
	_, late := p.Missing[evidence.Shims]
	return late && p.ContainerName(t) == ""
}

// Essential reports whether a process serves other pods or the whole node, so that
// nobody may be told to end it: a shim, containerd, the kubelet, the first process.
// A program can make its shim its tracer by itself (PTRACE_TRACEME).
func Essential(t *evidence.Task) bool {
	switch t.Owner {
	case "shim", "containerd", "kubelet", "kernel":
		return true
	}
	return t.PID == 1 || strings.HasPrefix(t.Comm, "containerd-shim")
}

// UnitOf returns the unit of systemd that a control group is named after, "" when there
// is none.
func UnitOf(cgroup string) string {
	name := cgroup[strings.LastIndexByte(cgroup, '/')+1:]
	if strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope") {
		return name
	}
	return ""
}
