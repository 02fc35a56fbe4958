package why

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/terminal"
)

// What may stand in a command: names as the API server takes them, which no shell gives a meaning to.
var (
	objectName = regexp.MustCompile(`^[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?$`)
	objectUID  = regexp.MustCompile(`^[0-9a-zA-Z][-0-9a-zA-Z]{0,62}$`)
)

// Script prints commands that delete the objects of the pods of a node that is powered off, to be read before it is run. A pod for which
// that is not safe stands in it with the reason.
// flags are those by which kubectl finds the cluster.
func Script(w io.Writer, node, flags string, answers []Answer, v *View) {
	where := "all namespaces"
	if v.Namespace != "" {
		where = "namespace " + v.Namespace
	}
	reasons := make([]string, len(answers))
	deletes := 0
	for i := range answers {
		if reasons[i] = unsafe(&answers[i], v); reasons[i] == "" {
			deletes++
		}
	}
	fmt.Fprintf(w, `#!/bin/sh
# Terminating pods of node %s in %s, at %s. Read all of it before you run it.
# Run it only if the machine is confirmed to be powered off: a pod that still runs there writes beside its replacement.
# Each command force-deletes one pod object, if its UID is still the same. It changes nothing on the node.
# Commands: %d. Pods left out: %d.
`, terminal.Printable(node), terminal.Printable(where), clock(v.Now), deletes, len(answers)-deletes)
	for _, u := range v.Unread {
		fmt.Fprintf(w, "# Not read: %s.\n", terminal.Printable(u.String()))
	}
	if deletes > 0 {
		state := ""
		if v.Nodes[node] != nil {
			state = string(corev1.ConditionUnknown)
		}
		fmt.Fprintf(w, `[ "$CONFIRMED_OFF" = %[1]s ] || { echo "set CONFIRMED_OFF=%[1]s if that machine is confirmed to be powered off; nothing done" >&2; exit 1; }
lost() { # as when this was printed
	state=$(kubectl%[2]s get node %[1]s --ignore-not-found -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') && [ "$state" = "%[3]s" ] && return
	echo "node %[1]s is back, or cannot be read; nothing more done" >&2
	exit 1
}
`, inCommand(node, "NODE"), flags, state)
	}
	for i := range answers {
		a := &answers[i]
		fmt.Fprintf(w, "\n# %s\n", terminal.Printable(a.Namespace+"/"+a.Name+": "+a.Cause+", "+a.HeldBy))
		if reasons[i] != "" {
			fmt.Fprintf(w, "# Left out: %s.\n", terminal.Printable(reasons[i]))
			continue
		}
		fmt.Fprintf(w, `lost && echo '{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"%s"}}' |`+"\n"+
			"  kubectl%s delete --raw /api/v1/namespaces/%s/pods/%s -f -\n", a.UID, flags, a.Namespace, a.Name)
	}
}

// unsafe returns why there is no command for a pod, "" where there is one.
func unsafe(a *Answer, v *View) string {
	if !objectName.MatchString(a.Node) || !objectName.MatchString(a.Namespace) || !objectName.MatchString(a.Name) || !objectUID.MatchString(a.UID) {
		return "its name is none that the API server takes"
	}
	if v.Nodes == nil {
		return "its node could not be read"
	}
	if at := v.alive(a.Node); !at.IsZero() {
		return "nodeagent on its node wrote at " + clock(at) + ", when the node was lost already: the machine ran then"
	}
	i := slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return string(p.UID) == a.UID })
	if i < 0 {
		return "it was not read"
	}
	p := v.Pods[i]
	if len(p.Finalizers) > 0 {
		return "it has finalizers, which a force delete does not remove: " + strings.Join(p.Finalizers, ", ")
	}
	if a.Cause != NodeNotReady && a.Cause != NodeGone {
		return "its node is not lost; see kubectl why-terminating " + a.Name + " -n " + a.Namespace
	}
	if n := v.Nodes[a.Node]; n != nil {
		if c := NodeReady(n); c == nil || c.Status != corev1.ConditionUnknown {
			return "its node's kubelet still reports"
		}
	}
	for _, o := range p.OwnerReferences {
		if o.Kind == "StatefulSet" {
			return "its StatefulSet starts the same pod again; when the machine is powered off: kubectl taint node NODE " +
				"node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
		}
	}
	for _, o := range p.OwnerReferences {
		if o.Controller != nil && *o.Controller && !anew[o.Kind] {
			return "its " + o.Kind + " may start the same pod again"
		}
	}
	for i := range p.Spec.Volumes {
		if what := shared(p, &p.Spec.Volumes[i]); what != "" {
			return "it uses " + what + ", which only the out-of-service taint detaches"
		}
	}
	return ""
}

// anew are the controllers of Kubernetes whose next pod is another one.
var anew = map[string]bool{"ReplicaSet": true, "ReplicationController": true, "DaemonSet": true, "Job": true, "Node": true}

// shared says which volume it is if what is in it may be on another machine than the pod, where it can be written by two; "" for one of the
// pod's own, or of the node's.
func shared(p *corev1.Pod, v *corev1.Volume) string {
	s := &v.VolumeSource
	switch {
	case s.PersistentVolumeClaim != nil:
		return "the volume of claim " + s.PersistentVolumeClaim.ClaimName
	case s.Ephemeral != nil:
		return "the volume of claim " + p.Name + "-" + v.Name
	case s.EmptyDir != nil, s.HostPath != nil, s.ConfigMap != nil, s.Secret != nil, s.DownwardAPI != nil, s.Projected != nil, s.Image != nil, s.GitRepo != nil:
		return ""
	}
	return "volume " + v.Name
}

// alive returns when the agent of a node that is lost has written about one of the pods since then, zero for never.
func (v *View) alive(node string) (last time.Time) {
	n := v.Nodes[node]
	if n == nil {
		return last
	}
	lost := NodeReady(n)
	for _, p := range v.Pods {
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
			c := agentsCondition(p, status)
			if c == nil || lost == nil || p.Spec.NodeName != node || !written(p, c) {
				continue
			}
			if at := lastWrote(p, c); at.After(lost.LastTransitionTime.Time) && at.After(last) {
				last = at
			}
		}
	}
	return last
}

// inCommand returns a name as it may stand in a command, or the placeholder where it may not.
func inCommand(name, placeholder string) string {
	if objectName.MatchString(name) {
		return name
	}
	return placeholder
}
