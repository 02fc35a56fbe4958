package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// A scene is a node of which rounds are measured: in mount, PID and cgroup namespaces of its own, and in control groups of its own, so that what
// else runs on the machine is not in it.
type scene struct {
	// Late pods have ended, and are a minute past their deadline. Mounts is how many mounts of volumes they have in all.
	Late, Mounts int
	// Living pods are as late, and two processes of theirs and that of the sandbox live.
	Living int
	// Neighbours are pods with control groups and without processes, which nobody asks for.
	Neighbours int
	// Shims are processes that are called as shims are, and Sleepers others.
	Shims, Sleepers int
	// Rounds is how often the pods are read, after a first time that is not measured.
	Rounds int
}

// costs are those of the rounds of a scene.
type costs struct {
	CPU         []time.Duration // of each round, with the helper's part
	Mounts      int             // that were found of the pods in one round
	Allocations int64           // of the agent in a round, the least
	Questions   int64           // to the helper in a round, the least; 0 where the program does not count them
}

// add adds those of more rounds.
func (c *costs) add(more *costs) {
	if len(c.CPU) == 0 {
		*c = *more
		return
	}
	c.CPU = append(c.CPU, more.CPU...)
	c.Allocations, c.Questions = min(c.Allocations, more.Allocations), min(c.Questions, more.Questions)
}

func (c *costs) least() time.Duration { return slices.Min(c.CPU) }

func (c *costs) median() time.Duration {
	sorted := slices.Sorted(slices.Values(c.CPU))
	return sorted[len(sorted)/2]
}

func (c *costs) String() string {
	return fmt.Sprintf("%s (least %s of %d)", milliseconds(float64(c.median())), milliseconds(float64(c.least())), len(c.CPU))
}

// The control groups of a scene, in those hierarchies of version 1 that the agent reads, or in that of version 2.
var hierarchies = []string{"pids", "freezer", "memory", "cpu", "cpuacct", "systemd"}

const groupRoot = "/sys/fs/cgroup"

