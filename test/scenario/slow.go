package scenario

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// slow lists the incidents in which the first process does its part, and what it waits for does not end: a process
// that it has started, or the other end of a connection; and innocent ones that look like them.
func slow() []bed.Scenario {
	return []bed.Scenario{
		slowChildIgnores(), slowChildDrains(), slowChildEnds(), slowSupervisor(), slowShellTrapChild(), slowShellTrapEnds(),
		slowNetworkCut(), slowNetworkCutEnds(), slowNetworkHealthy(),
	}
}

// runs is a Python program that runs others, passes SIGTERM on to all of them, and ends when they have. With wait it
// sleeps until one has ended; else it looks for that now and then, as supervisors do.
func runs(wait bool, scripts ...string) string {
	program := []string{"import os, signal, time", "children = []"}
	for _, script := range scripts {
		program = append(program, "children.append(os.spawnlp(os.P_NOWAIT, 'bash', 'bash', '-c', '''"+script+"'''))")
	}
	program = append(program,
		"def stop(*_):",
		"    for pid in children: os.kill(pid, signal.SIGTERM)",
		"signal.signal(signal.SIGTERM, stop)",
		"while children:")
	if wait {
		return strings.Join(append(program, "    children.remove(os.waitpid(children[0], 0)[0])"), "\n")
	}
	return strings.Join(append(program,
		"    for pid in list(children):",
		"        if os.waitpid(pid, os.WNOHANG)[0]: children.remove(pid)",
		"    time.sleep(1)"), "\n")
}

// What a process that is run does with SIGTERM: it ignores it, or has a handler and takes long, or a while.
const (
	ignoring  = `trap "" TERM; while :; do sleep 1000; done`
	draining  = `trap ": >/draining" TERM; while :; do sleep 1000 & wait $!; done`
	shortTime = `trap "sleep 15; exit 0" TERM; while :; do sleep 1000 & wait $!; done`
	promptly  = `while :; do sleep 1000; done`
	// ignoringDash does so in a program that it is told by.
	ignoringDash = `trap "" TERM; exec dash -c "while :; do sleep 1000; done"`
)

// childHandles and childIgnores wait until the first process and its oldest child do that with SIGTERM.
const (
	childHandles = handles + "until c=$(child $p) && has SigCgt 15 $c; do sleep 1; done\n"
	childIgnores = handles + "until c=$(child $p) && has SigIgn 15 $c; do sleep 1; done\n"
)

func slowChildIgnores() bed.Scenario {
	return bed.Scenario{
		Name:  "slow-child-ignores",
		Story: "the first process passes SIGTERM on to the program that it waits for, which ignores it",
		Fault: bed.Fault{
			Pod:   python(60, runs(true, ignoring)),
			Break: onFirst(childIgnores + known),
			Proof: signalFunctions + "has SigCgt 15 $p && has SigIgn 15 $(child $p)",
		},
		Want: bed.Want{
			Cause: "SlowShutdown",
			Says:  []string{"container main", "program \"python3\" handled SIGTERM", "It was waiting for bash", "which was set to ignore SIGTERM", "let bash handle SIGTERM"},
			When:  bed.WhenGone,
		},
	}
}

func slowChildDrains() bed.Scenario {
	return bed.Scenario{
		Name:  "slow-child-drains",
		Story: "the first process passes SIGTERM on to the program that it runs, which handles it and takes longer than the grace period",
		Fault: bed.Fault{
			Pod:   python(60, runs(false, draining)),
			Break: onFirst(childHandles + known),
			Proof: signalFunctions + "[ -e /proc/$p/root/draining ] && has SigCgt 15 $(child $p)",
		},
		Want: bed.Want{
			Cause: "SlowShutdown",
			Says: []string{
				"container main", "program \"python3\" handled SIGTERM", "Its subprocess bash had a handler for SIGTERM and did not exit",
				"if that is bash, let bash log if and when SIGTERM arrives",
			},
			When: bed.WhenGone,
		},
	}
}

