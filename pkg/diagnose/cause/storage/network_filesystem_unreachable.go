package storage

import (
	"path"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// NetworkFilesystemUnreachable is a kubelet that hangs on a volume whose server
// is gone, when nothing of the pod itself is left.
var NetworkFilesystemUnreachable = &diagnose.Rule{
	Cause:  "NetworkFilesystemUnreachable",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Kubelet},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "the kubelet is blocked on a volume whose server does not respond",
		Message: "kubelet thread {thread} is blocked on {which}: the {protocol} server {who} does not respond",
		Phrases: map[string][]diagnose.Choice{
			"which": {{Text: "volume {volume}"}, {Text: "a volume of the pod"}},
			"who":   {{Variant: local, Text: "behind {server} (this node)"}, {Text: "{server}"}},
			"from":  {{Text: " from {source}"}, {Text: ""}},
			"first": {
				{Variant: local, Text: "on the node, check the proxy or server at {server} (stunnel, efs-proxy); restore it at the same address"},
				{Text: "check from the node that {server} is reachable (ping, nc -z); restore it at the same address; the kubelet then resumes"},
			},
			"back": {
				{Variant: local, Text: "The mount goes to this node itself, where a proxy (stunnel or efs-proxy of the EFS CSI driver) or the server listens. " +
					"Check that it runs and reaches the server behind it. Restore both at the same address"},
				{Text: "Restore {protocol} server {server} at the same address. If the server is healthy, restore this node's access to it: routes, firewall, and rpc.gssd for sec=krb5"},
			},
			"lost": {
				{Variant: soft, Text: " The mount is soft: writes that have timed out are lost."},
				{Variant: hard, Text: " No data is lost then."},
				{Text: ""},
			},
		},
		Meaning: "The containers have ended, and the kubelet has to unmount the pod's volume. " +
			"To do so it asks the file system about the mount point, the server does not answer, and the kubelet's thread waits in the kernel for as long as it takes. " +
			"The kubelet logs nothing and reports itself healthy. " +
			"The mount goes to the address that the server's name had when it was mounted: a Service that is made anew, or a change in DNS, does not move it.",
		Evidence: []string{"A thread of the kubelet is in state D without moving in two readings ten seconds or more apart, " +
			"or three where the list of TCP connections shows that nothing comes back from the server, or for 30 seconds where there is no connection, which may have been refused by a server or proxy that starts again; " +
			"one that runs only to connect again counts as not moving while the client of an NFS mount counts no answer from the server (xprt in /proc/PID/mountstats). The path of its blocked system call is a volume of this pod, " +
			"and the mount table shows a network file system there. " +
			"Where the server is connected and has answered all requests, nothing is said: the thread waits for something of the node, such as a lock, or rpc.gssd. " +
			"Without the path, the kernel stack of a network file system and a single such mount of the pod, whose server has not answered everything, make it inferred, and so does a kubelet that only asks how full the volume is (statfs), of a server that can be reached."},
		Seen: []string{
			"Kubelet thread {thread} is in state {state} ({function})",
			"The volume is mounted at {mountpoint}{from}",
			"The {protocol} client of that mount shows: {silence}",
			"No process of the pod is left",
		},
		Remedy: "{back}. The kubelet then resumes on its own within a minute.{lost} " +
			"If the server is gone permanently, ask the volume's owner: what has not been written to it is lost. " +
			"Then drain the node (kubectl drain --skip-wait-for-delete-timeout=60 does not wait for this pod) and reboot it.",
		Danger: "umount -f discards the writes that have not reached the server; umount -l only hides the mount. " +
			"ls or df on the mount hangs your shell. " +
			"Restarting the kubelet leaves the thread and can hang the new kubelet. " +
			"A force delete may block the kubelet for all pods of the node at its next restart.",
		First: "{first}",
		Avoid: "ls or df on the mount (hangs your shell), umount -f (discards pending writes)",
	},
	Check: func(p *fact.View) diagnose.Result {
		t, m := fact.KubeletBusyWithVolume(p), (*evidence.Mount)(nil)
		confidence := diagnose.Proved
		if t != nil {
			m = volumeMount(p, t.Probe.VolumePath)
			if fact.OnlyCounted(p) && !fact.OutOfReach(m) {
				confidence = diagnose.Inferred
			}
		} else {
			t, m = inferBusyWithVolume(p)
			confidence = diagnose.Inferred
		}
		if t == nil || t.AwaitsScanner() || m == nil || fact.NetworkFamily(m.Type) == "" || !agrees(t, m) || fact.Answers(m) || t.Unchanged(p.Time) < patience(m) {
			return diagnose.Result{}
		}
		f := diagnose.Finding{Confidence: confidence, Objects: diagnose.Objects{Thread: diagnose.ThreadOf(t), Mount: diagnose.MountOf(p, m)}}
		if isLocal(m.Server) {
			f.Variants = append(f.Variants, local)
		}
		switch {
		case m.Soft:
			f.Variants = append(f.Variants, soft)
		case m.Type == "nfs" || m.Type == "nfs4": // which shows the option always
			f.Variants = append(f.Variants, hard)
		}
		return diagnose.Found(f)
	},
}

