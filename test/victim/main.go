// Victim is the program in the test pods that gets into trouble on purpose. It
// is static, so that it runs in an image of nothing else.
package main

import (
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nodeagent-io/nodeagent/test/hostile"
)

// The main goroutine stays on the process's first thread, so that this thread
// can end while others live.
func init() { runtime.LockOSThread() }

const usage = `victim write PATH            writes to the file again and again
victim dirty PATH            keeps dirty pages of the file, which it has closed
victim leader-exits SECONDS  its first thread ends after that time, others live on
victim drain SECONDS         ends that long after SIGTERM
victim serve PATH            answers HTTP requests for the path, on port 8080, and no others; does not heed SIGTERM
victim scan PATH             lets everybody who opens the file, or what is in the directory, wait for 0.3 seconds
victim scan-slowly PATH      lets them wait for 5 seconds
victim scan-never PATH       lets them wait without end
victim map PATH              makes the file and maps it, and does not keep it open
victim shims COUNTxBYTES     starts processes that call themselves shims, with command lines of that length
victim mounts COUNTxBYTES    makes mounts with names of that length, and processes that are stopped among them` + signalsUsage + kernelUsage + uringUsage + `
victim MODE-in-thread ARG    does any of these in a second thread`

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	mode, inThread := strings.CutSuffix(os.Args[1], "-in-thread")
	if inThread {
		go func() {
			runtime.LockOSThread()
			end(run(mode, os.Args[2]))
		}()
		select {}
	}
	end(run(mode, os.Args[2]))
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(mode, arg string) error {
	switch mode {
	case "write":
		return write(arg)
	case "leader-exits":
		return leaderExits(arg)
	case "dirty":
		return dirty(arg)
	case "read", "close", "stat", "sync", "lock", "hold", "finish", "exec", "fault", "vfork", "seize":
		return kernelVictims[mode](arg)
	case "term-only", "burn", "allocate", "dump", "trace-stop", "trace-exit", "trace-follow":
		return signals(mode, arg)
	case "uring-read", "uring-write", "uring-poll-read", "uring-lock", "uring-idle", "uring-ignore":
		return uring(mode, arg)
	case "map":
		return mapFile(arg)
	case "shims":
		return shims(arg)
	case "shim":
		size, err := strconv.Atoi(arg)
		if err == nil {
			err = hostile.Impersonate(size)
		}
		if err != nil {
			return err
		}
		return sleep()
	case "mounts":
		return mounts(arg)
	case "scan":
		return scan(arg, 300*time.Millisecond)
	case "scan-slowly":
		return scan(arg, 5*time.Second)
	case "scan-never":
		return scan(arg, math.MaxInt64)
	case "drain":
		return drain(arg)
	case "serve":
		return serve(arg)
	}
	return fmt.Errorf("victim does not know %q\n%s", mode, usage)
}

func write(path string) error {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	for {
		if _, err := syscall.Pwrite(fd, make([]byte, 4096), 0); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// dirty maps the file and makes one page after the other dirty. The kernel writes
// them back later, and nobody waits for that when the process ends: unlike
// close(2), the end of a mapping flushes nothing. The pages are so far apart that no two are of one
// folio: who writes to a folio that is being written back waits for that, and not even SIGKILL ends it.
func dirty(path string) error {
	const apart = 2 << 20 // bytes
	mem, err := mapped(path, 4096*apart)
	if err != nil {
		return err
	}
	for i := 0; i < len(mem); i += apart {
		mem[i] = 1
		time.Sleep(200 * time.Millisecond)
	}
	select {}
}

const page = 4096 // bytes

// mapped makes a sparse file of some bytes, maps it and closes it.
func mapped(path string, size int) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := syscall.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("size %s: %w", path, err)
	}
	mem, err := syscall.Mmap(fd, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	if err := syscall.Close(fd); err != nil {
		return nil, fmt.Errorf("close %s: %w", path, err)
	}
	return mem, nil
}

// leaderExits ends the first thread. exit(2) ends no other: the process lives
// on, and its first thread is a zombie until the last one has ended.
func leaderExits(seconds string) error {
	d, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return fmt.Errorf("time: %w", err)
	}
	go func() {
		for {
			time.Sleep(time.Second)
		}
	}()
	time.Sleep(d)
	_, _, errno := syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	return errno
}

func drain(seconds string) error {
	d, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return fmt.Errorf("drain time: %w", err)
	}
	<-catchTERM()
	time.Sleep(d)
	return nil
}

// serve takes connections on port 8080 and keeps them open, whether it answers what is asked over
// them or not.
func serve(path string) error {
	l, err := net.Listen("tcp", ":8080")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	catchTERM() // and never heed it
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go answer(c, path)
	}
}

// answer answers those of the HTTP requests that come over a connection that are for the path.
func answer(c net.Conn, path string) {
	defer c.Close()
	for request := make([]byte, 4096); ; {
		n, err := c.Read(request)
		if err != nil {
			return
		}
		if !strings.HasPrefix(string(request[:n]), "GET "+path+" ") {
			continue
		}
		if _, err := c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")); err != nil {
			return
		}
	}
}

// mapFile is what a program does to a library that it loads.
func mapFile(path string) error {
	const size = 4096
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	if _, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED); err != nil {
		return fmt.Errorf("map %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	time.Sleep(math.MaxInt64)
	return nil
}

// mounts mounts a directory on others, in a mount namespace of its own, and stays with
// processes that see all of that and are stopped, as many as an agent looks at.
func mounts(arg string) error {
	const stopped = 63
	catchTERM() // and never heed it
	var count, size int
	if _, err := fmt.Sscanf(arg, "%dx%d", &count, &size); err != nil {
		return fmt.Errorf("COUNTxBYTES: %w", err)
	}
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	dir := "/m"
	for len(dir)+10 < size {
		dir += "/" + strings.Repeat("x", min(size-len(dir)-10, 250))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range count {
		point := fmt.Sprintf("%s/%d", dir, i)
		if err := os.Mkdir(point, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount("/proc", point, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", point, err)
		}
	}
	for range stopped {
		c := exec.Command("/proc/self/exe", "drain", "3600")
		if err := c.Start(); err != nil {
			return err
		}
		if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
	}
	select {}
}

// catchTERM asks for SIGTERM from now on, and says so with a file: Go's runtime
// catches every signal from its start, so the process's masks do not show it.
func catchTERM() <-chan os.Signal {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if err := os.WriteFile("/ready", nil, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return stop
}

// shims starts processes that call themselves shims.
func shims(arg string) error {
	var count, size int
	if _, err := fmt.Sscanf(arg, "%dx%d", &count, &size); err != nil {
		return err
	}
	for range count {
		c := exec.Command("/proc/self/exe", "shim", strconv.Itoa(size))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return err
		}
	}
	return sleep()
}

// sleep waits without end. A program of which all goroutines wait for each other ends.
func sleep() error {
	for {
		time.Sleep(time.Hour)
	}
}
