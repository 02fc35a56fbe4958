package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/mount"
	"github.com/nodeagent-io/nodeagent/test/hostile"
	"golang.org/x/sys/unix"
)

// healAfter is when a scene frees everything that hangs in it, whatever became
// of the test. It is longer than any test takes with a scene.
const healAfter = 3 * time.Minute

// victim is a process to be looked at. It prints "ready" when it is in place;
// a scene prints what else the test needs to know before.
func victim(what string, args []string) error {
	switch what {
	case "sleep":
		ready()
		time.Sleep(time.Hour)
	case "no-files":
		ready()
		// The runtime still needs its own, up to the moment at which it is replaced.
		if err := unix.CloseRange(0, 1<<20, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return err
		}
		return unix.Exec("/bin/sleep", []string{"sleep", "3600"}, nil)
	case "sighup-ignored":
		signal.Ignore(syscall.SIGHUP)
		ready()
		time.Sleep(time.Hour)
	case "sigwait":
		// Blocks SIGTERM and waits for it, as a program does that takes its
		// signals with sigwait.
		onLeader()
		var set unix.Sigset_t
		set.Val[0] = 1 << (unix.SIGTERM - 1)
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
			return err
		}
		ready()
		for errno := unix.EINTR; errno == unix.EINTR; { // the runtime's own signals
			_, _, errno = unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, 0, 8, 0, 0)
		}
	case "leader-exits":
		// A thread goes on while the leader is a zombie.
		onLeader()
		started := make(chan bool)
		go func() {
			runtime.LockOSThread()
			close(started)
			// A raw call, because the runtime has lost its first thread.
			ts := unix.Timespec{Sec: 3600}
			_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
		}()
		<-started
		ready()
		_, _ = unix.Read(0, make([]byte, 1)) // until the test says so
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	case "named":
		onLeader()
		name := append([]byte(args[0]), 0)
		if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
			return err
		}
		ready()
		time.Sleep(time.Hour)
	case "threads":
		n, _ := strconv.Atoi(args[0])
		debug.SetMaxThreads(n + 1000)
		var wg sync.WaitGroup
		wg.Add(n)
		for range n {
			go func() {
				runtime.LockOSThread()
				wg.Done()
				ts := unix.Timespec{Sec: 3600}
				_, _, _ = unix.Syscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
			}()
		}
		wg.Wait()
		ready()
		time.Sleep(time.Hour)
	case "children":
		n, _ := strconv.Atoi(args[0])
		return sleepers(n, "/bin/sleep")
	case "pipes":
		// So many children, each with so many ends of a pipe open.
		n, _ := strconv.Atoi(args[0])
		ends, _ := strconv.Atoi(args[1])
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(2*ends) + 64, Max: uint64(2*ends) + 64}); err != nil {
			return err
		}
		_, w, err := os.Pipe()
		if err != nil {
			return err
		}
		return sleepers(n, "/bin/sleep", slices.Repeat([]*os.File{w}, ends)...)
	case "groups":
		// So many children called as shims are, each with as many supplementary groups as there can be.
		n, _ := strconv.Atoi(args[0])
		groups := make([]int, 65_536)
		for i := range groups {
			groups[i] = 4_294_000_000 - i
		}
		if err := syscall.Setgroups(groups); err != nil {
			return err
		}
		program := filepath.Join(args[1], shimComm)
		if err := os.Symlink("/bin/sleep", program); err != nil {
			return err
		}
		return sleepers(n, program)
	case "trace":
		// Traces its child, which stops.
		runtime.LockOSThread()
		c := exec.Command("/bin/sleep", "3600")
		c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return err
		}
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(c.Process.Pid, &ws, 0, nil); err != nil {
			return err
		}
		fmt.Println("child", c.Process.Pid)
		ready()
		time.Sleep(time.Hour)
	case "write":
		onLeader()
		f, err := os.OpenFile(args[0], os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		ready()
		_, err = f.Write([]byte("more\n"))
		return err
	case "create", "link":
		onLeader()
		ready()
		_, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE, 0o600)
		return err
	case "sync":
		onLeader()
		f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if _, err := f.WriteString("text\n"); err != nil {
			return err
		}
		ready()
		return f.Sync()
	case "read":
		onLeader()
		fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		ready()
		_, err = unix.Read(fd, make([]byte, 100))
		return err
	case "exec":
		onLeader()
		// The descriptor is closed inside execve. The process holds its exec_update_lock by then
		// or does not, by the version of the kernel (fs/exec.c, do_close_on_exec).
		if _, err := unix.Open(args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		ready()
		return unix.Exec("/bin/sleep", []string{"sleep", "3600"}, nil)
	case "exec-aio":
		onLeader()
		// The end of the read is waited for inside execve, by which time the process holds its
		// exec_update_lock on all kernels (fs/exec.c, exec_mmap; fs/aio.c, exit_aio).
		if err := beginRead(args[0]); err != nil {
			return err
		}
		ready()
		return unix.Exec("/bin/sleep", []string{"sleep", "3600"}, nil)
	case "close":
		// Exits with the descriptor open: it is closed inside do_exit.
		if _, err := unix.Open(args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		ready()
		// An exiting task cannot be put into a control group any more. In version 1 it is
		// put into the freezer's last.
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if b, err := os.ReadFile("/proc/self/cgroup"); err != nil || inKubepods.Match(b) {
				break
			}
		}
	case "epoll":
		// Its standard input becomes an epoll instance, which is then told to watch
		// a file: the kernel asks the file whether it is ready, and holds the
		// instance's lock while it waits for the answer (fs/eventpoll.c, ep_insert).
		// The leader goes on reading what its standard input was before.
		onLeader()
		watched, err := unix.Open(args[0], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		instance, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return err
		}
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], 0); err != nil {
			return err
		}
		if err := unix.Dup2(pipe[0], 0); err != nil {
			return err
		}
		go func() {
			// A signal would make the leader begin its read anew.
			for {
				if _, err := os.Stat(args[1]); err == nil {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			_ = unix.Dup2(instance, 0)
			_ = unix.EpollCtl(instance, unix.EPOLL_CTL_ADD, watched, &unix.EpollEvent{Events: unix.EPOLLIN})
		}()
		ready()
		_, err = unix.Read(0, make([]byte, 1))
		return err
	case "serve-fuse":
		dead := &deadFS{fuse.NewDefaultRawFileSystem(), make(chan struct{})}
		server, err := fuse.NewServer(dead, args[0], &fuse.MountOptions{Name: "dead", FsName: "nowhere", DirectMountStrict: true, DirectMount: true})
		if err != nil {
			return err
		}
		ready()
		server.Serve() // without WaitMount, which would switch off POLL
	case "shim":
		if err := os.WriteFile("/proc/self/comm", []byte("containerd-shim-runc-v2"), 0); err != nil {
			return err
		}
		c := exec.Command("/bin/true")
		if err := c.Start(); err != nil {
			return err
		}
		fmt.Println("child", c.Process.Pid)
		ready()
		time.Sleep(time.Hour)
	case "shim-children":
		if err := os.WriteFile("/proc/self/comm", []byte("containerd-shim-runc-v2"), 0); err != nil {
			return err
		}
		for range maxCommands + 1 {
			c := exec.Command("/bin/sleep", "600")
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := c.Start(); err != nil {
				return err
			}
		}
		ready()
		time.Sleep(time.Hour)
	case "shim-commands":
		// Runs a runtime about two containers, once more in a session of its own, a process
		// that is none, and one that leaves a child behind with its output.
		return shimCommands(args[0], args[1])
	case "enter":
		// Starts a process in another PID namespace and never waits for it.
		runtime.LockOSThread()
		ns, err := os.Open("/proc/" + args[0] + "/ns/pid")
		if err != nil {
			return err
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWPID); err != nil {
			return err
		}
		c := exec.Command("/bin/sleep", "3600")
		if err := c.Start(); err != nil {
			return err
		}
		fmt.Println("child", c.Process.Pid)
		ready()
		time.Sleep(time.Hour)
	case "impostor":
		// Calls itself a shim, with a command line of so many bytes.
		onLeader()
		size, err := strconv.Atoi(args[0])
		if err == nil {
			err = hostile.Impersonate(size)
		}
		if err != nil {
			return err
		}
		ready()
		time.Sleep(time.Hour)
	case "scene-fuse":
		return sceneFUSE(args)
	case "scene-epoll":
		return sceneEpoll(args)
	case "scene-frozen":
		return sceneFrozen(args)
	case "scene-dead-disk":
		return sceneDeadDisk()
	case "scene-mounts":
		return sceneMounts(args)
	default:
		return fmt.Errorf("no victim is called %q", what)
	}
	return nil
}

