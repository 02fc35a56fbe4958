package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// objectOnly is a pod of which only the object is left, as two readings have shown, the
// first one of them so long ago.
func objectOnly(change func(p *evidence.Pod)) *evidence.Pod {
	deadline := requested.Add(30 * time.Second)
	p := &evidence.Pod{
		Time: deadline.Add(20 * time.Second), Namespace: "shop", Name: "web-0", UID: podUID, RuntimeUID: podUID,
		Phase: "Failed", DeletionRequested: requested, Deadline: deadline, GracePeriodSeconds: 30, TasksRead: deadline.Add(20 * time.Second),
		Seen: evidence.Seen{Group: true, Directory: true, Runtimes: []string{fact.RuncV2}},
		Containers: []evidence.Container{
			{Name: "main", Kind: evidence.App, ID: "c1", State: evidence.StateExited, Exit: &evidence.Exit{Code: 137, At: deadline}},
			{Name: "POD", Kind: evidence.Sandbox, ID: "s1", State: evidence.StateExited, Runtime: fact.RuncV2},
		},
	}
	p.UnchangedSince, p.BareSince = deadline.Add(5*time.Second), deadline.Add(5*time.Second)
	p.Node.Kubelet.Process = &evidence.Task{PID: 9, TID: 9, Comm: "kubelet", State: evidence.Sleeping, Owner: "kubelet"}
	p.Skew = &evidence.Skew{}
	change(p)
	return p
}