// slowChildEnds is innocent: what it runs ends in time.
func slowChildEnds() bed.Scenario {
	return bed.Scenario{
		Name:  "slow-child-ends",
		Story: "innocent: the first process passes SIGTERM on to the program that it waits for, which takes a while to end",
		Fault: bed.Fault{
			Pod:   python(60, runs(true, shortTime)),
			Break: onFirst(childHandles + known),
		},
	}
}

func slowSupervisor() bed.Scenario {
	return bed.Scenario{
		Name:  "slow-supervisor",
		Story: "the first process runs two programs, of which one ends by SIGTERM and the other one ignores it",
		Fault: bed.Fault{
			Pod: python(60, runs(false, promptly, ignoringDash)),
			Break: onFirst(handles + `
until c=$(awk '$1=="Name:"{n=$2} $1=="Pid:"{i=$2} $1=="SigIgn:" && n=="dash"{print i}' $(statuses)) && [ -n "$c" ] && has SigIgn 15 $c; do sleep 1; done
` + known),
			Proof: signalFunctions + `has SigCgt 15 $p && [ "$(cat /proc/$(child $p)/comm)" = dash ]`,
		},
		Want: bed.Want{
			Cause: "SlowShutdown",
			Says:  []string{"container main", "program \"python3\" handled SIGTERM", "Its subprocess dash was set to ignore SIGTERM", "if that is dash, let dash handle SIGTERM"},
			When:  bed.WhenGone,
		},
	}
}

// slowShellTrapChild has a program in the foreground that sets up handlers as it does in the background, so that nothing
// can be said before it is over.
func slowShellTrapChild() bed.Scenario {
	return bed.Scenario{
		Name:  "slow-shell-trap-child",
		Story: "bash has a trap and a program in its foreground that handles SIGINT and SIGTERM: the trap never runs",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, "bash", "-c", "trap ': >/trapped; exit 0' TERM; python3 -c \""+drains+"\"; true"),
			Break: onFirst(childHandles + known),
			Proof: signalFunctions + "sleep 5; has SigCgt 15 $p && has SigCgt 15 $(child $p) && [ ! -e /proc/$p/root/trapped ] && [ -e /proc/$p/root/bin ]",
		},
		Want: bed.Want{
			Cause:  "SlowShutdown",
			Family: "Trap",
			Says:   []string{"container main", `program "bash" received SIGTERM`, "Its child python3 did not exit: if it ran in the foreground, the shell never ran its trap", "wait $pid"},
			When:   bed.WhenGone,
		},
	}
}

// slowShellTrapEnds is innocent: its trap passes the signal on.
func slowShellTrapEnds() bed.Scenario {
	return bed.Scenario{
		Name:  "slow-shell-trap-ends",
		Story: "innocent: bash has a trap that ends the program in its background, which takes a while",
		Fault: bed.Fault{
			Pod:   pod(60, bed.ProgramsImage, "bash", "-c", "python3 -c \""+drains+"\" & trap 'kill -TERM $!; wait $!; exit 0' TERM; wait $!"),
			Break: onFirst(childHandles + known),
		},
	}
}

// afterDeletion is a step that does another one as soon as the pod is being deleted. What it has done is
// seen by the scenario's proof.
func afterDeletion(do bed.Step) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		ctx = context.WithoutCancel(ctx)
		go func() {
			err := n.Await(ctx, "the deletion of "+p.Name, func() (bool, string) {
				now, err := n.Seen(p.Namespace, p.Name)
				if err != nil {
					return apierrors.IsNotFound(err), err.Error()
				}
				return now.UID != p.UID || now.DeletionTimestamp != nil, "not yet"
			})
			if err == nil {
				_ = do(ctx, n, p)
			}
		}()
		return nil
	}
}

