// Package process starts programs that outlive the command that started them,
// and finds them again without ever mistaking another program for them.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Dir holds one pid file per program, NAME.json, and its output, NAME.log.
type Dir struct{ Pids, Logs string }

// Process identifies one process for as long as the machine is up: a pid is used
// again after a while, a pid together with its start time is not.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // clock ticks since boot, field 22 of /proc/PID/stat
	BootID    string `json:"bootID"`    // another boot, another count of ticks
}

// Log is the file that the program of that name writes to.
func (d Dir) Log(name string) string { return filepath.Join(d.Logs, name+".log") }

func (d Dir) pidFile(name string) string { return filepath.Join(d.Pids, name+".json") }

// Start runs argv in a session of its own, with output appended to its log.
func (d Dir) Start(name string, argv []string, env []string) (Process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	return d.StartCommand(name, cmd)
}

// StartCommand is Start for a program that needs more, such as open files or namespaces.
func (d Dir) StartCommand(name string, cmd *exec.Cmd) (Process, error) {
	if p, err := d.Find(name); err != nil {
		return Process{}, err
	} else if p.Alive() {
		return p, fmt.Errorf("%s runs already as process %d", name, p.PID)
	}
	log, err := os.OpenFile(d.Log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Process{}, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = d.Logs
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	// A pipe that this command has from its caller would stay open for as long as the program lives.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err := cmd.Start(); err != nil {
		return Process{}, fmt.Errorf("start %s: %w", name, err)
	}
	// Reap it if it ends while this command still runs; later init does.
	go func() { _ = cmd.Wait() }()
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		return Process{}, fmt.Errorf("%s ended at once; read %s: %w", name, d.Log(name), err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return Process{}, err
	}
	if err := os.WriteFile(d.pidFile(name), data, 0o644); err != nil {
		_ = cmd.Process.Kill()
		return Process{}, fmt.Errorf("write pid file of %s: %w", name, err)
	}
	return p, nil
}

// Find reads the pid file of a program. Without one it returns the zero Process,
// which is not alive.
func (d Dir) Find(name string) (Process, error) {
	data, err := os.ReadFile(d.pidFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Process{}, nil
	}
	if err != nil {
		return Process{}, fmt.Errorf("read pid file of %s: %w", name, err)
	}
	var p Process
	if err := json.Unmarshal(data, &p); err != nil {
		// The file is written in one go; a torn one means that the machine went down.
		return Process{}, nil
	}
	return p, nil
}

// Names lists the programs that have a pid file.
func (d Dir) Names() []string {
	files, _ := filepath.Glob(filepath.Join(d.Pids, "*.json"))
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".json"))
	}
	return names
}

// Stop asks the program to end, kills it when it has not done so within grace, and
// returns when the process is gone. With no grace it is killed at once.
func (d Dir) Stop(ctx context.Context, name string, grace time.Duration) error {
	p, err := d.Find(name)
	if err != nil {
		return err
	}
	if grace > 0 {
		if err := p.signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop %s: %w", name, err)
		}
	}
	deadline := time.Now().Add(grace)
	for killed := false; p.Alive(); {
		if !killed && !time.Now().Before(deadline) {
			killed = true
			if err := p.signal(syscall.SIGKILL); err != nil {
				return fmt.Errorf("kill %s: %w", name, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of %s (process %d): %w", name, p.PID, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := os.Remove(d.pidFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pid file of %s: %w", name, err)
	}
	return nil
}

// signal sends a signal to exactly this process; one that has ended is no error. The
// handle is opened before the process is checked, so the pid cannot pass to another in between.
func (p Process) signal(sig syscall.Signal) error {
	if p.PID <= 0 {
		return nil
	}
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if !p.Alive() {
		return nil
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// Alive says whether exactly this process still runs. A zombie does not.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	now, err := identify(p.PID)
	return err == nil && now == p
}

func identify(pid int) (Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	state, threads, start, err := parseStat(string(data))
	if err != nil {
		return Process{}, fmt.Errorf("parse stat of process %d: %w", pid, err)
	}
	// A killed process is a zombie while its other threads still end, and holds its
	// ports until the last one has.
	if (state == "Z" && threads <= 1) || state == "X" {
		return Process{}, fmt.Errorf("process %d has ended", pid)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, StartTime: start, BootID: strings.TrimSpace(string(boot))}, nil
}

// parseStat returns state, number of threads and start time. The name in parentheses may itself hold
// spaces and parentheses, so the fields are counted from the last one.
func parseStat(stat string) (state string, threads int, start uint64, err error) {
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return "", 0, 0, errors.New("no name in parentheses")
	}
	fields := strings.Fields(stat[i+1:])
	if len(fields) < 20 {
		return "", 0, 0, fmt.Errorf("%d fields behind the name, want 20", len(fields))
	}
	if threads, err = strconv.Atoi(fields[17]); err != nil {
		return "", 0, 0, err
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0], threads, start, err
}