// beginRead begins an asynchronous read, which goes on when it returns.
func beginRead(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	var ring uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&ring)), 0); errno != 0 {
		return os.NewSyscallError("io_setup", errno)
	}
	buf := make([]byte, 4096)
	// linux/aio_abi.h; the zero opcode is IOCB_CMD_PREAD.
	request := &struct {
		data         uint64
		key, rwFlags uint32
		opcode       uint16
		priority     int16
		fd           uint32
		buf, size    uint64
		offset       int64
		_            uint64
		flags, event uint32
	}{fd: uint32(fd), buf: uint64(uintptr(unsafe.Pointer(&buf[0]))), size: uint64(len(buf))}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, ring, 1, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return os.NewSyscallError("io_submit", errno)
	}
	return nil
}

// inKubepods finds the line of /proc/self/cgroup about the last group of a testPod.
var inKubepods = regexp.MustCompile(`(?m)^(0:|\d+:freezer):.*kubepods`)

// onLeader moves the goroutine to the first thread of the process.
func onLeader() {
	for {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			return
		}
		time.Sleep(time.Millisecond) // holds this thread, so that another one is tried
		runtime.UnlockOSThread()
		runtime.Gosched()
	}
}

func ready() { _, _ = os.Stdout.WriteString("ready\n") }