// makeGroups makes a control group in each of some hierarchies of version 1, or in that of version 2, and returns their directories.
func makeGroups(name string, in ...string) (dirs []string, err error) {
	parents := []string{groupRoot}
	if _, err := os.Stat(filepath.Join(groupRoot, "cgroup.controllers")); err != nil {
		parents = nil
		for _, h := range in {
			if _, err := os.Stat(filepath.Join(groupRoot, h, "cgroup.procs")); err == nil {
				parents = append(parents, filepath.Join(groupRoot, h))
			}
		}
	}
	if len(parents) == 0 {
		return nil, errors.New("no control groups are mounted at " + groupRoot)
	}
	for _, p := range parents {
		dir := filepath.Join(p, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			removeGroups(dirs)
			return nil, fmt.Errorf("make a control group: %w; it takes root and a writable %s", err, groupRoot)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// removeGroups removes control groups and all below. A group is busy for a moment after its last process.
func removeGroups(dirs []string) {
	for _, dir := range dirs {
		var all []string
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for _, d := range slices.Backward(all) {
			for range 250 {
				if err := os.Remove(d); err == nil || errors.Is(err, os.ErrNotExist) {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
}

// enter moves a shell into the groups and has it run a program in new namespaces. The first process there is the host's for the rounds, and so it
// is none of the program's.
const enter = `for g in $SCENE_GROUPS; do echo $$ >"$g/cgroup.procs" || exit 1; done
exec unshare --mount --pid --cgroup --fork --kill-child --mount-proc -- sh -c '"$@" & wait $!' sh "$@"`

// play has a program make a scene, read it, and print its costs. The program is this one or that of another commit, and may have a tracer before it.
func play(ctx context.Context, s scene, program ...string) (*costs, error) {
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	groups, err := makeGroups(filepath.Base(dir), hierarchies...)
	if err != nil {
		return nil, err
	}
	defer removeGroups(groups)
	wanted, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", enter, "sh"}, append(slices.Clone(program), "scene", dir, string(wanted))...)...)
	cmd.Env = append(os.Environ(), "SCENE_GROUPS="+strings.Join(groups, " "))
	var errs strings.Builder
	cmd.Stderr = &errs
	printed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("rounds of %s: %w\n%s", wanted, err, indent(errs.String()))
	}
	var c costs
	if err := json.Unmarshal(printed, &c); err != nil {
		return nil, fmt.Errorf("what the rounds cost: %w", err)
	}
	return &c, nil
}

// readScene makes a scene in a directory, in the namespaces of play, reads it, and prints what that has cost.
func readScene(args []string) error {
	var s scene
	if len(args) != 2 {
		return errors.New("give a directory and a scene")
	}
	if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
		return err
	}
	m := made{dir: args[0]}
	defer m.end()
	if err := m.make(s); err != nil {
		return err
	}
	h := &proc.Host{Proc: "/proc", Cgroup: m.groups(), KubeletDir: m.kubelet(), Prober: new(probe.Prober)}
	defer h.Prober.Close()
	var c costs
	for i := range s.Rounds + 1 {
		marked(i)
		one, err := readAll(h, &m)
		if err != nil {
			return err
		}
		if i > 0 { // the first one finds where the groups are
			c.add(one)
		}
	}
	marked(s.Rounds + 1)
	return json.NewEncoder(os.Stdout).Encode(c)
}

// marked shows a tracer where a round begins.
func marked(round int) { _, _ = os.Readlink(fmt.Sprintf("/round/%d", round)) }

// readAll reads all pods once.
func readAll(h *proc.Host, m *made) (*costs, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	asked := questions(h.Prober)
	begin, err := used()
	if err != nil {
		return nil, err
	}
	begin += h.Prober.Spent()
	var c costs
	r := h.Round()
	for _, pod := range m.pods() {
		r.ReadPod(context.Background(), pod)
		c.Mounts += len(pod.Mounts)
	}
	end, err := used()
	if err != nil {
		return nil, err
	}
	c.CPU = []time.Duration{end + h.Prober.Spent() - begin}
	runtime.ReadMemStats(&after)
	c.Allocations, c.Questions = int64(after.Mallocs-before.Mallocs), questions(h.Prober)-asked
	return &c, nil
}

// questions returns how many the helper was asked. Programs of commits that do not count them have none.
func questions(p any) int64 {
	if q, ok := p.(interface{ Questions() int64 }); ok {
		return q.Questions()
	}
	return 0
}

// used returns the CPU time that this process has taken.
func used() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// made is a scene that was made.
type made struct {
	dir       string
	late      []string // UIDs
	living    []livingPod
	processes []*exec.Cmd
}

// A livingPod has a container and a sandbox with processes.
type livingPod struct {
	uid           string
	main, sandbox int // PIDs
}

func (m *made) kubelet() string { return filepath.Join(m.dir, "kubelet") }

func (m *made) groups() string { return filepath.Join(m.dir, "cgroup") }

// IDs of the containers.
var (
	mainID    = strings.Repeat("ab", 32)
	sandboxID = strings.Repeat("cd", 32)
)

func sceneUID(kind, i int) string { return fmt.Sprintf("%08d-%04d-4000-8000-000000000000", i, kind) }

// The kinds of pods in a UID.
const (
	lateKind = iota
	livingKind
	neighbourKind
)

func (m *made) make(s scene) error {
	if err := m.mountGroups(); err != nil {
		return err
	}
	for i := range s.Late {
		m.late = append(m.late, sceneUID(lateKind, i))
	}
	for i := range s.Mounts {
		dir := filepath.Join(m.kubelet(), "pods", m.late[i%s.Late], "volumes", "kubernetes.io~nfs", fmt.Sprintf("vol-%d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	for i := range s.Neighbours {
		if _, err := m.podGroups(sceneUID(neighbourKind, i), mainID); err != nil {
			return err
		}
	}
	// Called as a shim is, by its file.
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return err
	}
	shim := filepath.Join(m.dir, "containerd-shim-runc-v2")
	if err := os.Symlink(sleep, shim); err != nil {
		return err
	}
	for range s.Shims {
		if _, err := m.start(shim); err != nil {
			return err
		}
	}
	for range s.Sleepers {
		if _, err := m.start(sleep); err != nil {
			return err
		}
	}
	for i := range s.Living {
		if err := m.live(sceneUID(livingKind, i), sleep); err != nil {
			return err
		}
	}
	return nil
}

// mountGroups mounts the scene's own control groups where those of the host are looked for.
func (m *made) mountGroups() error {
	for _, dir := range strings.Fields(os.Getenv("SCENE_GROUPS")) {
		at := m.groups()
		if h := filepath.Dir(dir); h != groupRoot {
			at = filepath.Join(at, filepath.Base(h))
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(dir, at, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}

// podGroups makes the control groups of a container of a pod.
func (m *made) podGroups(uid, container string) (dirs []string, err error) {
	for _, dir := range strings.Fields(os.Getenv("SCENE_GROUPS")) {
		g := filepath.Join(dir, "kubepods", "besteffort", "pod"+uid, container)
		if err := os.MkdirAll(g, 0o755); err != nil {
			return nil, err
		}
		dirs = append(dirs, g)
	}
	return dirs, nil
}

func (m *made) start(program string) (pid int, err error) {
	c := exec.Command(program, "1800") // ends by itself should this process be killed
	if err := c.Start(); err != nil {
		return 0, err
	}
	m.processes = append(m.processes, c)
	return c.Process.Pid, nil
}

func (m *made) live(uid, sleep string) error {
	pod := livingPod{uid: uid}
	for _, of := range []struct {
		id  string
		pid *int
	}{{mainID, &pod.main}, {mainID, new(int)}, {sandboxID, &pod.sandbox}} {
		dirs, err := m.podGroups(uid, of.id)
		if err != nil {
			return err
		}
		if *of.pid, err = m.start(sleep); err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(*of.pid)), 0); err != nil {
				return err
			}
		}
	}
	m.living = append(m.living, pod)
	return nil
}

func (m *made) end() {
	for _, c := range m.processes {
		_ = c.Process.Kill() // one that has ended is found so by Wait
	}
	for _, c := range m.processes {
		_ = c.Wait()
	}
}

// pods returns the pods as the agent knows them before it reads them.
func (m *made) pods() (out []*evidence.Pod) {
	now := time.Now()
	for _, uid := range m.late {
		out = append(out, &evidence.Pod{
			Time: now, UID: uid, RuntimeUID: uid, Phase: "Failed", Deadline: now.Add(-time.Minute),
			Containers: []evidence.Container{
				{Name: "main", Kind: evidence.App, ID: mainID, State: evidence.StateExited},
				{Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateExited},
			},
		})
	}
	for _, p := range m.living {
		out = append(out, &evidence.Pod{
			Time: now, UID: p.uid, RuntimeUID: p.uid, Phase: "Running", Deadline: now.Add(-time.Minute),
			Containers: []evidence.Container{
				{Name: "main", Kind: evidence.App, ID: mainID, State: evidence.StateRunning, Task: evidence.ShimTask{PID: p.main, Status: "running"}},
				{Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateRunning, Task: evidence.ShimTask{PID: p.sandbox, Status: "running"}},
			},
		})
	}
	return out
}
