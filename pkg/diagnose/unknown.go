package diagnose

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
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
		Evidence: "The phase says whose turn it is: see the phases in docs/design.md. The layers of causes that were looked for and not found are named, and so are the sources that could not be read: nodeagent explain lists the causes of each layer.",
		Remedy:   "Look at the kubelet's log on the node for this pod (journalctl -u kubelet, line \"Error syncing pod, skipping\"). Save what is known with nodeagent capture {pod} and attach it to an issue of nodeagent.",
		Danger:   "Do not force-delete before you know what holds it: the processes, volumes and addresses may still be in use.",
	},
	Check: func(*evidence.Pod) []Finding { return nil },
}

// A search is the layers of the causes that were looked for: in whole where
// nothing was missing, in part where a cause of the layer could not be looked for.
// The same layer may stand in both, and more than once.
type search struct{ whole, part []string }

// ruledOut names the layers whose causes were looked for and not found.
func (s search) ruledOut() string {
	slices.Sort(s.whole)
	var whole, part []string
	for _, layer := range slices.Compact(s.whole) {
		if slices.Contains(s.part, layer) {
			part = append(part, layer)
		} else {
			whole = append(whole, layer)
		}
	}
	var text []string
	if len(whole) > 0 {
		text = append(text, "the known causes of "+strings.Join(whole, ", "))
	}
	if len(part) > 0 {
		text = append(text, "some of "+strings.Join(part, ", "))
	}
	return strings.Join(text, "; ")
}

func unknown(p *evidence.Pod, looked search, notRead []Unknown) Finding {
	v := map[string]string{
		"pod":      p.Namespace + "/" + p.Name,
		"ruledout": cmp.Or(looked.ruledOut(), "nothing"),
		"left":     "",
		"unseen":   "",
	}
	var left []string
	if len(fact.AppTasks(p)) > 0 {
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
	for _, u := range notRead {
		unseen = append(unseen, string(u.Source))
	}
	if len(unseen) > 0 {
		v["unseen"] = ". Could not be read in full: " + strings.Join(unseen, ", ")
	}
	f := Finding{Cause: Unrecognised.Cause, Confidence: Inferred, Values: v}
	f.Message, f.Remedy, f.Danger = Unrecognised.Doc.words(f)
	return f
}
