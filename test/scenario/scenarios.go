// Package scenario holds real incidents, as data: a pod, how it is broken for real on
// the node, what the agent has to say about it, and how it is healed. Package bed runs
// them.
package scenario

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// All lists the incidents that can run side by side on one node.
func All() []bed.Scenario {
	return tiered(slices.Concat([]bed.Scenario{
		leaderExited(), finalizer(), finalizerRemoved(),
	}, storage(), signals(), slow(), hooks(), kernel(), network(), runtimes(), held(), commands(), order(), forced(), api(), objects(),
		sandboxes(), leftovers(), claims(), rings(), gvisors(), images(), advice(), limits()))
}

// Named returns the incidents whose names match one of the patterns.
func Named(patterns string) ([]bed.Scenario, error) {
	all := append(All(), Alone()...)
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	wanted, err := Matching(patterns, names)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s bed.Scenario) bool { return !wanted[s.Name] }), nil
}

// Matching returns those of the names that match one of the patterns, which are
// as of a shell and separated by spaces.
func Matching(patterns string, names []string) (map[string]bool, error) {
	out := map[string]bool{}
	for pattern := range strings.FieldsSeq(patterns) {
		found := false
		for _, name := range names {
			match, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("name %q: %w", pattern, err)
			}
			if match {
				out[name], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("no scenario is called %q; the names stand in test/scenario, and in the table of verdicts", pattern)
		}
	}
	return out, nil
}

func finalizer() bed.Scenario {
	return bed.Scenario{
		Name:  "finalizer",
		Story: "a controller does not remove its finalizer",
		Fault: bed.Fault{
			Pod:        victim(5, "drain", "0"),
			Finalizers: []string{"example.com/block"},
			Heal:       removeFinalizers,
		},
		Want: bed.Want{
			Cause: "FinalizersPending",
			Says:  []string{"example.com/block", "Nothing of the pod is left", "Seen: The client that set it calls itself \"", "Timeline: node done by "},
		},
	}
}

func removeFinalizers(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	_, err := n.API.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
	return err
}

// finalizerRemoved is innocent: the kubelet's work ends about when the deadline is
// over, and the controller takes some seconds after that, as it may.
func finalizerRemoved() bed.Scenario {
	s := bed.Scenario{
		Name:  "finalizer-removed",
		Story: "innocent: a controller removes its finalizer some seconds after nothing else is left",
		Fault: bed.Fault{
			Pod:        victim(1, "drain", "0"),
			Finalizers: []string{"example.com/later"},
			Proof:      `[ -z "$(tasks)" ]`,
		},
	}
	s.Break = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		ctx = context.WithoutCancel(ctx)
		go func() {
			if finallyDeleted(ctx, n, p) == nil {
				time.Sleep(10 * time.Second)
			}
			_ = removeFinalizers(ctx, n, p) // else the test says that the pod stays
		}()
		return nil
	}
	return s
}

// finallyDeleted waits until the kubelet has asked for the final delete of a pod, with a grace period of 0.
func finallyDeleted(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	return n.Await(ctx, "the final delete of "+p.Name, func() (bool, string) {
		now, err := n.Seen(p.Namespace, p.Name)
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		g := now.DeletionGracePeriodSeconds
		return now.UID != p.UID || g != nil && *g == 0, "not yet"
	})
}

func leaderExited() bed.Scenario {
	const leader = `leader=$(awk '/^Name/{c=$2} /^Tgid/{g=$2} /^Threads/ && c=="victim" && $2>1{print g; exit}' $(statuses))
[ -n "$leader" ]
`
	return bed.Scenario{
		Name:  "leader-exited",
		Story: "the first thread has ended by itself, so that runc takes the container for stopped and never kills it",
		Place: bed.Place{
			// With runc 1.4 as with 1.1.
			Everywhere: true,
		},
		Fault: bed.Fault{
			Pod: victim(3, "leader-exits", "1"),
			Break: bed.OnNode("for i in $(seq 60); do\n  sleep 0.5\n  (" + leader + `grep -q "^State:.Z" /proc/$leader/status) && exit 0
done
exit 1`),
			Proof: leader + `grep -q "^State:.Z" /proc/$leader/status && ! grep -q "^SigPnd:.*100$" /proc/$leader/task/*/status`,
			Heal:  bed.OnNode(leader + "kill -KILL $leader"),
		},
		Want: bed.Want{
			Cause: "ZombieLeaderNotKilled",
			Says:  []string{"container main", "victim", "SIGKILL", "Fix: kill -KILL"},
		},
	}
}

func shimStopped() bed.Scenario {
	const find = `shim=$(for p in $(awk '/^PPid/{print $2}' $(statuses) 2>/dev/null); do
  read -r comm </proc/$p/comm || continue
  [ "$comm" != containerd-shim ] || { echo $p; break; }
done)
[ -n "$shim" ]
`
	return bed.Scenario{
		Name:  "shim-stopped",
		Story: "the pod's shim is stopped and answers nobody",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode(find + "kill -STOP $shim"),
			Proof: find + `grep -q "^State:.T" /proc/$shim/status`,
			Heal:  bed.OnNode(find + "kill -CONT $shim"),
		},
		Want: bed.Want{
			Cause: "ShimHung",
			Says:  []string{"shim", "paused (SIGSTOP", "Fix: kill -CONT"},
		},
	}
}