// talks is a pod whose program has two connections to a port of its node, and when it is asked to end sends something
// over both, some seconds later, and reads the answer as the given command of bash does. Its grace period is long: for how
// long the kernel sends again does not follow the node's pace.
func talks(port, read string) corev1.PodSpec {
	spec := pod(120, bed.ProgramsImage, "bash", "-c", "until exec 3<>/dev/tcp/$NODE/"+port+" 4<>/dev/tcp/$NODE/"+port+"; do sleep 1; done\n"+
		"trap 'sleep 6; echo bye >&3; echo bye >&4; "+read+" <&3; exit 0' TERM\nwhile :; do sleep 1 & wait $!; done")
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}}}
	return spec
}

// served starts a server on the node, and unserved ends it. It answers as the given address of socat does.
func served(port, as string) bed.Step {
	return bed.OnNode("setsid socat TCP-LISTEN:" + port + ",fork,reuseaddr " + as + " </dev/null >/dev/null 2>&1 &\necho $! >/run/scenario-$NAME.pid")
}

const unserved = "[ ! -e /run/scenario-$NAME.pid ] || { p=$(cat /run/scenario-$NAME.pid); kill -TERM -$p || [ ! -e /proc/$p ]; }\n"

// cut is a step in which a firewall of the node drops what the pod sends it, and mended undoes that.
func cut(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	return bed.OnNode("iptables -w -I INPUT -s "+p.Status.PodIP+" -j DROP")(ctx, n, p)
}

func mended(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	return bed.OnNode("rule='INPUT -s "+p.Status.PodIP+" -j DROP'\n! iptables -w -C $rule 2>/dev/null || iptables -w -D $rule\n"+unserved)(ctx, n, p)
}

// resends is the proof that a connection of the pod is established and sends the same again.
const resends = signalFunctions + `awk '$4=="01" && $6~/^01:/ && $7!="00000000"{found=1} END{exit !found}' /proc/$p/net/tcp`

func slowNetworkCut() bed.Scenario {
	const port = "17801"
	return bed.Scenario{
		Name:  "slow-network-cut",
		Story: "the program has to tell a server that it ends, and the pod's network is taken away when it is deleted",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod:     talks(port, "read -r answer"),
			Prepare: served(port, "EXEC:cat"),
			Break:   inTurn(onFirst(handles+known), afterDeletion(cut)),
			Proof:   resends,
			Heal:    mended,
		},
		Want: bed.Want{
			Cause:  "SlowShutdown",
			Family: "Network",
			Says: []string{"container main", `program "bash" handled SIGTERM`, "data on 2 TCP connections of the pod was not acknowledged",
				"the pod's network"},
			When: bed.WhenGone,
		},
	}
}

// slowNetworkCutEnds is innocent: its program does not wait for long.
func slowNetworkCutEnds() bed.Scenario {
	const port = "17802"
	s := slowNetworkCut()
	s.Name = "slow-network-cut-ends"
	s.Story = "innocent: the pod's network is taken away when it is deleted, and the program gives up on the answer after a while"
	s.Pod, s.Prepare, s.Proof, s.Want = talks(port, "read -r -t 15 answer"), served(port, "EXEC:cat"), "", bed.Want{}
	return s
}

// slowNetworkHealthy is slow, and its network is there: the server takes what it is sent and does not answer.
func slowNetworkHealthy() bed.Scenario {
	const port = "17803"
	return bed.Scenario{
		Name:  "slow-network-healthy",
		Story: "the program has to tell a server that it ends, which acknowledges that and never answers",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod:     talks(port, "read -r answer"),
			Prepare: served(port, "EXEC:'sleep 100000'"),
			Break:   onFirst(handles + known),
			Proof:   signalFunctions + "sleep 8; has SigCgt 15 $p && ! " + strings.TrimPrefix(resends, signalFunctions),
			Heal:    bed.OnNode(unserved),
		},
		Want: bed.Want{
			Cause: "SlowShutdown",
			Says:  []string{"container main", `program "bash" handled SIGTERM`, "its main thread was last seen in read. ", "let bash log its shutdown steps"},
			When:  bed.WhenGone,
		},
	}
}
