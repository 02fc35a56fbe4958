package scenario

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// network lists the incidents in which the pod's network is not taken down, and innocent
// ones that look like them.
func network() []bed.Scenario {
	all := []bed.Scenario{cniFails(), cniTimesOut(), cniFailsBefore(), cniHangs(), cniScanned(), cniSlow(), cniFailsOnce(), cniAddHangs(),
		cniAddAgainHangs(), cniAddSlow()}
	for i := range all {
		all[i] = withPlugin(all[i])
	}
	return all
}

// networkOfNode lists those that break the network of the whole node.
func networkOfNode() []bed.Scenario {
	return []bed.Scenario{cniMissing(), cniUninitialized()}
}

// The plugin of the incidents is the last one of the node's network. It passes on what
// the others did, and does for a pod's deletion what a file in this directory says that
// has the pod's name, and for its start what NAME-add says.
const (
	pluginName      = "scenario-plugin"
	pluginDirectory = "/run/scenario-cni"
)

const pluginScript = `#!/bin/sh
name=${CNI_ARGS##*K8S_POD_NAME=}
name=${name%%;*}
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}' ;;
ADD)
  [ ! -e ` + pluginDirectory + `/$name-add ] || . ` + pluginDirectory + `/$name-add
  sed 's/.*"prevResult"://; s/,"type":"` + pluginName + `"}$//' ;;
DEL) [ ! -e ` + pluginDirectory + `/$name ] || . ` + pluginDirectory + `/$name ;;
esac
`

// pluginFails is what a plugin prints of which the daemon is down.
const pluginFails = `echo '{"cniVersion":"1.0.0","code":11,"msg":"cannot reach the daemon of the network: dial unix /run/scenario-network.sock: connect: connection refused"}'; exit 1`

// installPlugin puts the plugin on the node, once: it stays, and does nothing for other
// pods.
var installPlugin = bed.OnNode(`mkdir -p ` + pluginDirectory + `
exec 9>` + pluginDirectory + `.lock
flock 9
[ -e /opt/cni/bin/` + pluginName + ` ] || {
  cat >/opt/cni/bin/` + pluginName + `.new <<'END'
` + pluginScript + `END
  chmod 755 /opt/cni/bin/` + pluginName + `.new
  mv /opt/cni/bin/` + pluginName + `.new /opt/cni/bin/` + pluginName + `
}
config=/etc/cni/net.d/10-bridge.conflist
grep -q ` + pluginName + ` $config || {
  sed 's/^    {"type": "portmap".*}$/&,\n    {"type": "` + pluginName + `"}/' $config >/run/scenario-cni.conflist
  grep -q ` + pluginName + ` /run/scenario-cni.conflist
  cat /run/scenario-cni.conflist >$config
  sleep 2 # until containerd has read it
}`)

// withPlugin makes an incident of the node's network.
func withPlugin(s bed.Scenario) bed.Scenario {
	s.Needs = append(s.Needs, bed.PodNetwork)
	if s.Prepare == nil {
		s.Prepare = installPlugin
	} else {
		s.Prepare = inTurn(installPlugin, s.Prepare)
	}
	return s
}

// onDelete is a step that lets the plugin do something when the pod is deleted.
func onDelete(script string) bed.Step {
	return bed.OnNode("cat >" + pluginDirectory + "/$NAME <<'END'\n" + script + "\nEND")
}

// onAdd is a step that lets the plugin do something when the pod's network is set up, and addBegan
// one that waits until it does.
func onAdd(script string) bed.Step {
	return bed.OnNode("rm -f " + pluginDirectory + "/$NAME.begun\ncat >" + pluginDirectory + "/$NAME-add <<'END'\n: " +
		">" + pluginDirectory + "/$name.begun\n" + script + "\nEND")
}

var addBegan = bed.OnNode("until [ -e " + pluginDirectory + "/$NAME.begun ]; do sleep 1; done")

// asBefore is a step that undoes onDelete and onAdd.
var asBefore = bed.OnNode(`file=` + pluginDirectory + `/$NAME
rm -f $file $file-add
end TERM $file.pids
rm -f $file.pids`)

// pluginHangs is what a plugin does that waits for a child, and pluginWaits a shell script that
// succeeds while one does.
const (
	pluginHangs = "sleep 100000 &\necho $! >>" + pluginDirectory + "/$name.pids\nwait"
	pluginWaits = "kill -0 $(cat " + pluginDirectory + "/$NAME.pids)"
)

