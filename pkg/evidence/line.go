package evidence

import (
	"strconv"
)

// leastTasks is how many tasks a Line keeps at least, if it keeps any, and mostTasks how
// many it tries with: to encode what a pod may have would cost tens of megabytes.
const (
	leastTasks = 4
	mostTasks  = 256
)

// Line returns a pod as JSON in one line that has at most limit bytes when a log has
// quoted it, which Encode lays out when it is decoded again. What finds no room is left
// out, and its source is Missing: first the blocked tasks of the node, then tasks of the
// pod, then everything but what names the pod. It returns "" when not even that fits.
func Line(p *Pod, limit int) string {
	const why = "left out: there was no room for it in the log"
	short := *p
	short.Missing = make(map[Source]string, len(p.Missing))
	for s, reason := range p.Missing {
		short.Missing[s] = reason
	}
	few := len(p.Tasks) <= mostTasks
	if few {
		if text, ok := line(&short, limit); ok {
			return text
		}
	}
	short.Node.Blocked, short.Before = nil, nil
	if few {
		if text, ok := line(&short, limit); ok {
			return text
		}
	}
	// Those of which most is known come first, and stay in their order.
	var tasks []Task
	for r := range ranks {
		for i := range p.Tasks {
			if len(tasks) < mostTasks && rank(&p.Tasks[i]) == r {
				tasks = append(tasks, p.Tasks[i])
			}
		}
	}
	for n := min(len(p.Tasks)/2, len(tasks)); n >= leastTasks; n /= 2 {
		short.Lack(Processes, why)
		short.Tasks = tasks[:n]
		if text, ok := line(&short, limit); ok {
			return text
		}
	}
	bare := Pod{
		Time: p.Time, Namespace: p.Namespace, Name: p.Name, UID: p.UID, RuntimeUID: p.RuntimeUID, Phase: p.Phase, Mirror: p.Mirror, HostPID: p.HostPID,
		DeletionRequested: p.DeletionRequested, Deadline: p.Deadline, Skew: p.Skew, GracePeriodSeconds: p.GracePeriodSeconds,
	}
	bare.Node.Name, bare.Node.Kernel, bare.Node.Time, bare.Node.Read = p.Node.Name, p.Node.Kernel, p.Node.Time, p.Node.Read
	for _, s := range []Source{Processes, Suspects, Cgroups, Mounts, Containers, Shims, Containerd, Kubelet, Volumes, Holders, VolumeCalls, Events, Plugins} {
		bare.Lack(s, why)
	}
	text, ok := line(&bare, limit)
	if !ok {
		return ""
	}
	return text
}

// ranks is how many ranks there are. The rank is 0 for a task of which files were read that suspects have only, 1 for another
// leader, and 2 for the rest.
const ranks = 3

func rank(t *Task) int {
	switch {
	case t.Probe != nil:
		return 0
	case t.Leader():
		return 1
	}
	return 2
}

func line(p *Pod, limit int) (string, bool) {
	compact, err := JSON(p, "")
	if err != nil {
		return "", false
	}
	text := string(compact)
	return text, len(strconv.Quote(text)) <= limit
}
