package scenario

// orphanUID is that of a pod that the API server does not have.
const orphanUID = "5ca1ab1e-0000-4000-8000-00000000dead"

// orphan returns the directory of such a pod's CSI volume, below which test/fusehang is mounted.
func orphan() string {
	return "/var/lib/kubelet/pods/" + orphanUID + "/volumes/kubernetes.io~csi/pv-of-the-dead"
}

// orphanDaemon has the PID of the daemon.
const orphanDaemon = "/run/scenario-orphan.daemon"

// mountOrphan returns a script that mounts there and stops the daemon, as of a driver that does
// not answer any more, and waits until the kubelet has found the directory.
func mountOrphan() string {
	return unmountOrphan() + `
mkdir -p ` + orphan() + `/mount
setsid timeout -s KILL 1h sh -c 'echo $$ >` + orphanDaemon + `; exec /usr/local/bin/fusehang -ask ` + orphan() + `/mount' </dev/null >/dev/null 2>&1 &
for i in $(seq 60); do grep -q " ` + orphan() + `/mount .* fuse.hang " /proc/self/mountinfo && break; sleep 0.5; done
kill -STOP $(cat ` + orphanDaemon + `)
for i in $(seq 60); do (` + kubeletWaits + `) && break; sleep 0.5; done`
}

// unmountOrphan returns a script that aborts the connection and removes what is there, as the
// kubelet may do meanwhile.
func unmountOrphan() string {
	return `connection=$(awk '$5 == "` + orphan() + `/mount" {sub(".*:", "", $3); print $3}' /proc/self/mountinfo)
[ -z "$connection" ] || echo 1 >/sys/fs/fuse/connections/$connection/abort
! grep -q " ` + orphan() + `/mount " /proc/self/mountinfo || umount -l ` + orphan() + `/mount
end KILL ` + orphanDaemon + `
rm -f ` + orphanDaemon + `
rm -df ` + orphan() + `/mount ` + orphan()
}

// kubeletWaits succeeds when a thread of the kubelet waits for a FUSE daemon.
const kubeletWaits = `for task in /proc/$(pgrep -o -x kubelet)/task/*; do
  case $(wchan ${task##*/}) in request_wait_answer*) exit 0 ;; esac
done
exit 1`

func syncLoopStalled() Scenario {
	return Scenario{
		Name:    "sync-loop-stalled",
		Story:   "the kubelet's main loop hangs on the CSI volume of a pod that is gone, of which the FUSE daemon does not answer",
		Pod:     victim(3, "drain", "0"),
		Prepare: nodeTool("fusehang"),
		Break:   onNode(mountOrphan()),
		Proof:   kubeletWaits,
		Cause:   "KubeletSyncLoopStalled",
		Family:  "FUSE",
		Says:    []string{"the kubelet does nothing about this pod", "not in the API any more", "fuse.hang", "/sys/fs/fuse/connections/"},
		Heal:    onNode(unmountOrphan()),
	}
}

// syncLoopBriefly is innocent: the requests fail half a minute later.
func syncLoopBriefly() Scenario {
	return Scenario{
		Name:    "sync-loop-slow",
		Story:   "innocent: the kubelet's main loop hangs for half a minute on the CSI volume of a pod that is gone",
		Pod:     victim(3, "drain", "0"),
		Prepare: nodeTool("fusehang"),
		Break:   onNode(mountOrphan() + "\n(sleep 25\n" + unmountOrphan() + ") </dev/null >/dev/null 2>&1 &"),
		Proof:   kubeletWaits,
	}
}
