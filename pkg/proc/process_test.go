package proc

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/cgroup"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// What calls itself a shim in another pod is asked nothing, and what is known of a pod does
// not depend on it: not with a command line that finds no room in an answer, nor when there
// are hundreds.
func TestImpostorsOfOffice(t *testing.T) {
	hostile, pod, h := newTestPod(t), newTestPod(t), newHost(t)
	sleeper := start(t, 0, "sleep").pid()
	pod.add(t, sleeper)
	sandbox := strings.Repeat("ab", 32)
	read := func() *evidence.Pod {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		now := time.Now()
		p := &evidence.Pod{UID: pod.uid, Time: now, DeletionRequested: now.Add(-time.Minute), Deadline: now.Add(-30 * time.Second)}
		p.Containers = []evidence.Container{
			{Name: "main", ID: pod.container, State: evidence.StateRunning, Runtime: runcV2, Task: evidence.ShimTask{PID: sleeper}},
			{Name: "POD", Kind: evidence.Sandbox, ID: sandbox},
		}
		h.Round().ReadPod(ctx, p)
		return p
	}
	check := func(what string) {
		t.Helper()
		p := read()
		if p.NoShimSince.IsZero() {
			t.Errorf("%s: it is not known that there is no shim", what)
		}
		for s, why := range p.Missing {
			t.Errorf("%s: missing %s: %s", what, s, why)
		}
		if n := h.Prober.Restarts(); n != 0 {
			t.Errorf("%s: %d helpers have ended", what, n)
		}
	}
	check("nobody")
	hostile.add(t, start(t, 0, "impostor", "2000000").pid())
	check("one")
	for range 40 {
		hostile.add(t, start(t, 0, "impostor", strconv.Itoa(len(sandbox))).pid())
	}
	r := h.Round()
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	all, err := r.processes(t.Context(), files, func(c string) bool { return strings.HasPrefix(c, shimComm) })
	offices, err2 := r.office(t.Context(), files, func(c string) bool { return strings.HasPrefix(c, shimComm) })
	impostor := func(s kernfile.TaskStatus) bool {
		uid, _ := cgroup.PodOfPath(readCgroup(files, s.PID))
		return uid == hostile.uid
	}
	if err != nil || err2 != nil || slices.ContainsFunc(all, impostor) || slices.ContainsFunc(offices, impostor) {
		t.Errorf("processes of the hostile pod are taken for shims (%v, %v)", err, err2)
	}
	check("41")
}

// Whoever holds an office of the node is outside of pods, whatever the office is called.
func TestOfficesAreOutsideOfPods(t *testing.T) {
	h := newHost(t)
	h.Proc = t.TempDir()
	files := map[string]string{}
	for i, comm := range []string{shimComm, ownerKubelet, ownerContainerd, "k3s-server"} {
		for j, group := range []string{"/kubepods/besteffort/pod" + uid1 + "/" + strings.Repeat("c0ffee00", 8), "/system.slice/" + comm + ".service"} {
			pid := strconv.Itoa(100 + 10*i + j)
			status := "Name:\t" + comm + "\nState:\tS (sleeping)\nTgid:\t" + pid + "\nPid:\t" + pid + "\nPPid:\t1\n"
			files[pid+"/status"], files[pid+"/comm"], files[pid+"/cgroup"] = status, comm+"\n", "0::"+group+"\n"
		}
	}
	// In version 1 the first thread of a process shows the root when it has ended; one whose group cannot be told
	// holds no office.
	for pid, comm := range map[string]string{"200": "kubelet", "300": ownerContainerd} {
		status := "Name:\t" + comm + "\nState:\tZ (zombie)\nTgid:\t" + pid + "\nPid:\t" + pid + "\nPPid:\t1\nThreads:\t2\n"
		files[pid+"/status"], files[pid+"/comm"], files[pid+"/cgroup"] = status, comm+"\n", "3:pids:/\n"
		files[pid+"/task/"+pid+"/comm"], files[pid+"/task/"+pid[:1]+"01/comm"] = "", ""
		files[pid[:1]+"01/status"] = "Name:\tlives\nState:\tS (sleeping)\nTgid:\t" + pid + "\nPid:\t" + pid[:1] + "01\nPPid:\t1\n"
		files[pid[:1]+"01/cgroup"] = "3:pids:/kubepods/besteffort/pod" + uid1 + "/" + strings.Repeat("c0ffee00", 8) + "\n"
	}
	files["400/status"], files["400/comm"] = "Name:\tkubelet\nState:\tS (sleeping)\nTgid:\t400\nPid:\t400\nPPid:\t1\n", "kubelet\n"
	kerneltest.Tree(t, h.Proc, files)
	r, err := kernfile.Open(h.Proc)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, comm := range []string{shimComm, ownerKubelet, ownerContainerd, "k3s-server"} {
		found, err := h.Round().office(t.Context(), r, func(c string) bool { return c == comm })
		if err != nil || len(found) != 1 || found[0].PID != 101+10*i {
			t.Errorf("%s: %+v, %v", comm, found, err)
		}
	}
}