// containerdStopped stops the containerd of the whole node.
func containerdStopped() bed.Scenario {
	return bed.Scenario{
		Name:  "containerd-stopped",
		Story: "containerd is stopped and answers nobody",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode("kill -STOP $(pidof containerd)"),
			Proof: `grep -q "^State:.T" /proc/$(pidof containerd)/status`,
			Heal:  bed.OnNode("kill -CONT $(pidof containerd)"),
		},
		Want: bed.Want{
			Cause: "ContainerdHung",
			Says:  []string{"containerd (PID", "paused (SIGSTOP", "Fix: kill -CONT"},
		},
	}
}

// Another is a stopped shim under another name, for tests that need an incident
// and not a special one.
func Another(name string) bed.Scenario {
	s := shimStopped()
	s.Name = name
	s.Says = nil
	return s
}

// Finished is a pod of which only a finalizer is left, under another name: one
// reading shows all about it.
func Finished(name string) bed.Scenario {
	s := finalizer()
	s.Name = name
	return s
}

// ThreeStuck are pods that are stuck, each for another reason.
func ThreeStuck() []bed.Scenario {
	program := stopped()
	program.Name = "deleted-stopped"
	return []bed.Scenario{Finished("deleted-finished"), Another("deleted-shim-stopped"), program}
}

// OfLayers are pods that are stuck in five layers: in the storage, the runtime, the kernel, the API and the kubelet. That they are takes
// two readings, or more, to know. A start of containerd ends the last two of them, and one of the kubelet the first.
func OfLayers() []bed.Scenario {
	all := []bed.Scenario{volumeBusy(), rootfsBusy(), mirrorDeleted(), zombieTracer(), postStartHangs()}
	for i, layer := range []string{"storage", "runtime", "api", "kernel", "kubelet"} {
		all[i].Name = "restart-" + layer
	}
	return all
}

// OfVolumes are incidents of which the kubelet's directory tells: one whose volume it shows to be left, and one of which it shows that nothing is.
func OfVolumes() []bed.Scenario {
	left := subPathLeft()
	left.Name = "volumes-sub-path-left"
	return []bed.Scenario{left, Finished("volumes-finished")}
}

// OfPlaces are incidents of which an agent knows that has found the kubelet's directory and containerd's socket.
func OfPlaces() []bed.Scenario {
	left := subPathLeft()
	left.Name = "places-sub-path-left"
	return []bed.Scenario{left, Another("places-stuck")}
}

// Blind is one on a node of which an agent has found neither.
func Blind() bed.Scenario {
	s := finalizer()
	s.Name = "places-unknown"
	s.Cause, s.Says = "Unknown", []string{"has not found containerd's socket on this node", "has not found the kubelet's directory on this node"}
	return s
}

// Foreground is a pod that an object holds which depends on it, under another name.
func Foreground(name string) bed.Scenario {
	s := foreground()
	s.Name = name
	return s
}

// Sleeper is a pod whose program is killed at the deadline.
func Sleeper(name string, grace int64) bed.Scenario {
	return bed.Scenario{Name: name, Fault: bed.Fault{Pod: sleeper(grace)}}
}

// Innocent is a pod that ends in time, under another name.
func Innocent(name string) bed.Scenario {
	s := handlesTERM()
	s.Name = name
	return s
}

// Frozen is the pod on a frozen file system, for tests that need a cause that two
// readings prove.
func Frozen() bed.Scenario {
	s := frozenFilesystem()
	s.Needs = []bed.Need{bed.Hang}
	return s
}

// SameName is a stuck pod, and Again an innocent one of the same name.
func SameName() bed.Scenario { return Another("same-name") }

// Again is the innocent pod that takes the name of SameName.
func Again() bed.Scenario { return Innocent("same-name") }

// OfCapabilities are incidents whose evidence needs the agent's capabilities: a thread that hangs in the kernel, a process of another user
// than root, and such a process that holds a volume.
func OfCapabilities() []bed.Scenario {
	hangs := onFUSE("capabilities-hangs", "a FUSE daemon does not answer a read", "read", "read")
	hangs.Everywhere = true
	nobody := sleeper(600)
	nobody.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(65534))}
	runs := bed.Scenario{
		Name: "capabilities-runs", Story: "a process of another user than root does not react to its stop signal",
		Fault: bed.Fault{Pod: nobody, Break: onFirst("until p=$(first); do sleep 1; done"), Heal: onFirst("[ -z \"$p\" ] || kill -9 $p")},
	}
	held := volumeBusyByFile()
	held.Name, held.Story = "capabilities-held", "a process of another user than root has a file of the pod's volume open"
	held.Break = bed.OnNode("exec 9>" + scratch + "/log\n" + background("setpriv --reuid=65534 --clear-groups sleep 100000") + "\nexec 9>&-")
	return []bed.Scenario{hangs, runs, held}
}