// A scene is a victim process with what it has printed.
type scene struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said map[string]string
}

// start starts a victim and waits until it is ready. Namespaces are flags of
// clone(2). It is killed at the end, at the latest when the test process ends.
func start(t testing.TB, namespaces uintptr, args ...string) *scene {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"victim"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Setpgid: true}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &scene{cmd: cmd, in: in, said: make(map[string]string)}
	ended := make(chan struct{})
	t.Cleanup(func() {
		in.Close()
		select {
		case <-ended:
		case <-time.After(100 * time.Millisecond):
			// A scene heals when its standard input ends; others are killed.
			if !strings.HasPrefix(args[0], "scene-") {
				_ = cmd.Process.Kill()
			}
		}
		select {
		case <-ended:
		case <-time.After(healAfter + 5*time.Second):
			t.Errorf("victim %v did not end", args)
		}
		_ = cmd.Wait()
	})
	lines := make(chan string)
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			select {
			case lines <- sc.Text():
			case <-time.After(time.Minute):
			}
		}
		close(lines)
		_ = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		close(ended)
	}()
	for {
		select {
		case l, ok := <-lines:
			if !ok {
				t.Fatalf("victim %v ended before it was ready", args)
			}
			if l == "ready" {
				return s
			}
			name, value, _ := strings.Cut(l, " ")
			s.said[name] = value
		case <-time.After(3 * time.Minute): // an emulated processor starts five processes in a second
			_ = cmd.Process.Signal(syscall.SIGQUIT) // tells where it is
			t.Fatalf("victim %v is not ready", args)
		}
	}
}

func (s *scene) pid() int { return s.cmd.Process.Pid }