func cniFails() bed.Scenario {
	return bed.Scenario{
		Name:  "cni-del-fails",
		Story: "a CNI plugin of which the daemon is down fails to take down the pod's network",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onDelete(pluginFails),
			Proof: `[ -z "$(tasks)" ]
{ cat /var/log/kubelet.log || journalctl -u kubelet; } | grep -q "` + pluginName + `.*connection refused.*/$NAME"`,
			Heal: asBefore,
		},
		Want: bed.Want{
			Cause: "CNIDelFailing",
			Says:  []string{"Cause: in phase Sandbox", "CNI plugin " + pluginName + " fails", "connect: connection refused", "kubectl get pods"},
		},
	}
}

// cniTimesOut is a plugin that gives up on a request of its own, with the words that containerd has for one of the kubelet's.
func cniTimesOut() bed.Scenario {
	s := cniFails()
	s.Name = "cni-del-times-out"
	s.Story = "a CNI plugin fails to take down the pod's network each time, because its own request to the API server has got no answer in time"
	s.Break = onDelete(`sleep 3
echo '{"cniVersion":"1.0.0","code":11,"msg":"error getting ClusterInformation: Get \"https://10.96.0.1:443/apis/crd.projectcalico.org/v1/clusterinformations/default\": context deadline exceeded"}'
exit 1`)
	s.Proof = "[ -z \"$(tasks)\" ]\n" + logged(pluginName+".*context deadline exceeded")
	s.Says = []string{"Cause: in phase Sandbox", "CNI plugin " + pluginName + " fails", "error getting ClusterInformation", "context " +
		"deadline exceeded", "kubectl get pods"}
	return s
}

// cniFailsBefore is a pod of which the container has ended for good before somebody deletes it, as that of a Job: the kubelet
// stops it then, and has told of the failure before the deletion.
func cniFailsBefore() bed.Scenario {
	s := cniFails()
	s.Name = "cni-del-fails-before"
	s.Story = "a CNI plugin fails to take down the network of a pod that has ended by itself, which is deleted later"
	s.Break = inTurn(s.Break, bed.OnNode(findShim+"kill -KILL $victim\nuntil "+logged(pluginName+".*connection refused")+"; do sleep 1; done\nsleep 10"))
	return s
}

func cniHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "cni-del-hangs",
		Story: "a CNI plugin does not return while it takes down the pod's network",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onDelete(pluginHangs),
			Proof: "[ -z \"$(tasks)\" ] && " + pluginWaits,
			Heal:  asBefore,
		},
		Want: bed.Want{
			Cause: "CNIDelHanging",
			Says: []string{"Cause: in phase Sandbox", "CNI plugin " + pluginName + " (PID", "has not returned from DEL", "Seen: waits for " +
				"its child sleep (PID", "Seen: clock_nanosleep"},
		},
	}
}

// cniScanned has a virus scanner not answer whether a plugin may open a file.
func cniScanned() bed.Scenario {
	const file = pluginDirectory + "/$name.scanned"
	return bed.Scenario{
		Name:  "cni-del-scanned",
		Story: "a CNI plugin waits for a virus scanner that has been stopped, each time that it is to take down the pod's network",
		Fault: bed.Fault{
			Pod:     victim(3, "drain", "0"),
			Prepare: bed.NodeTool("victim"),
			Break:   inTurn(bed.OnNode("name=$NAME\n: >"+file+"\n"+scan("1h", "scan", file)+"\n"+stopScan), onDelete("read -r _ <"+file)),
			Proof:   "[ -z \"$(tasks)\" ] && " + scanStopped + " && grep -q fanotify /proc/[0-9]*/wchan",
			Heal:    inTurn(bed.OnNode(endScan), asBefore),
		},
		Want: bed.Want{
			Cause: "FileScannerNotAnswering",
			Says:  []string{"Cause: Probably stuck in phase Sandbox", pluginName + " (PID ", "needed to stop this pod, is blocked", "fanotify", "victim (PID "},
		},
	}
}

