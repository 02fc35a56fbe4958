package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"golang.org/x/sys/unix"
)

// opened counts how often files and directories have been opened for reading
// since watchOpens.
type opened struct {
	fd    int
	names map[int32]string
}

func watchOpens(t *testing.T, names ...string) *opened {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	o := &opened{fd, make(map[int32]string)}
	for _, name := range names {
		wd, err := unix.InotifyAddWatch(fd, name, unix.IN_OPEN)
		if err != nil {
			t.Fatalf("watch %s: %v", name, err)
		}
		o.names[int32(wd)] = name
	}
	return o
}

func (o *opened) counts(t *testing.T) map[string]int {
	t.Helper()
	out := make(map[string]int)
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(o.fd, buf)
		if err == unix.EAGAIN {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd, size := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[12:])
			// What is opened inside of a directory has a name; it has a watch of
			// its own if it counts.
			if size == 0 {
				out[o.names[wd]]++
			}
			b = b[unix.SizeofInotifyEvent+size:]
		}
	}
}

// A node with two services, a shim and a few pods, of which nothing is left but
// their sandbox and a volume.
func roundNode(t *testing.T, pods int) (h *Host, procs []string, read func(r *Round)) {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{"cgroup/cgroup.controllers": "", "cgroup/kubepods/cgroup.threads": ""}
	var mountinfo bytes.Buffer
	fmt.Fprintln(&mountinfo, "21 1 8:1 / / rw - ext4 /dev/sda1 rw")
	for i := range pods {
		fmt.Fprintf(&mountinfo, "%d 21 0:%d / /var/lib/kubelet/pods/%s/volumes/kubernetes.io~empty-dir/v rw - tmpfs tmpfs rw\n", 100+i, 100+i, podUID(i))
	}
	files["proc/1/mountinfo"] = mountinfo.String()
	for i, comm := range []string{"systemd", "kubelet", "containerd", "containerd-shim"} {
		pid := i + 1
		dir := "proc/" + strconv.Itoa(pid) + "/"
		procs = append(procs, filepath.Join(root, dir, "comm"))
		status := fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nTgid:\t%d\nPid:\t%d\nPPid:\t%d\nNSpid:\t%d\nThreads:\t1\nVmSize:\t1 "+
			"kB\n", comm, pid, pid, min(i, 1), pid)
		files[dir+"comm"] = comm + "\n"
		files[dir+"status"] = status
		files[dir+"cgroup"] = "0::/system.slice\n"
		files[fmt.Sprintf("%stask/%d/cmdline", dir, pid)] = "shim\x00-id\x00sandbox\x00"
		files[fmt.Sprintf("%stask/%d/wchan", dir, pid)] = "do_epoll_wait"
	}
	kerneltest.Tree(t, root, files)
	h = newHost(t)
	h.Proc, h.Cgroup = filepath.Join(root, "proc"), filepath.Join(root, "cgroup")
	return h, procs, func(r *Round) {
		var wg sync.WaitGroup
		for _, comm := range []string{"kubelet", "containerd"} {
			wg.Go(func() {
				if p, _, err := r.ReadProcess(t.Context(), comm); err != nil || p == nil || p.Comm != comm {
					t.Errorf("%s: %+v, %v", comm, p, err)
				}
			})
		}
		wg.Go(func() {
			if _, _, err := r.ReadBlocked(t.Context()); err != nil && !errors.Is(err, errDenied) {
				t.Error(err)
			}
		})
		for i := range pods {
			wg.Go(func() {
				p := &evidence.Pod{
					Time: time.Now(), UID: podUID(i), RuntimeUID: podUID(i),
					Containers: []evidence.Container{{Kind: evidence.Sandbox, ID: "sandbox"}},
				}
				r.ReadPod(t.Context(), p)
				if len(p.Mounts) != 1 || len(p.Parents) != 1 || len(p.Missing) > 0 {
					t.Errorf("pod %d: mounts %+v, parents %+v, missing %v", i, p.Mounts, p.Parents, p.Missing)
				}
				if p.TasksRead.Before(p.Time) {
					t.Errorf("pod %d: begun at %v, tasks read at %v", i, p.Time, p.TasksRead)
				}
			})
		}
		wg.Wait()
	}
}