func (s *scene) number(t testing.TB, name string) int {
	t.Helper()
	n, err := strconv.Atoi(s.said[name])
	if err != nil {
		t.Fatalf("the scene did not say %s: %v", name, s.said)
	}
	return n
}

// spawn starts a victim inside of a scene and waits until it is ready.
func spawn(args ...string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", append([]string{"victim"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	buf := make([]byte, 6)
	if _, err := io.ReadFull(out, buf); err != nil {
		return nil, fmt.Errorf("victim %v: %w", args, err)
	}
	return cmd, nil
}

// outerPID is the number that a child of this process has in the PID namespace
// that /proc is of, which is the test's. It reads nothing that can hang.
func outerPID(inner int) (int, error) {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return 0, err
	}
	pids, err := allPIDs()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		s, err := kernfile.ParseStatus(b)
		if err == nil && strconv.Itoa(s.PPID) == self && s.NSpid[len(s.NSpid)-1] == inner {
			return s.PID, nil
		}
	}
	return 0, fmt.Errorf("process %d of the namespace is not in /proc", inner)
}

// endOfInput waits for the test to end the scene, and at most for healAfter.
func endOfInput() {
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(healAfter):
	}
}

// A deadFS is a file system of which each file hangs in the operation that it
// is called after.
type deadFS struct {
	fuse.RawFileSystem
	released chan struct{}
}

var deadFiles = []string{"flush", "dread", "plain"}

func (f *deadFS) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	for i, n := range deadFiles {
		if n == name {
			out.NodeId = uint64(i + 2)
			out.Attr = fuse.Attr{Ino: out.NodeId, Mode: syscall.S_IFREG | 0o666, Size: 4096, Nlink: 1}
			out.SetEntryTimeout(time.Hour)
			out.SetAttrTimeout(time.Hour)
			return fuse.OK
		}
	}
	return fuse.ENOENT
}

func (f *deadFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.Attr = fuse.Attr{Ino: in.NodeId, Mode: syscall.S_IFREG | 0o666, Size: 4096, Nlink: 1}
	if in.NodeId == 1 {
		out.Mode = syscall.S_IFDIR | 0o777
	}
	out.SetTimeout(time.Hour)
	return fuse.OK
}

func (f *deadFS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.Fh = in.NodeId
	out.OpenFlags = fuse.FOPEN_DIRECT_IO
	return fuse.OK
}

func (f *deadFS) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	if deadFiles[in.NodeId-2] == "flush" {
		<-f.released
	}
	return fuse.OK
}

func (f *deadFS) Read(_ <-chan struct{}, in *fuse.ReadIn, _ []byte) (fuse.ReadResult, fuse.Status) {
	if deadFiles[in.NodeId-2] == "dread" {
		<-f.released
	}
	return fuse.ReadResultData(nil), fuse.OK
}

