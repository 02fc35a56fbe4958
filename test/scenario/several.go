package scenario

import "github.com/nodeagent-io/nodeagent/test/bed"

// several lists the incidents on a node on which two containerds run, as where docker is beside K3s, or beside the
// kubelet's own: one is accused, and not the other.
func several() []bed.Scenario {
	return []bed.Scenario{descriptorsOfTwo(), descriptorsOfOther(), diskFullOfTwo(), containerdStoppedOfTwo()}
}

// The directory of a second containerd, which has no CRI plugin, as docker's has none. Its first socket is not the one that
// the kubelet speaks to.
const second = "/run/scenario-containerd"

// endSecond is a shell script that ends the second containerd. startSecond starts it after the kubelet's, so that
// that one is the oldest process of the name.
const (
	endSecond = "end KILL " + second + "/pid\n" + `[ ! -e ` + second + `/pid ] || while kill -0 $(cat ` + second + `/pid) 2>/dev/null; do sleep 0.1; done
rm -rf ` + second + "\n"
	startSecond = endSecond + `mkdir -p ` + second + `
cat >` + second + `/config.toml <<END
version = 2
root = "` + second + `/root"
state = "` + second + `/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri"]
[grpc]
  address = "` + second + `/containerd.sock"
END
setsid sh -c 'echo $$ >` + second + `/pid; exec containerd --config ` + second + `/config.toml' </dev/null >` + second + `/log 2>&1 &
for i in $(seq 60); do ! timeout 5 ctr -a ` + second + `/containerd.sock version >/dev/null 2>&1 || exit 0; sleep 0.5; done
cat ` + second + `/log
exit 1`
)

// two succeeds when both run, and the other one is the younger.
const two = `[ $(pgrep -x containerd | wc -l) -ge 2 ]
[ $(cat /proc/$(cat ` + second + `/pid)/comm) = containerd ]
[ $(pgrep -o -x containerd) != $(cat ` + second + `/pid) ]
`

func descriptorsOfTwo() bed.Scenario {
	s := descriptorsUsedUp()
	s.Name = "descriptors-used-up-of-two"
	s.Story = "of two containerds the kubelet's has as many files open as it may have, so that it cannot write down that the container has ended"
	s.Prepare = bed.OnNode(startSecond)
	s.Proof = two + s.Proof
	s.Heal = bed.OnNode(closeAll + endSecond)
	return s
}

// openAllOfSecond gives the second containerd a limit on open files below which all are open.
const openAllOfSecond = "prlimit --pid $(cat " + second + "/pid) --nofile=3:\n"

// descriptorsOfOther is innocent: the kubelet's containerd has files left, and writes down the end of the container when
// its disk has room again.
func descriptorsOfOther() bed.Scenario {
	s := diskFullOnce()
	s.Name = "descriptors-used-up-of-other"
	s.Story = "innocent: a containerd that the kubelet does not speak to has as many files open as it may have, and the disk of the " +
		"kubelet's is full for some seconds when the container ends"
	s.Prepare = bed.OnNode(startSecond)
	s.Break = inTurn(bed.OnNode(openAllOfSecond), s.Break)
	s.Proof = two + s.Proof
	s.Heal = bed.OnNode(passed + commonDisk + endSecond)
	return s
}

// diskFullOfTwo accuses the disk: a containerd that the kubelet does not speak to cannot keep the kubelet's from writing.
func diskFullOfTwo() bed.Scenario {
	s := diskFull()
	s.Name = "disk-full-of-two"
	s.Story = "the file system of the records of the kubelet's containerd is full, and a second containerd has as many files open as it may have"
	s.Prepare = bed.OnNode(startSecond)
	s.Break = inTurn(s.Break, bed.OnNode(openAllOfSecond))
	s.Proof = two + s.Proof
	s.Heal = bed.OnNode(commonDisk + endSecond)
	return s
}

func containerdStoppedOfTwo() bed.Scenario {
	s := containerdStopped()
	s.Name = "containerd-stopped-of-two"
	s.Story = "of two containerds the kubelet's is stopped and answers nobody"
	s.Family = "Stopped"
	s.Prepare = bed.OnNode(startSecond)
	s.Break = bed.OnNode("kill -STOP $(pgrep -o -x containerd)")
	s.Proof = two + `grep -q "^State:.T" /proc/$(pgrep -o -x containerd)/status`
	s.NoExec = true
	s.Heal = bed.OnNode("kill -CONT $(pgrep -o -x containerd)\n" + endSecond)
	return s
}
