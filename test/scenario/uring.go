package scenario

import (
	"github.com/nodeagent-io/nodeagent/test/bed"

	corev1 "k8s.io/api/core/v1"
)

// rings lists the incidents of programs that leave their I/O to io_uring (io_uring(7)). A
// killed process cannot end before its requests, on which threads work that are its own and
// never leave the kernel. What is waited for is a FUSE daemon in the end, so that it ends for
// certain, as with those of fuse.
func rings() []bed.Scenario {
	return []bed.Scenario{ringRead(), ringPollRead(), ringLocked(), ringSlow(), ringIdle(), ringIgnores()}
}

// withRing allows a pod's containers io_uring, which the runtime's default seccomp profile
// forbids (contrib/seccomp/seccomp_default.go in containerd). Which profile a pod has that
// names none is up to the kubelet (--seccomp-default).
func withRing(spec corev1.PodSpec) corev1.PodSpec {
	spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
	return spec
}

// ringFunctions are shell functions for scripts on the node. ringthread KIND STATE prints
// the threads of the pod that io_uring has started, wrk (workers) or sqp (those that poll),
// and that are in the state.
const ringFunctions = `
ringthread() { awk -v kind="^iou-$1-" -v state=$2 '/^Name/{is=$2~kind} /^State/{in_state=$2==state} /^Pid/ && is && in_state{print $2}' $(statuses); }
`

// hungWorker succeeds when a killed worker of io_uring waits for a FUSE daemon.
const hungWorker = ringFunctions + `worker=$(ringthread wrk D)
grep -q "^SigPnd:.*100$" /proc/$worker/status && grep -q request_wait_answer /proc/$worker/stack`

// ringRead is found by the connection's requests: a worker shows neither a system call nor
// the file. The program is ended by SIGKILL; the one of ringPollRead ends itself, and the
// kernel drops the signal (prepare_signal, kernel/signal.c).
func ringRead() bed.Scenario {
	s := onFUSE("uring-read", "a FUSE daemon does not answer a read that an io_uring worker of the program does", "uring-read", "read")
	s.Pod = withRing(s.Pod)
	s.Proof = hungWorker + " && cat $(stacks) | grep -q io_wq_put_and_exit"
	s.Says = append(s.Says, "Seen: iou-wrk-", "Seen: io_uring worker of process ", "Force delete: process victim of container main")
	return s
}

// ringPollRead ends but for the thread that polls, and the worker of that one, which hangs.
// The first tries to cancel the request without a pause (io_uring_cancel_generic, Linux 6.18),
// and so has a processor to itself where nobody else wants it.
func ringPollRead() bed.Scenario {
	s := onFUSE("uring-poll-read", "the same, and the worker is that of a thread that polls the ring", "uring-poll-read", "read")
	s.Pod = withRing(s.Pod)
	s.Proof = behindZombie + hungWorker + " && cat $(stacks) | grep -q io_sq_thread && behind_zombie D"
	s.Cause = "ThreadStuckBehindZombieLeader"
	s.Says = append(s.Says, "looks like a zombie", "Seen: iou-wrk-", "Seen: io_uring worker of process ")
	return s
}

// ringLocked is what a bug of the kernel leaves behind by which a ring's lock is not given
// back: a thread that waits for it on its way out, and nothing that can be seen to hold it.
// Such a bug cannot be had on a sound kernel. A process of the node that has taken the ring
// holds its lock instead, and sleeps in a place that nobody looks at.
func ringLocked() bed.Scenario {
	const name = "uring-locked"
	holder := "/run/scenario-" + name + ".holder"
	return bed.Scenario{
		Name:  name,
		Story: "a process ends, and the lock of its io_uring is never given back",
		Fault: bed.Fault{
			Pod:     withRing(victim(3, "uring-idle", "0")),
			Prepare: inTurn(bed.NodeTool("victim"), mountFUSE(name)),
			Break: onFirst(ready + `setsid timeout -s KILL 1h sh -c 'echo $$ >` + holder + `; exec /usr/local/bin/victim uring-lock '$p:` + directory(name) + `/read </dev/null >/dev/null 2>&1 &
for i in $(seq 60); do [ -e ` + holder + ` ] && cat /proc/$(cat ` + holder + `)/task/*/stack | grep -q request_wait_answer && exit 0; sleep 0.5; done
exit 1`),
			Proof: exiting + "exiting io_uring_del_tctx_node",
			Heal:  bed.OnNode(unmountFUSE(name) + "\nend KILL " + holder),
		},
		Want: bed.Want{
			Cause:  "StuckInExit",
			Family: "IoUring",
			Says: []string{"Probably", "Seen: io_uring_del_tctx_node", "Seen: No thread of its process still works for " +
				"io_uring", "victim", "Fix: a newer kernel than its Linux ", "Fix: UV_USE_IO_URING=0"},
		},
	}
}

// ringSlow is innocent: the worker's request takes six seconds, but it ends.
func ringSlow() bed.Scenario {
	const name = "uring-slow"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: a killed program waits for its io_uring worker, whose request takes a while",
		Fault: bed.Fault{
			Pod:     withRing(onDisk(name, 3, "uring-write", "/data/slow")),
			Prepare: mountFUSE(name),
		},
	}
}

// ringIdle is innocent: its threads wait for work.
func ringIdle() bed.Scenario {
	return bed.Scenario{
		Name:  "uring-idle",
		Story: "innocent: a program with idle io_uring threads handles SIGTERM and takes its time",
		Fault: bed.Fault{
			Pod:   withRing(victim(60, "uring-idle", "20")),
			Break: onFirst(ready),
			Proof: ringFunctions + `[ -n "$(ringthread wrk S)" ] && [ -n "$(ringthread sqp S)" ]`,
		},
	}
}

// ringIgnores has the same threads, which block all signals. They are not at fault.
func ringIgnores() bed.Scenario {
	return bed.Scenario{
		Name:  "uring-ignores-term",
		Story: "a program with idle io_uring threads ignores SIGTERM",
		Fault: bed.Fault{
			Pod:   withRing(victim(40, "uring-ignore", "100000")),
			Break: bed.OnNode(knownLong),
			Proof: signalFunctions + ringFunctions + `has SigIgn 15 $p && [ -n "$(ringthread wrk S)" ] && [ -n "$(ringthread sqp S)" ]`,
		},
		Want: bed.Want{
			Cause: "StopSignalIgnored",
			Says:  []string{"container main", "victim", "SIGTERM"},
			When:  bed.InGrace,
		},
	}
}
