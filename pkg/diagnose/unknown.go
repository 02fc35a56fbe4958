package diagnose

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Unrecognised is what is said of an overdue pod when no rule speaks. It is not
// in Rules: it looks for nothing.
var Unrecognised = &Rule{
	Cause: "Unknown",
	Doc: Doc{
		Layer:    "unknown",
		Title:    "stuck, and no known cause matches",
		Message:  "the termination is stuck{left}, and no known cause matches. Ruled out: {ruledout}{unseen}",
		Meaning:  "The pod is well past its deadline, has made no progress for a minute, nodeagent has looked at everything it can read, and none of the causes it knows is there. It says so instead of guessing.",
		Evidence: "The phase says whose turn it is: see the phases in docs/design.md. The causes that were looked for and not found are named, and so are the sources that could not be read.",
		Remedy:   "Look at the kubelet's log on the node for this pod (journalctl -u kubelet, line \"Error syncing pod, skipping\"). Save what is known with nodeagent capture {pod} and attach it to an issue of nodeagent.",
		Danger:   "Do not force-delete before you know what holds it: the processes, volumes and addresses may still be in use.",
	},
	Check: func(*evidence.Pod) []Finding { return nil },
}

func unknown(p *evidence.Pod, ruledOut []string, notLookedFor []Unknown) Finding {
	slices.Sort(ruledOut)
	ruledOut = slices.DeleteFunc(ruledOut, func(c string) bool { return c == AwaitingGracePeriod.Cause })
	v := map[string]string{
		"pod":      p.Namespace + "/" + p.Name,
		"ruledout": "nothing",
		"left":     "",
		"unseen":   "",
	}
	if len(ruledOut) > 0 {
		v["ruledout"] = bound(strings.Join(ruledOut, ", "), 300)
	}
	var left []string
	if len(appTasks(p)) > 0 {
		left = append(left, "processes")
	}
	if len(p.Mounts) > 0 {
		left = append(left, "mounts")
	}
	if len(p.Cgroups) > 0 {
		left = append(left, "its cgroup")
	}
	if len(left) > 0 {
		v["left"] = " (left on the node: " + strings.Join(left, ", ") + ")"
	}
	var unseen []string
	for _, u := range notLookedFor {
		unseen = append(unseen, string(u.Source))
	}
	if len(unseen) > 0 {
		slices.Sort(unseen)
		unseen = slices.Compact(unseen)
		v["unseen"] = ". Could not be read in full: " + strings.Join(unseen, ", ")
	}
	f := Finding{Cause: Unrecognised.Cause, Confidence: Inferred, Values: v}
	f.Message, f.Remedy, f.Danger = Unrecognised.Doc.words(f)
	return f
}
