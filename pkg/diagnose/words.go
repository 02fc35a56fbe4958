package diagnose

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

var placeholder = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// fill puts the values into a text. A placeholder without a value is shown as
// on a page, so that the reader sees what to look up.
func fill(text string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		if v, ok := values[m[1:len(m)-1]]; ok {
			return v
		}
		return strings.ToUpper(m[1 : len(m)-1])
	})
}

func (d Doc) words(f Finding) (message, remedy, danger string) {
	remedy, danger = d.Remedy, d.Danger
	for _, v := range d.Families {
		if v.Name != f.Family {
			continue
		}
		if v.Remedy != "" {
			remedy = v.Remedy
		}
		if v.Danger != "" {
			danger = v.Danger
		}
	}
	return fill(d.Message, f.Values), fill(remedy, f.Values), fill(danger, f.Values)
}

// About starts a finding about the first process of a container.
func About(p *evidence.Pod, fp fact.FirstProcess, c Confidence) Finding {
	return Finding{Container: fp.Container.Name, Confidence: c, Values: values(p, fp)}
}

// values are those that all findings about a first process share.
func values(p *evidence.Pod, fp fact.FirstProcess) map[string]string {
	v := map[string]string{
		"container": fp.Container.Name,
		"signal":    fp.Container.StopSignal.String(),
		"program":   fp.Program(),
		"pid":       strconv.Itoa(fp.Leader.PID),
		"deadline":  Clock(p.Deadline),
	}
	if len(fp.Children) > 0 {
		c := fp.Children[len(fp.Children)-1]
		v["child"] = c.Comm
		v["childpid"] = strconv.Itoa(c.PID)
	}
	return v
}

// Clock is how messages tell a moment: it does not grow while a pod is stuck.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// Who names a process by its comm and PID, and by the pod or the container that
// it runs in. The number may be that of any thread, as TracerPid is.
func Who(p *evidence.Pod, tid int) string {
	for i := range p.Parents {
		if t := &p.Parents[i]; t.PID == tid || t.TID == tid {
			return Named(t)
		}
	}
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.TID == tid {
			name := Bound(t.Comm, 40) + " (PID " + strconv.Itoa(t.PID)
			if c := p.ContainerName(t); c != "" {
				name += ", of container " + c
			}
			return name + ")"
		}
	}
	return "PID " + strconv.Itoa(tid)
}

// Named names a process by its comm and PID, and by whose it is.
func Named(t *evidence.Task) string {
	name := Bound(t.Comm, 40) + " (PID " + strconv.Itoa(t.PID)
	switch {
	case t.OwnerName != "":
		name += ", of pod " + Bound(t.OwnerName, 120)
	case len(t.Owner) >= 32: // a UID
		name += ", of the pod with UID " + t.Owner
	}
	return name + ")"
}

// SignalName names the stop signal of a container.
func SignalName(c *evidence.Container) string {
	if c.StopSignal == 0 {
		return "its stop signal"
	}
	return c.StopSignal.String()
}

// InContainer starts a message about a container.
func InContainer(name string) string {
	if name == "" {
		return ""
	}
	return "container " + name + ": "
}

// StoppedToo says that a process that should act is stopped itself.
func StoppedToo(t *evidence.Task) string {
	if t.State == evidence.Stopped {
		return ", which is stopped,"
	}
	return ""
}

// Bound cuts a text to at most n bytes at the boundary of a rune.
func Bound(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}

// Count says a number of things in words, "thread" or "threads".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