// A yes is what remains when nothing else does. Each row takes one thing of it away.
func TestForce(t *testing.T) {
	at := func(id int, plugin string) evidence.Mount {
		return evidence.Mount{ID: id, Device: "8:16", Point: volumesDir + plugin + "/data/mount", Type: "ext4", Volume: "data", Plugin: plugin}
	}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		answer diagnose.Answer
		says   string
	}{
		"only the object": {func(*evidence.Pod) {}, diagnose.ForceYes, "nothing of the pod has been left on the node since"},
		"as long as it lasts": {func(p *evidence.Pod) {
			p.Time = p.Time.Add(time.Hour)
		}, diagnose.ForceYes, "since"},
		"records that containerd has forgotten": {func(p *evidence.Pod) {
			p.Containers = p.Containers[:1]
			p.Containers[0].ID, p.Containers[0].State = "", ""
		}, diagnose.ForceYes, ""},
		"a container that never ran": {func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "late", Kind: evidence.App, Waiting: true})
		}, diagnose.ForceYes, ""},

		"one reading": {func(p *evidence.Pod) { p.BareSince = p.Time }, diagnose.ForceNotYet, "over several seconds"},
		"no reading":  {func(p *evidence.Pod) { p.BareSince = time.Time{} }, diagnose.ForceNotYet, "over several seconds"},
		"a shim, in the last reading": {func(p *evidence.Pod) {
			p.BareSince, p.Parents = time.Time{}, []evidence.Task{{PID: 60, TID: 60, Comm: "containerd-shim", Owner: "shim"}}
		}, diagnose.ForceNotYet, "has yet to confirm, over several seconds, that nothing of the pod is left"},
		"a process": {func(p *evidence.Pod) { live(p, "sh") }, diagnose.ForceNo, "process sh of container main is still running"},
		"a record of containerd's alone": {func(p *evidence.Pod) {
			p.Containers[0].State, p.Containers[0].Task.PIDGone, p.StatefulSet = evidence.StateRunning, true, true
		}, diagnose.ForceNotYet, "containerd still records container main as running, although no process of it is left"},
		"the same, and a control group with tasks": {func(p *evidence.Pod) {
			p.Containers[0].State, p.Containers[0].Task.PIDGone = evidence.StateRunning, true
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/pod/c1", Container: p.Containers[0].ID, Populated: true}}
		}, diagnose.ForceNo, "containerd reports container main as running"},
		"the same, with hostPID": {func(p *evidence.Pod) {
			p.Containers[0].State, p.Containers[0].Task.PIDGone, p.HostPID = evidence.StateRunning, true, true
		}, diagnose.ForceNo, "containerd reports container main as running"},
		"the secrets of an inline CSI volume": {func(p *evidence.Pod) {
			m := at(5, "kubernetes.io~csi")
			m.Type, p.StatefulSet = "tmpfs", true
			p.Mounts = []evidence.Mount{m}
		}, diagnose.ForceNotYet, `the kubelet has not torn down volume "data"`},
		"a tmpfs behind a claim": {func(p *evidence.Pod) {
			m := at(5, "kubernetes.io~csi")
			m.Type, m.Volume = "tmpfs", "pvc-1"
			p.Mounts, p.Specified = []evidence.Mount{m}, []evidence.SpecVolume{{Name: "data", Claim: "shared"}}
		}, diagnose.ForceNo, "(tmpfs)"},
		"a hostile one": {func(p *evidence.Pod) { live(p, "yes, safe") }, diagnose.ForceNo, `process "yes, safe" of container main is still running`},
		"of a StatefulSet": {func(p *evidence.Pod) {
			live(p, "sh")
			p.StatefulSet = true
		}, diagnose.ForceNo, "sh of container main is still running. Its StatefulSet would start a second pod with the same name: two writers"},
		"a leftover": {func(p *evidence.Pod) {
			p.Leftovers = []evidence.Task{{PID: 70, TID: 70, Comm: "sleep", State: evidence.Sleeping}}
		}, diagnose.ForceNo, "process sleep has left its container and is still running"},
		"tasks that could not be read": {func(p *evidence.Pod) {
			p.Lack(evidence.Processes, "denied")
			p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/pod/c1", Container: "c1", Populated: true}}
		}, diagnose.ForceNo, "processes of container main are still running"},
		"containerd says that it runs": {func(p *evidence.Pod) {
			p.Containers[0].State = evidence.StateRunning
		}, diagnose.ForceNo, "containerd reports container main as running"},
		"a shared volume": {func(p *evidence.Pod) {
			p.Mounts = []evidence.Mount{at(7, "kubernetes.io~csi")}
		}, diagnose.ForceNo, `volume "data" is still mounted (ext4)`},
		"a subPath": {func(p *evidence.Pod) {
			p.Mounts = []evidence.Mount{at(7, "")}
		}, diagnose.ForceNo, `volume "data" is still mounted`},
		"a volume of its own": {func(p *evidence.Pod) {
			p.Mounts = []evidence.Mount{at(7, "kubernetes.io~projected")}
		}, diagnose.ForceNotYet, `has not torn down volume "data"`},
		"a process of the node in a volume of its own": {func(p *evidence.Pod) {
			p.Mounts = []evidence.Mount{at(7, "kubernetes.io~empty-dir")}
			holder(p, "tar", "", 7, time.Minute)
		}, diagnose.ForceNo, `volume "data" is still in use by tar`},
		"a raw block volume": {func(p *evidence.Pod) {
			p.Devices = []evidence.Mount{{ID: 9, Point: "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv-1/" + podUID,
				Type: "devtmpfs", Volume: "pv-1"}}
		}, diagnose.ForceNo, `the block device of volume "pv-1" is still in use`},
		"the directory of one": {func(p *evidence.Pod) {
			p.Volumes = []evidence.Volume{{Name: "pv-1", Plugin: "kubernetes.io~csi", Block: true}}
		}, diagnose.ForceNo, `the block device of volume "pv-1"`},
		"a directory": {func(p *evidence.Pod) {
			p.Volumes = []evidence.Volume{{Name: "cache", Plugin: "kubernetes.io~empty-dir"}}
		}, diagnose.ForceNotYet, `has not torn down volume "cache"`},
		"the sandbox": {func(p *evidence.Pod) {
			p.Containers[1].State = evidence.StateRunning
		}, diagnose.ForceNotYet, "its IP address may still be in use"},
		"a sandbox that is being created": {func(p *evidence.Pod) {
			p.Phase, p.Containers[0] = "Pending", evidence.Container{Name: "main", Kind: evidence.App, Waiting: true}
			p.Containers[1].State = evidence.StateCreated
		}, diagnose.ForceNotYet, "its IP address may still be in use"},
		"a CNI plugin": {func(p *evidence.Pod) {
			p.Plugins = []evidence.Task{{PID: 80, TID: 80, Comm: "calico"}}
		}, diagnose.ForceNotYet, "its IP address may still be in use"},
		"a CNI plugin that sets up a network": {func(p *evidence.Pod) {
			p.NetworkSetup = []evidence.Task{{PID: 80, TID: 80, Comm: "calico"}}
		}, diagnose.ForceNotYet, "its IP address may still be in use"},
		"a finalizer": {func(p *evidence.Pod) {
			p.Finalizers, p.GracePeriodSeconds = []string{"example.com/x"}, 0
		}, diagnose.ForceNo, "a force delete removes no finalizers: the object remains until its controllers remove example.com/x"},
		"a finalizer of a StatefulSet": {func(p *evidence.Pod) {
			p.Finalizers, p.GracePeriodSeconds, p.StatefulSet = []string{"example.com/x"}, 0, true
		}, diagnose.ForceNo, "controllers remove example.com/x"},
		"a mirror pod": {func(p *evidence.Pod) { p.Mirror = true }, diagnose.ForceNo, "static pod"},

		"a mount table that was cut": {func(p *evidence.Pod) { p.Lack(evidence.Mounts, "too long") }, diagnose.ForceUnknown, "could not read everything: mounts"},
		"Events that were not read":  {func(p *evidence.Pod) { p.Lack(evidence.Events, "denied") }, diagnose.ForceUnknown, "could not read everything: events"},
		"hostPID":                    {func(p *evidence.Pod) { p.HostPID = true }, diagnose.ForceUnknown, "hostPID"},
		"kata": {func(p *evidence.Pod) {
			p.Seen.Runtimes = []string{"io.containerd.kata.v2"}
		}, diagnose.ForceUnknown, "a runtime other than runc"},
		"a claim": {func(p *evidence.Pod) {
			p.ResourceClaims, p.Claims = 1, []evidence.Claim{{Name: "gpu"}}
		}, diagnose.ForceNo, "the devices of resource claim gpu are not released"},
		"claims that could not be read": {func(p *evidence.Pod) {
			p.ResourceClaims = 1
			p.Lack(evidence.Claims, "a helper hung")
		}, diagnose.ForceUnknown, "could not read everything: claims"},
		"claims that are released":         {func(p *evidence.Pod) { p.ResourceClaims = 1 }, diagnose.ForceYes, "all containers have exited"},
		"a group that was never found":     {func(p *evidence.Pod) { p.Seen.Group = false }, diagnose.ForceUnknown, "has not seen the pod on the node before"},
		"another directory of the kubelet": {func(p *evidence.Pod) { p.Seen.Directory = false }, diagnose.ForceUnknown, "has not seen the pod"},
		"another runtime's socket":         {func(p *evidence.Pod) { p.Seen.Runtimes = nil }, diagnose.ForceUnknown, "has not seen the pod"},
		"Failed by the garbage collector":  {func(p *evidence.Pod) { p.Containers[0].Exit = nil }, diagnose.ForceUnknown, "has not reported how"},
		"Failed, and no container ever ran": {func(p *evidence.Pod) { p.Containers[0].Exit, p.Containers[0].Waiting = nil, true },
			diagnose.ForceUnknown, "has not reported how"},
		"the kubelet has not said it": {func(p *evidence.Pod) { p.Phase = "Running" }, diagnose.ForceNotYet, "has not reported " +
			"that all containers have exited"},
		"an empty group": {func(p *evidence.Pod) { p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/pod"}} },
			diagnose.ForceNotYet, "has not removed the pod's cgroup"},
		"a kubelet that is stopped by a signal": {func(p *evidence.Pod) {
			k := p.Node.Kubelet.Process
			k.State, k.UnchangedSince = evidence.Stopped, p.Time.Add(-time.Minute)
		}, diagnose.ForceUnknown, "KubeletDown still holds up the pod"},
	} {
		t.Run(name, func(t *testing.T) {
			f := cause.Diagnose(objectOnly(tc.change)).Force
			if f == nil || f.Answer != tc.answer || !strings.HasPrefix(f.Text, string(tc.answer)+", ") || !strings.Contains(f.Text, tc.says) {
				t.Errorf("%+v, want %s: %s", f, tc.answer, tc.says)
			}
		})
	}
}

