package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// podSize is how many processes the pod has whose opens are counted.
const podSize = 20

// opens counts under strace which processes one gathering looks at: once of a
// pod of sleeping processes, and once of the same pod when each of them is
// stopped, and so a suspect for the helper process. A neighbour, a pod of the
// same size, must not be looked at, nor any other process of this machine.
func opens(ctx context.Context) ([]row, error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return nil, fmt.Errorf("%w; apt-get install strace", err)
	}
	pod, err := newPod()
	if err != nil {
		return nil, err
	}
	defer pod.end()
	neighbour, err := newPod()
	if err != nil {
		return nil, err
	}
	defer neighbour.end()

	var rows []row
	for _, state := range []string{"asleep", "stopped"} {
		if state == "stopped" {
			pod.signal(syscall.SIGSTOP)
			defer pod.signal(syscall.SIGCONT)
		}
		t, err := traceGathering(ctx, pod)
		if err != nil {
			return nil, err
		}
		others, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return nil, err
		}
		r := row{
			what:     fmt.Sprintf("Files of other processes opened, pod of %d %s", podSize, state),
			target:   "0, but their names and containerd's",
			measured: fmt.Sprintf("%d of %d processes", len(t.foreign), len(others)),
			met:      len(t.foreign) == 0,
		}
		if len(t.foreign) > 0 {
			r.measured += ": " + strings.Join(slices.Sorted(maps.Keys(t.foreign)), " ")
		}
		rows = append(rows, r, row{
			what:     "  of the pod and its parent; the host's mounts; names; containerd's",
			measured: fmt.Sprintf("%d; %d (/proc/1/mountinfo); %d (comm, once a round for all pods and the kubelet); %d", t.own, t.mounts, t.names, t.containerd),
		})
	}
	r, err := traceBaseline(ctx, pod)
	if err != nil {
		return nil, err
	}
	return append(rows, r), nil
}

// anHour is how often a pod that has run for a while is read beside its neighbours
// while nothing terminates (pkg/agent, Baselines).
const anHour = 6

// traceBaseline counts what the agent opens of a pod that runs, each time, to know what
// its first processes do with signals. Where pods are found is remembered, so the first
// time is not counted.
func traceBaseline(ctx context.Context, pod *pod) (row, error) {
	status, groups := 0, 0
	for times, sign := range map[string]int{"1": -1, "2": +1} {
		text, _, err := strace(ctx, "baseline", pod.uid, times)
		if err != nil {
			return row{}, err
		}
		for _, m := range call.FindAllStringSubmatch(text, -1) {
			name := m[2]
			if !path.IsAbs(name) {
				name = path.Join(m[1], name)
			}
			switch {
			case strings.HasPrefix(name, "/proc/") && strings.HasSuffix(name, "/status"):
				status += sign
			case strings.HasPrefix(name, "/sys/fs/cgroup"):
				groups += sign
			}
		}
	}
	if status <= 0 {
		return row{}, errors.New("strace shows no opens of the pod's files: its output is not understood")
	}
	return row{
		what:     "Opened of a running pod of one container, each time",
		measured: fmt.Sprintf("%d status files, %d files and directories of control groups; %d an hour", status, groups, anHour*(status+groups)),
	}, nil
}

// baselines reads so many times what the first processes of a pod of this machine do
// with signals.
func baselines(args []string) error {
	times, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	h := &proc.Host{Proc: "/proc", Cgroup: "/sys/fs/cgroup"}
	for range times {
		b, err := h.ReadBaseline(context.Background(), args[0])
		if err != nil {
			return err
		}
		if len(b.Tasks) == 0 {
			return fmt.Errorf("no process of pod %s was read", args[0])
		}
	}
	return nil
}

// strace runs this program under strace and returns what that wrote, and what the
// program printed.
func strace(ctx context.Context, args ...string) (opens string, out []byte, err error) {
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "strace")
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	// -y adds to each descriptor what it is, so that a path relative to one can
	// be put together.
	cmd := exec.CommandContext(ctx, "strace", append([]string{"-f", "-y", "-qq", "-s", "4096", "-o", log,
		"-e", "trace=open,openat,openat2,readlink,readlinkat", self}, args...)...)
	var printed, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &errs
	if err := cmd.Run(); err != nil {
		return "", nil, fmt.Errorf("%s under strace: %w\n%s", args[0], err, indent(errs.String()))
	}
	text, err := os.ReadFile(log)
	return string(text), printed.Bytes(), err
}

