package storage

import (
	"path"
	"slices"
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
	By: diagnose.Ways{
		diagnose.By[*evidence.Task]{
			Title: "If it is known on which volume the kubelet's thread is blocked",
			From:  []evidence.Source{evidence.Kubelet},
			Of:    kubeletBlocked,
			Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
				{Says: "The thread is one of the kubelet's, in state D."},
			}, blockedOnVolume, []diagnose.Fact[*evidence.Task]{
				{Says: "The mount table shows a network file system there: NFS, SMB or Ceph.",
					Is: diagnose.If(isOnNetwork), From: []evidence.Source{evidence.Mounts}},
				{Says: "The thread waits for this file system, not for another one that is mounted inside.",
					Is: diagnose.If(waitsForVolume), From: []evidence.Source{evidence.Mounts}},
				{
					Says: "The server is not connected, or has not responded to all requests. " +
						"Otherwise, the thread waits for something on the node, such as a lock or rpc.gssd.",
					Is: diagnose.If(lacksResponse), From: []evidence.Source{evidence.Mounts},
				},
			}, hangsOnServer, []diagnose.Fact[*evidence.Task]{
				{Says: "Inferred if the kubelet only checks how full the volume is (statfs), and the server can be reached."},
			}),
			Tell: diagnose.Each(tellUnreachable),
		},
		diagnose.By[*evidence.Task]{
			Title: "If that is not known",
			From:  []evidence.Source{evidence.Kubelet},
			Of:    kubeletBlocked,
			Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
				{Says: "No thread of the kubelet is known to be blocked on a volume of this pod.", Pod: diagnose.IfPod(noneIsInVolume)},
				{Says: "The path of the blocked system call of the kubelet's thread (state D) is not known.", Is: diagnose.If(hasNoPath)},
				awaitsNoListener,
				{
					Says: "The thread's kernel stack is that of a network file system. The pod has a single such mount whose server is not connected, " +
						"or has not responded to everything.",
					Is: diagnose.If(isOnOnlyMount), From: []evidence.Source{evidence.Mounts},
				},
				{Says: "The pod has been past its deadline for one minute. Before that, the thread may be busy with another pod.", Pod: hadTimeToUnmount},
			}, hangsOnServer, []diagnose.Fact[*evidence.Task]{{Says: "Inferred, because the path is not known."}}),
			Tell: diagnose.First(tellUnreachable),
		},
	},
}

// hangsOnServer are the facts about how long a thread must have waited for a server.
var hangsOnServer = []diagnose.Fact[*evidence.Task]{
	{
		Says: "The thread has not moved in two readings ten seconds or more apart. Three seconds are enough if the list of TCP connections shows " +
			"that nothing comes back from the server.",
		Is: hasWaitedForServer, From: []evidence.Source{evidence.Mounts},
	},
	{Says: "If there is no connection, it takes 30 seconds: a server or proxy that is starting again may have refused it."},
	{Says: "A thread that runs only to connect again counts as not moving while the client of an NFS mount counts no response from the server " +
		"(xprt in /proc/PID/mountstats)."},
}

func isOnNetwork(p *fact.View, t *evidence.Task) bool {
	m := volumeMount(p, volumePath(t))
	return m != nil && fact.NetworkFamily(m.Type) != ""
}

func lacksResponse(p *fact.View, t *evidence.Task) bool { return !fact.Answers(awaitedMount(p, t)) }

func noneIsInVolume(p *fact.View) bool { return fact.KubeletBusyWithVolume(p) == nil }

func hasNoPath(_ *fact.View, t *evidence.Task) bool {
	return t.Probe != nil && t.Probe.VolumePath == ""
}

func isOnOnlyMount(p *fact.View, t *evidence.Task) bool { return awaitedMount(p, t) != nil }

// hadTimeToUnmount answers whether the pod has had the time that an unmount takes: a thread whose path is not known may be busy with another pod.
func hadTimeToUnmount(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.Deadline, fact.UnknownAfter, diagnose.Slow)
}

// hasWaitedForServer answers whether a thread has waited for as long as a server may take. One without a connection may have refused it.
func hasWaitedForServer(p *fact.View, t *evidence.Task) diagnose.Holding {
	m := awaitedMount(p, t)
	if fact.OutOfReach(m) && m.Connection == evidence.Unconnected {
		return diagnose.Still(p, t, restarts)
	}
	return diagnose.Still(p, t, fact.MountPatience(m))
}

// awaitedMount returns the mount that a blocked thread of the kubelet waits for. Where its path could not be read, its kernel stack shows the kind
// of file system: it is the only such mount of the pod whose server is not known to have answered everything, nil when there is none, or several.
func awaitedMount(p *fact.View, t *evidence.Task) (only *evidence.Mount) {
	if at := volumePath(t); at != "" {
		return volumeMount(p, at)
	}
	for i := range p.Mounts {
		if f := fact.NetworkFamily(p.Mounts[i].Type); f == "" || f != fact.FamilyOf(t) || fact.Answers(&p.Mounts[i]) {
			continue
		}
		if only != nil {
			return nil
		}
		only = &p.Mounts[i]
	}
	return only
}

func tellUnreachable(p *fact.View, t *evidence.Task) diagnose.Finding {
	m := awaitedMount(p, t)
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Thread: diagnose.ThreadOf(t), Mount: diagnose.MountOf(p, m)}}
	if volumePath(t) == "" || fact.OnlyCounted(p) && !fact.OutOfReach(m) {
		f.Confidence = diagnose.Inferred
	}
	if isLocal(m.Server) {
		f.Variants = append(f.Variants, local)
	}
	switch {
	case m.Soft:
		f.Variants = append(f.Variants, soft)
	case m.Type == "nfs" || m.Type == "nfs4": // which shows the option always
		f.Variants = append(f.Variants, hard)
	}
	return f
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

// isLocal reports whether a server's address is the loopback of the node.
func isLocal(server string) bool {
	return server == "localhost" || server == "::1" || server == "0:0:0:0:0:0:0:1" || strings.HasPrefix(server, "127.")
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