// The number of a task may have gone to another one between its status and its other files,
// whose start time would then let the guard of a command confirm the wrong one.
func TestNumberUsedAgain(t *testing.T) {
	status := func(comm string, ppid, switches int, ns string) string {
		return "Name:\t" + comm + "\nState:\tS (sleeping)\nTgid:\t100\nPid:\t100\nPPid:\t" + strconv.Itoa(ppid) + "\nNSpid:\t100" + ns +
			"\nvoluntary_ctxt_switches:\t" + strconv.Itoa(switches) + "\n"
	}
	before := status("evil", 7, 50, "\t1")
	for what, tc := range map[string]struct {
		now  string
		same bool
	}{
		"the same":                    {before, true},
		"the same, which has run":     {status("evil", 7, 51, "\t1"), true},
		"another one":                 {status("sshd", 1, 900, ""), false},
		"of the same name":            {status("evil", 1, 900, "\t1"), false},
		"of the same name and parent": {status("evil", 7, 49, "\t1"), false},
		"of another PID namespace":    {status("evil", 7, 50, "\t2"), false},
	} {
		h := newHost(t)
		h.Proc = t.TempDir()
		kerneltest.Tree(t, h.Proc, map[string]string{
			"100/status":          before,
			"100/task/100/status": tc.now,
			"100/task/100/stat":   "100 (sshd) S 1 100 100 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 555 1 1 1 1 1 1 1 1 1 1 1 1 1 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
			"100/task/100/wchan":  "0",
		})
		files, err := kernfile.Open(h.Proc)
		if err != nil {
			t.Fatal(err)
		}
		s, err := files.TaskStatus(100)
		files.Close()
		if err != nil {
			t.Fatal(err)
		}
		r := h.Round()
		_ = r.probe(t.Context(), &s, &tables{Round: r}, uid1)
		if got := s.Probe != nil && s.Probe.Start == 555; got != tc.same {
			t.Errorf("%s: probe %+v", what, s.Probe)
		}
	}
}

// What a process of a pod makes too much is missing for its own pod, and for no other one.
func TestChargedToItsOwner(t *testing.T) {
	pod, h := newTestPod(t), newHost(t)
	pod.add(t, start(t, 0, "sleep").pid())
	files, err := kernfile.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	tooMuch, denied := probe.Charge(errors.New("too much")), errors.New("denied")
	for what, tc := range map[string]struct {
		err         error
		own, others bool
	}{"too much": {tooMuch, true, false}, "another error": {denied, true, true}} {
		r, w := h.Round(), newWalk[int]()
		look := func(s *kernfile.TaskStatus) (int, bool, error) {
			if s.Owner == pod.uid {
				return 0, false, tc.err
			}
			return 0, false, nil
		}
		for uid, want := range map[string]bool{pod.uid: tc.own, uid1: tc.others} {
			if _, err := w.all(t.Context(), r, files, uid, look); (err != nil) != want {
				t.Errorf("%s: missing for %s: %v", what, uid, err)
			}
		}
	}
}