// A trace is what a gathering opened below /proc/PID: of the pod and its
// parents, the host's mount table, the names by which services are found, of what may
// be containerd, and all the rest.
type trace struct {
	own, mounts, names, containerd int
	foreign                        map[string]bool
}

func traceGathering(ctx context.Context, pod *pod) (*trace, error) {
	text, out, err := strace(ctx, "gather", pod.uid)
	if err != nil {
		return nil, err
	}
	var e evidence.Pod
	if err := json.Unmarshal(out, &e); err != nil {
		return nil, fmt.Errorf("result of the gathering: %w", err)
	}
	if len(e.Tasks) != podSize || len(e.Missing) > 0 {
		return nil, fmt.Errorf("the gathering found %d tasks and not %d, and misses %v", len(e.Tasks), podSize, e.Missing)
	}
	// This process has started the pod's.
	known := map[int]bool{os.Getpid(): true}
	for _, p := range pod.processes {
		known[p.Process.Pid] = true
	}
	t := &trace{foreign: make(map[string]bool)}
	named := make(map[string]bool)
	for _, name := range opened(text) {
		pid, err := strconv.Atoi(strings.Split(name, "/")[2])
		isName := path.Base(name) == "comm" && !named[name]
		switch {
		case err != nil: // no process: /proc/sys and the like, /proc/self
		case known[pid]:
			t.own++
		case name == "/proc/1/mountinfo":
			t.mounts++
		case isName:
			t.names++
			named[name] = true
		case isContainerd(pid):
			t.containerd++
		default:
			t.foreign[name] = true
		}
	}
	if t.own < podSize {
		return nil, fmt.Errorf("strace shows %d opens of the pod's files, fewer than it has processes: its output is not understood\n%s", t.own, indent(text))
	}
	return t, nil
}

// isContainerd reports whether a process may be a containerd by its name.
func isContainerd(pid int) bool {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && string(comm) == "containerd\n"
}

// call matches a system call with a path, and with what its descriptor is.
var call = regexp.MustCompile(`(?m)^\d+ +\w+\((?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"`)

// opened returns the paths below /proc in the output of strace -f -y, whether
// they could be opened or not.
func opened(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		m := call.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[2]
		if !path.IsAbs(name) {
			name = path.Join(m[1], name)
		}
		if strings.HasPrefix(name, "/proc/") {
			out = append(out, name)
		}
	}
	return out
}

// gather reads one pod of this machine and prints what it found.
func gather(uid string) error {
	p := &evidence.Pod{Time: time.Now(), UID: uid, RuntimeUID: uid}
	h := &proc.Host{Proc: "/proc", Cgroup: "/sys/fs/cgroup", KubeletDir: "/var/lib/kubelet", Prober: new(probe.Prober)}
	defer h.Prober.Close()
	r := h.Round()
	if _, err := r.ReadMain(context.Background(), proc.KubeletNames...); err != nil { // as each round of the agent begins
		return err
	}
	r.ReadPod(context.Background(), p)
	return json.NewEncoder(os.Stdout).Encode(p)
}

// A pod is control groups on this machine, as the kubelet makes them, with
// processes that sleep.
type pod struct {
	uid       string
	groups    []string
	processes []*exec.Cmd
}

func newPod() (*pod, error) {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	p := &pod{uid: fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])}
	var err error
	if p.groups, err = makeGroups(filepath.Join("kubepods", "besteffort", "pod"+p.uid, strings.Repeat("c0ffee00", 8)), "pids", "freezer"); err != nil {
		return nil, err
	}
	for range podSize {
		c := exec.Command("sleep", "300") // ends by itself should this process be killed
		if err := c.Start(); err != nil {
			p.end()
			return nil, err
		}
		p.processes = append(p.processes, c)
		for _, g := range p.groups {
			if err := os.WriteFile(filepath.Join(g, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
				p.end()
				return nil, err
			}
		}
	}
	return p, nil
}

func (p *pod) signal(s syscall.Signal) {
	for _, c := range p.processes {
		_ = c.Process.Signal(s) // one that has ended is found missing later
	}
}

// end kills the processes and removes the groups, and those above that are
// empty.
func (p *pod) end() {
	p.signal(syscall.SIGKILL)
	for _, c := range p.processes {
		_ = c.Wait()
	}
	removeGroups(p.groups)
	for _, g := range p.groups {
		for dir := filepath.Dir(g); strings.Contains(dir, "kubepods"); dir = filepath.Dir(dir) {
			_ = os.Remove(dir) // others may be in it
		}
	}
}