// local is the variant of a server that has an address of the node itself, soft that of
// a mount whose requests end with an error when they have timed out, and hard that of
// one whose requests never do (nfs(5)).
const (
	local = "Local"
	soft  = "Soft"
	hard  = "Hard"
)

// restarts is how long it may take until what listens for a server's clients is there again, as when the pod of a
// CSI driver, with its proxies, is replaced.
const restarts = 30 * time.Second

// patience returns for how long a thread must have waited for a server. One without a connection may have refused it.
func patience(m *evidence.Mount) time.Duration {
	if fact.OutOfReach(m) && m.Connection == evidence.Unconnected {
		return restarts
	}
	return fact.MountPatience(m)
}

// isLocal reports whether a server's address is the loopback of the node.
func isLocal(server string) bool {
	return server == "localhost" || server == "::1" || server == "0:0:0:0:0:0:0:1" || strings.HasPrefix(server, "127.")
}

// inferBusyWithVolume is for a blocked thread of the kubelet whose path could
// not be read: its kernel stack tells the kind of file system, and the pod has
// one such mount only whose server is not known to have answered everything. The thread may be busy with another pod, so this one has
// had the time that an unmount takes.
func inferBusyWithVolume(p *fact.View) (*evidence.Task, *evidence.Mount) {
	if p.Overdue() < fact.UnknownAfter {
		return nil, nil
	}
	for i := range p.Node.Kubelet.Blocked {
		t := &p.Node.Kubelet.Blocked[i]
		if t.Probe == nil || t.Probe.VolumePath != "" || t.Unchanged(p.Time) < fact.LeastStill {
			continue
		}
		var only *evidence.Mount
		n := 0
		for j := range p.Mounts {
			if f := fact.NetworkFamily(p.Mounts[j].Type); f != "" && f == fact.FamilyOf(t) && !fact.Answers(&p.Mounts[j]) {
				only = &p.Mounts[j]
				n++
			}
		}
		if n == 1 {
			return t, only
		}
	}
	return nil, nil
}

// volumeMount is the mount that a path of a volume lies on.
func volumeMount(p *fact.View, at string) *evidence.Mount {
	var best *evidence.Mount
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if (at == m.Point || strings.HasPrefix(at, m.Point+"/")) && (best == nil || len(m.Point) > len(best.Point)) {
			best = m
		}
	}
	return best
}

// volumeOf returns the name of the volume in a path that ends with it, or with the
// directory that a CSI driver mounts.
func volumeOf(dir string) string {
	if path.Base(dir) == "mount" {
		dir = path.Dir(dir)
	}
	return path.Base(dir)
}

// agrees reports whether what a thread waits for can be the mount that its path lies on.
// Of the path only the volume is known, and another file system may be mounted inside.
func agrees(t *evidence.Task, m *evidence.Mount) bool {
	switch f := fact.FamilyOf(t); f {
	case fact.FamilyFUSE, fact.FamilyNFS, fact.FamilyCIFS, fact.FamilyCeph:
		return fact.FamilyOfType(m.Type) == f
	}
	on := t.Probe.Mount
	return on == nil || on.Device == m.Device
}