// cniAddHangs has the kubelet wait for the pod's sandbox, for four minutes, before it turns to the
// deletion.
func cniAddHangs() bed.Scenario {
	return bed.Scenario{
		Name:  "cni-add-hangs",
		Story: "a CNI plugin does not return while it sets up the network of a pod that is deleted meanwhile",
		Fault: bed.Fault{
			Pod:      victim(3, "drain", "0"),
			Starting: true,
			Prepare:  onAdd(pluginHangs),
			Break:    addBegan,
			Proof:    "[ -z \"$(tasks)\" ] && " + pluginWaits,
			Heal:     asBefore,
		},
		Want: bed.Want{
			Cause: "CNIAddHanging",
			Says: []string{"Cause: in phase Startup", "Seen: No program of the pod has run yet", "CNI plugin " + pluginName + " (PID", "has not returned from ADD",
				"Seen: waits for its child sleep (PID", "Seen: clock_nanosleep", "The kubelet gives up after 4m", "Fix: twice runtimeRequestTimeout"},
			Force: "not yet",
		},
	}
}

// cniAddAgainHangs is the same of a sandbox that the kubelet makes in the place of one that has
// ended, as when its node was started anew.
func cniAddAgainHangs() bed.Scenario {
	s := cniAddHangs()
	s.Name = "cni-add-again-hangs"
	s.Story = "the pod's sandbox has ended, and a CNI plugin does not return while it sets up the network of the next one; the pod is deleted meanwhile"
	s.Pod.RestartPolicy = corev1.RestartPolicyAlways // of another one the kubelet makes no second sandbox
	s.Starting, s.Prepare = false, nil
	s.Break = inTurn(onAdd(pluginHangs), bed.OnNode(findShim+findSandbox+"kill -KILL $pause"), addBegan)
	s.Says = slices.Clone(s.Says)
	s.Says[1] = "Seen: No program of the pod runs: its sandbox is being re-created"
	return s
}

// cniAddSlow is innocent: the pod starts late, and gets its stop signal when it has.
func cniAddSlow() bed.Scenario {
	return bed.Scenario{
		Name:  "cni-add-slow",
		Story: "innocent: a CNI plugin takes half a minute to set up the network of a pod that is deleted meanwhile",
		Fault: bed.Fault{
			Pod:      victim(3, "drain", "0"),
			Starting: true,
			Prepare:  onAdd("sleep 30"),
			Break:    addBegan,
			// So that what is captured is past the deadline.
			Proof: "[ -z \"$(tasks)\" ] && [ $(($(date +%s) - $(stat -c %Y " + pluginDirectory + "/$NAME.begun))) -ge 12 ]",
			Heal:  asBefore,
		},
	}
}

func cniSlow() bed.Scenario {
	return bed.Scenario{
		Name:  "cni-del-slow",
		Story: "innocent: a CNI plugin takes twenty seconds to take down the pod's network",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onDelete("sleep 20"),
			Heal:  asBefore,
		},
	}
}

func cniFailsOnce() bed.Scenario {
	return bed.Scenario{
		Name:  "cni-del-fails-once",
		Story: "innocent: a CNI plugin fails to take down the pod's network, and the next try succeeds",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: onDelete("rm " + pluginDirectory + "/$name\n" + pluginFails),
			Heal:  asBefore,
		},
	}
}

// cniMissing takes away the program of one of the node's plugins.
func cniMissing() bed.Scenario {
	const program = "/opt/cni/bin/portmap"
	return bed.Scenario{
		Name:  "cni-binary-missing",
		Story: "the program of a CNI plugin has been removed",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode("mv " + program + " " + program + ".away"),
			Proof: `[ -z "$(tasks)" ] && [ ! -e ` + program + ` ]`,
			Heal:  bed.OnNode("[ ! -e " + program + ".away ] || mv " + program + ".away " + program),
		},
		Want: bed.Want{
			Cause:  "CNIDelFailing",
			Family: "PluginMissing",
			Says:   []string{"the program of CNI plugin portmap is missing", "failed to find plugin"},
		},
	}
}

// cniUninitialized takes away the configuration of the node's network. containerd heeds
// one that is written there, and not one that is moved there.
func cniUninitialized() bed.Scenario {
	const config = "/etc/cni/net.d"
	return bed.Scenario{
		Name:  "cni-config-removed",
		Story: "the configuration of the node's network has been removed",
		Place: bed.Place{Needs: []bed.Need{bed.PodNetwork}},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: bed.OnNode("mkdir -p " + config + ".away; mv " + config + "/*.conflist " + config + ".away"),
			Proof: `[ -z "$(tasks)" ] && ! ls ` + config + `/*.conflist`,
			Heal:  bed.OnNode("[ ! -e " + config + ".away ] || { cp " + config + ".away/* " + config + "/; rm -r " + config + ".away; }"),
		},
		Want: bed.Want{
			Cause: "CNINotInitialized",
			Says:  []string{"containerd has no CNI configuration", config},
		},
	}
}