// sceneFUSE runs in mount and PID namespaces of its own. It mounts a dead file
// system and starts one victim on it for each argument, "exec flush" and the
// like; it tells their process IDs, stays until its input ends, and then aborts
// the connection, which frees everything.
func sceneFUSE(victims []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dead-fuse-*")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	conns, err := os.MkdirTemp("", "connections-*")
	if err != nil {
		return err
	}
	defer os.Remove(conns)
	if err := unix.Mount("fusectl", conns, "fusectl", 0, ""); err != nil {
		return err
	}
	defer unix.Unmount(conns, unix.MNT_DETACH)
	dead := &deadFS{fuse.NewDefaultRawFileSystem(), make(chan struct{})}
	server, err := fuse.NewServer(dead, dir, &fuse.MountOptions{
		Name: "dead", FsName: "nowhere", DirectMountStrict: true, DirectMount: true,
		ExtraCapabilities: fuse.CAP_ASYNC_DIO, // without it beginRead would wait
	})
	if err != nil {
		return err
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return err
	}
	table, err := mount.ReadTable("/proc/thread-self")
	if err != nil {
		return err
	}
	m := table.Holding(dir)
	_, minor, _ := strings.Cut(m.Device, ":")
	heal := func() {
		_ = os.WriteFile(filepath.Join(conns, minor, "abort"), []byte("1"), 0)
	}
	watchdog := time.AfterFunc(healAfter, heal)
	defer watchdog.Stop()
	fmt.Println("dir", dir)
	fmt.Println("device", m.Device)
	// The test reads the connections through the root of this namespace.
	fmt.Println("connections", conns)
	var cmds []*exec.Cmd
	for _, v := range victims {
		op, file, _ := strings.Cut(v, " ")
		c, err := spawn(op, filepath.Join(dir, file))
		if err != nil {
			heal()
			return err
		}
		cmds = append(cmds, c)
		outer, err := outerPID(c.Process.Pid)
		if err != nil {
			heal()
			return err
		}
		fmt.Println(op, outer)
	}
	ready()
	endOfInput()
	heal()
	for _, c := range cmds {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	close(dead.released)
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// sceneEpoll runs in mount and PID namespaces of its own. It starts as many
// processes as its argument says whose standard input is an epoll instance that
// watches a file on FUSE, stops the daemon before it is asked whether the file is
// ready, tells their process IDs, and frees everything when its input ends.
func sceneEpoll(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dead-epoll-*")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	daemon, err := spawn("serve-fuse", dir)
	if err != nil {
		return err
	}
	heal := func() {
		_ = daemon.Process.Kill() // the kernel aborts the connection
		_ = daemon.Wait()
	}
	watchdog := time.AfterFunc(healAfter, heal)
	defer watchdog.Stop()
	stopped := dir + ".stopped"
	defer os.Remove(stopped)
	var cmds []*exec.Cmd
	for i := range n {
		c, err := spawn("epoll", filepath.Join(dir, "plain"), stopped)
		if err != nil {
			heal()
			return err
		}
		cmds = append(cmds, c)
		outer, err := outerPID(c.Process.Pid)
		if err != nil {
			heal()
			return err
		}
		fmt.Println("epoll"+strconv.Itoa(i), outer)
	}
	if err := stop(daemon); err != nil {
		heal()
		return err
	}
	if err := os.WriteFile(stopped, nil, 0o600); err != nil {
		heal()
		return err
	}
	ready()
	endOfInput()
	heal()
	for _, c := range cmds {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// stop stops a child of this process, and waits until each of its threads has.
func stop(c *exec.Cmd) error {
	pid, err := outerPID(c.Process.Pid)
	if err != nil {
		return err
	}
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r, err := kernfile.Open("/proc")
	if err != nil {
		return err
	}
	defer r.Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		tids, err := r.TIDs(pid, nil)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(tids, func(tid int) bool {
			s, err := r.TaskStatus(tid)
			return err != nil || s.State != evidence.Stopped
		}) {
			return nil
		}
	}
	return errors.New("the daemon does not stop")
}

// sceneFrozen mounts an ext4 image in a mount namespace of its own, freezes it
// and starts writers.
func sceneFrozen(victims []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "frozen-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	dir, err := mountExt4(work, 32<<20)
	if err != nil {
		return err
	}
	defer unix.Unmount(dir, 0)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text\n"), 0o600); err != nil {
		return err
	}
	unix.Sync()
	heal, err := freeze(dir)
	if err != nil {
		return err
	}
	fmt.Println("dir", dir)
	var cmds []*exec.Cmd
	for _, v := range victims {
		op, file, _ := strings.Cut(v, " ")
		at := dir
		if op == "link" { // by a path that leads through a link outside
			at = filepath.Join(work, "link")
			if err := os.Symlink(dir, at); err != nil {
				heal()
				return err
			}
		}
		c, err := spawn(op, filepath.Join(at, file))
		if err != nil {
			heal()
			return err
		}
		cmds = append(cmds, c)
		fmt.Println(op, c.Process.Pid)
	}
	ready()
	endOfInput()
	heal()
	for _, c := range cmds {
		_ = c.Wait()
	}
	return nil
}

// mountExt4 makes a file system in a file of a directory, and mounts it there.
func mountExt4(work string, size int64) (dir string, err error) {
	img, dir := filepath.Join(work, "img"), filepath.Join(work, "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		return "", err
	}
	if err := os.Truncate(img, size); err != nil {
		return "", err
	}
	for _, c := range [][]string{{"mkfs.ext4", "-q", img}, {"mount", "-o", "loop", img, dir}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", c, err, out)
		}
	}
	return dir, nil
}

// freeze freezes a file system until heal is called, or for healAfter.
func freeze(dir string) (heal func(), err error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	const fifreeze, fithaw = 0xc0045877, 0xc0045878
	if err := unix.IoctlSetInt(int(root.Fd()), fifreeze, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("freeze: %w", err), root.Close())
	}
	heal = sync.OnceFunc(func() {
		_ = unix.IoctlSetInt(int(root.Fd()), fithaw, 0)
		_ = root.Close()
	})
	time.AfterFunc(healAfter, heal)
	return heal, nil
}

