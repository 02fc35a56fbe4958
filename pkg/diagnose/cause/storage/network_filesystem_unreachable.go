package storage

import (
	"path"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// NetworkFilesystemUnreachable is a kubelet that hangs on a volume whose server does not
// respond, when no process of the pod is left.
var NetworkFilesystemUnreachable = &diagnose.Rule{
	Cause:  "NetworkFilesystemUnreachable",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Kubelet},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "the kubelet is blocked on a volume whose server does not respond",
		Who:     diagnose.ByStorage,
		Message: "a kubelet thread is blocked on {which}: the {protocol} server {who} does not respond",
		Phrases: map[string][]diagnose.Choice{
			"which": {{Text: "volume {volume}"}, {Text: "a volume of the pod"}},
			"who":   {{Variant: local, Text: "behind {server} (this node)"}, {Text: "{server}"}},
			"from":  {{Text: " from {source}"}, {Text: ""}},
			"first": {
				{Variant: local, Text: "on the node, as root: ss -tlnp. If no proxy or server listens at {server} or 0.0.0.0, start it again. " +
					"If one does, ask the server's owner"},
				{Text: "on the node: nc -zvw5 to its port (NFS 2049, SMB 445, Ceph 6789). If it fails, restore the server or route (same address). " +
					"If not, ask the server's owner"},
			},
			"back": {
				{Variant: local, Text: "The mount goes to this node itself, where a proxy (stunnel or efs-proxy of the EFS CSI driver) or the server listens. " +
					"Check that it runs and reaches the server behind it. Restore both at the same address"},
				{Text: "Restore {protocol} server {server} at the same address. If the server is healthy, restore this node's access to it: " +
					"routes, firewall, and rpc.gssd for sec=krb5"},
			},
			"lost": {
				{Variant: soft, Text: " The mount is soft: writes that have timed out are lost."},
				{Variant: hard, Text: " No data is lost then."},
				{Text: ""},
			},
		},
		Meaning: "The containers have exited, and the kubelet has to unmount the pod's volume. To do so, it queries the file system about the mount " +
			"point. The server does not respond, and the kubelet's thread waits in the kernel without a time limit. The kubelet logs nothing " +
			"and reports itself healthy. The mount keeps the address that the server's name had when it was mounted. A Service that is created " +
			"again, or a change in DNS, does not move it.",
		Evidence: []string{
			"A thread of the kubelet is in state D, and the path of its blocked system call is a volume of this pod.",
			"The mount table shows a network file system there.",
			"The thread has not moved in two readings ten seconds or more apart. Three seconds are enough if the list of TCP connections shows " +
				"that nothing comes back from the server.",
			"If there is no connection, it takes 30 seconds: a server or proxy that is starting again may have refused it.",
			"A thread that runs only to connect again counts as not moving while the client of an NFS mount counts no response from the server " +
				"(xprt in /proc/PID/mountstats).",
			"Inferred if the path is not known. The thread's kernel stack is then that of a network file system. The pod has a single such " +
				"mount whose server has not responded to everything.",
			"Also inferred if the kubelet only checks how full the volume is (statfs), and the server can be reached.",
			"Not reported if the server is connected and has responded to all requests. The thread then waits for something on the node, such " +
				"as a lock or rpc.gssd.",
		},
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
		Avoid: "ls or df there (hang), umount -f (loses writes)",
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

// restarts is how long a server or its proxy may take to listen again, for example when the pod of a CSI driver, with
// its proxies, is replaced.
const restarts = 30 * time.Second

// patience returns how long a thread must have waited for a server. A server without a connection may have refused it.
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

// inferBusyWithVolume is for a blocked thread of the kubelet whose path could not be read. Its kernel stack shows the
// kind of file system, and the pod has only one such mount whose server is not known to have answered everything. The
// thread may be busy with another pod, so this one must have had the time that an unmount takes.
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

// agrees reports whether a thread can be waiting for the mount that its path lies on. Only the
// volume is known of the path, and another file system may be mounted inside.
func agrees(t *evidence.Task, m *evidence.Mount) bool {
	switch f := fact.FamilyOf(t); f {
	case fact.FamilyFUSE, fact.FamilyNFS, fact.FamilyCIFS, fact.FamilyCeph:
		return fact.FamilyOfType(m.Type) == f
	}
	on := t.Probe.Mount
	return on == nil || on.Device == m.Device
}