func podUID(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// However many pods are read in a round, side by side: the mount table is read
// once, /proc is listed once, and each process is asked for its name once.
func TestRoundReadsOnce(t *testing.T) {
	h, procs, read := roundNode(t, 12)
	table := filepath.Join(h.Proc, "1", "mountinfo")
	o := watchOpens(t, append(procs, table, h.Proc)...)
	for n := 1; n <= 2; n++ {
		read(h.Round())
		counts := o.counts(t)
		for _, name := range append(procs, table, h.Proc) {
			if counts[name] != 1 {
				t.Errorf("round %d: %s was opened %d times", n, name, counts[name])
			}
		}
	}
	if h.Round(); len(o.counts(t)) != 0 {
		t.Error("a round in which nothing is asked for reads something")
	}
}

// What a round cannot read is missing of each of its pods, and is tried again in
// the next one.
func TestRoundUnreadable(t *testing.T) {
	h, _, read := roundNode(t, 2)
	table := filepath.Join(h.Proc, "1", "mountinfo")
	if err := os.Rename(table, table+".away"); err != nil {
		t.Fatal(err)
	}
	r := h.Round()
	for i := range 2 {
		p := &evidence.Pod{Time: time.Now(), RuntimeUID: podUID(i)}
		r.ReadPod(t.Context(), p)
		if p.Missing[evidence.Mounts] == "" || len(p.Mounts) > 0 {
			t.Errorf("pod %d: mounts %+v, missing %v", i, p.Mounts, p.Missing)
		}
	}
	if err := os.Rename(table+".away", table); err != nil {
		t.Fatal(err)
	}
	read(h.Round())
}

// Of two containerds, as of K3s and docker, nobody knows which one the kubelet speaks
// to; one that is about to execute a program shows up twice, and is one.
func TestWhichContainerd(t *testing.T) {
	for name, test := range map[string]struct {
		parents map[int]int // of processes called containerd
		want    int         // 0 for an error
	}{
		"one":                     {map[int]int{7: 1}, 7},
		"one, and its child":      {map[int]int{7: 1, 9: 7}, 7},
		"K3s' own":                {map[int]int{7: 5}, 7},
		"docker's and K3s' own":   {map[int]int{7: 1, 9: 5}, 0},
		"two that nobody watches": {map[int]int{7: 1, 9: 1}, 0},
	} {
		files := make(map[string]string)
		for pid, parent := range test.parents {
			dir := fmt.Sprintf("proc/%d/", pid)
			files[dir+"comm"] = "containerd\n"
			files[dir+"status"] = fmt.Sprintf("Name:\tcontainerd\nState:\tS "+
				"(sleeping)\nTgid:\t%d\nPid:\t%d\nPPid:\t%d\nNSpid:\t%d\nThreads:\t1\n", pid, pid, parent, pid)
			files[dir+"cgroup"] = "0::/system.slice\n"
		}
		root := t.TempDir()
		kerneltest.Tree(t, root, files)
		h := newHost(t)
		h.Proc, h.Prober = filepath.Join(root, "proc"), nil
		h.Containerd = func() (int, time.Time) { return 5, time.Now() } // somebody in between, such as a proxy
		switch got, err := h.Round().ReadMain(t.Context(), "containerd"); {
		case test.want == 0 && err == nil:
			t.Errorf("%s: took %d", name, got.PID)
		case test.want != 0 && (err != nil || got == nil || got.PID != test.want):
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Of several real ones the one is taken that listens on the kubelet's socket.
func TestWhichContainerdListens(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "containerd")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	var pids []int
	for range 2 {
		cmd := exec.Command(program, "probe") // waits for its input
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
		pids = append(pids, cmd.Process.Pid)
	}
	now := time.Now().Add(time.Second) // when they were started is told to a hundredth of one
	for name, test := range map[string]struct {
		pid  int
		seen time.Time
		want int // 0 for an error
	}{
		"the first":              {pids[0], now, pids[0]},
		"the second":             {pids[1], now, pids[1]},
		"not known":              {0, now, 0},
		"somebody else":          {os.Getpid(), now, 0},
		"another one's number":   {pids[0], before.Add(-time.Minute), 0},
		"never was connected to": {pids[0], time.Time{}, 0},
	} {
		h := newHost(t)
		h.Containerd = func() (int, time.Time) { return test.pid, test.seen }
		r := h.Round()
		got, err := r.ReadMain(t.Context(), "containerd")
		blocking, _, blockingErr := r.ReadProcess(t.Context(), "containerd")
		if test.want == 0 {
			if !errors.Is(err, errSeveral) || !errors.Is(blockingErr, errSeveral) {
				t.Errorf("%s: %+v and %+v, %v and %v", name, got, blocking, err, blockingErr)
			}
			continue
		}
		if got == nil || got.PID != test.want || blocking == nil || blocking.PID != test.want {
			t.Errorf("%s: %+v and %+v, %v and %v", name, got, blocking, err, blockingErr)
		}
	}
}

// A search that begins in the middle reaches all, and one that has begun behind the last one too.
func TestEachAfter(t *testing.T) {
	r := (&Host{Proc: t.TempDir()}).Round()
	r.pids = func() ([]int, error) { return []int{1, 3, 7}, nil }
	files := kernfile.New()
	for after, want := range map[int][]int{0: {1, 3, 7}, 1: {3, 7, 1}, 2: {3, 7, 1}, 7: {1, 3, 7}, 9: {1, 3, 7}} {
		var got []int
		if err := r.eachAfter(t.Context(), files, after, func(p process) bool { got = append(got, p.pid); return true }); err != nil || !slices.Equal(got, want) {
			t.Errorf("after %d: %v, %v, want %v", after, got, err, want)
		}
	}
}