// sceneDeadDisk has a file system on a disk that takes requests and completes none: the
// file behind it lies in another one, which is frozen.
func sceneDeadDisk() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "disk-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	below, err := mountExt4(work, 64<<20)
	if err != nil {
		return err
	}
	defer unix.Unmount(below, 0)
	dir, err := mountExt4(below, 16<<20)
	if err != nil {
		return err
	}
	defer unix.Unmount(dir, 0)
	unix.Sync()
	heal, err := freeze(below)
	if err != nil {
		return err
	}
	defer heal()
	c, err := spawn("sync", filepath.Join(dir, "file"))
	if err != nil {
		return err
	}
	fmt.Println("dir", dir)
	fmt.Println("sync", c.Process.Pid)
	ready()
	endOfInput()
	heal()
	return c.Wait()
}

// sceneMounts makes many mounts in a mount namespace of its own.
func sceneMounts(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mounts-*")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("many", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	for i := range n {
		d := filepath.Join(dir, fmt.Sprintf("a blank\\and\ttab %d", i))
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(d, d, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	fmt.Println("dir", dir)
	ready()
	endOfInput()
	return nil
}

func shimCommands(directory, id string) error {
	if err := os.WriteFile("/proc/self/comm", []byte("containerd-shim-runc-v2"), 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	runc := filepath.Join(directory, "runc")
	if err := os.WriteFile(runc, []byte("#!/bin/sh\nsleep 600\ntrue\n"), 0o755); err != nil {
		return err
	}
	about := func(id string) []string { return []string{"--root", "/run/x", "--log", "/run/log", "kill", id, "9"} }
	another := exec.Command(runc, about(strings.Repeat("e", len(id)))...)
	apart := exec.Command(runc, about(id)...)
	apart.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command := exec.Command(runc, about(id)...)
	for _, c := range []*exec.Cmd{another, apart, command, exec.Command("/bin/sleep", "600")} {
		if err := c.Start(); err != nil {
			return err
		}
	}
	leaves := exec.Command("/bin/sh", "-c", "sleep 600 </dev/null & echo $!")
	output, err := leaves.StdoutPipe()
	if err != nil {
		return err
	}
	if err := leaves.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return err
	}
	if _, err := leaves.Process.Wait(); err != nil { // which does not close the pipe
		return err
	}
	fmt.Println("command", command.Process.Pid)
	fmt.Println("left", strings.TrimSpace(line))
	ready()
	time.Sleep(time.Hour)
	return nil
}

// sleepers starts so many processes of a program that sleeps, each with files open besides, and ends with them when nobody writes to it
// any more.
func sleepers(n int, program string, files ...*os.File) error {
	runtime.LockOSThread()
	for range n {
		c := exec.Command(program, "3600")
		c.ExtraFiles = files
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return err
		}
		fmt.Println("child", c.Process.Pid)
	}
	ready()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return syscall.Kill(0, syscall.SIGKILL)
}