// A pod that has the network of its node has no address to keep.
func TestForceOnTheNodesNetwork(t *testing.T) {
	d := cause.Diagnose(objectOnly(func(p *evidence.Pod) { p.Containers[1].State, p.HostNetwork = evidence.StateRunning, true }))
	if got := d.Force.Text; got != "not yet, the pod's sandbox is not torn down" {
		t.Error(got)
	}
}

// live gives the pod's container a process.
func live(p *evidence.Pod, comm string) {
	t := task(40, 20, comm, evidence.Sleeping, "poll_schedule_timeout")
	t.Container = "c1"
	p.Tasks = append(p.Tasks, t)
}

// Nothing is said of a pod that is gone, or that may be in its grace period.
func TestForceIsForPodsThatAreOverdue(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod){
		"gone":     func(p *evidence.Pod) { p.Gone = true },
		"in grace": func(p *evidence.Pod) { p.Deadline = p.Time.Add(time.Second) },
		"in doubt": func(p *evidence.Pod) { p.Deadline, p.Skew = p.Time.Add(-time.Second), nil },
	} {
		if f := cause.Diagnose(objectOnly(change)).Force; f != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// However long the names of a pod are, the answer fits beside a remedy.
func TestForceIsShort(t *testing.T) {
	long := strings.Repeat("x ", 200)
	for name, change := range map[string]func(p *evidence.Pod){
		"process": func(p *evidence.Pod) {
			live(p, long)
			p.Containers[0].Name, p.StatefulSet = strings.Repeat("y", 200), true
		},
		"claim":      func(p *evidence.Pod) { p.Claims = []evidence.Claim{{Name: long}} },
		"volume":     func(p *evidence.Pod) { p.Mounts = []evidence.Mount{{Volume: long, Type: long}} },
		"finalizers": func(p *evidence.Pod) { p.Finalizers = []string{long, long, long} },
		"sources": func(p *evidence.Pod) {
			for _, s := range []evidence.Source{evidence.Containers, evidence.Shims, evidence.Suspects, evidence.Mounts, evidence.VolumeCalls} {
				p.Lack(s, long)
			}
		},
	} {
		if f := cause.Diagnose(objectOnly(change)).Force; f == nil || len(f.Text) > 245 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
