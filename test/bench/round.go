package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// The node of which a round is measured: pods whose containers have ended, long past
// their deadline, and the mounts of their volumes.
const (
	latePods   = 250
	lateMounts = 5000
	turns      = 4
)

// A roundCost is what the cheapest of some rounds has taken, because other work on the
// machine only ever adds: CPU time, the helper's part too.
type roundCost struct {
	CPU time.Duration
	// Mounts is how many mounts were found of the pods in one round.
	Mounts int
}

// round measures what a round costs on a node on which many pods hang on their volumes,
// in namespaces of its own, and counts under strace what it reads of what they share. The
// cost of the mounts is the difference to the same round with one mount for each pod.
func round(ctx context.Context) ([]row, error) {
	// By turns, so that a busy moment of the machine is one of both.
	var all, few roundCost
	for range turns {
		for mounts, least := range map[int]*roundCost{lateMounts: &all, latePods: &few} {
			cost, _, err := costOf(ctx, false, mounts)
			if err != nil {
				return nil, err
			}
			if least.CPU == 0 || cost.CPU < least.CPU {
				*least = *cost
			}
		}
	}
	_, text, err := costOf(ctx, true, lateMounts)
	if err != nil {
		return nil, err
	}
	tables := len(hostTable.FindAllString(text, -1))
	lists := len(procListed.FindAllString(text, -1))
	if tables == 0 || lists == 0 {
		return nil, errors.New("strace shows no mount table and no list of processes: its output is not understood")
	}
	mounts := max(0, all.CPU-few.CPU)
	return []row{
		{what: fmt.Sprintf("A round of %d late pods, %d mounts: CPU", latePods, all.Mounts), measured: milliseconds(float64(all.CPU))},
		{what: fmt.Sprintf("  more than with %d mounts", few.Mounts), target: "≤50 ms", measured: milliseconds(float64(mounts)), met: mounts <= 50*time.Millisecond},
		{what: "  mount tables of the host read", target: "1", measured: strconv.Itoa(tables), met: tables == 1},
		{what: "  listings of /proc", target: "1", measured: strconv.Itoa(lists), met: lists == 1},
	}, nil
}

// The host's mount table is opened, and what the list of all processes ends with.
var (
	hostTable  = regexp.MustCompile(`(?m)openat2?\([^"\n]*"(?:/proc/)?1/mountinfo"`)
	procListed = regexp.MustCompile(`(?m)getdents64\(\d+</proc>, [^\n]*= 0$`)
)

// costOf has this program make the node and read it: some times, or once under strace.
func costOf(ctx context.Context, traced bool, mounts int) (*roundCost, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	times, log := "15", filepath.Join(dir, "strace")
	read := []string{self, "rounds", dir, strconv.Itoa(mounts)}
	if traced {
		times = "1"
		read = append([]string{"strace", "-f", "-y", "-qq", "-e", "trace=openat,openat2,getdents64", "-o", log}, read...)
	}
	// What is mounted there ends with the namespace; its first process is the host's for
	// the round.
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c",
		`"$@" & wait $!`, "sh"}, append(read, times)...)...)
	var printed, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &errs
	if err := cmd.Run(); err != nil {
		return nil, "", fmt.Errorf("rounds: %w\n%s", err, indent(errs.String()))
	}
	var cost roundCost
	if err := json.Unmarshal(printed.Bytes(), &cost); err != nil {
		return nil, "", fmt.Errorf("what the rounds cost: %w", err)
	}
	if !traced {
		return &cost, "", nil
	}
	text, err := os.ReadFile(log)
	return &cost, string(text), err
}

// readRounds mounts what pods have and reads all of them, and prints what that has cost.
// It is in a mount namespace and a PID namespace of its own.
func readRounds(args []string) error {
	if len(args) != 3 {
		return errors.New("give a directory, and how many mounts and rounds")
	}
	mounts, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	times, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	kubelet := filepath.Join(args[0], "kubelet")
	for i := range mounts {
		dir := filepath.Join(kubelet, "pods", lateUID(i%latePods), "volumes", "kubernetes.io~nfs", fmt.Sprintf("vol-%d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	h := &proc.Host{Proc: "/proc", Cgroup: "/sys/fs/cgroup", KubeletDir: kubelet, Prober: new(probe.Prober)}
	defer h.Prober.Close()
	var cost roundCost
	for range times {
		before, err := used()
		if err != nil {
			return err
		}
		before += h.Prober.Spent()
		cost.Mounts = 0
		r := h.Round()
		for i := range latePods {
			p := &evidence.Pod{
				Time: time.Now(), UID: lateUID(i), RuntimeUID: lateUID(i), Phase: "Failed", Deadline: time.Now().Add(-time.Minute),
				Containers: []evidence.Container{
					{Name: "main", Kind: evidence.App, ID: strings.Repeat("ab", 32), State: evidence.StateExited},
					{Kind: evidence.Sandbox, ID: strings.Repeat("cd", 32), State: evidence.StateExited},
				},
			}
			r.ReadPod(context.Background(), p)
			cost.Mounts += len(p.Mounts)
		}
		after, err := used()
		if err != nil {
			return err
		}
		if took := after + h.Prober.Spent() - before; cost.CPU == 0 || took < cost.CPU {
			cost.CPU = took
		}
	}
	return json.NewEncoder(os.Stdout).Encode(cost)
}

func lateUID(i int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", i) }

// used returns the CPU time that this process has taken.
func used() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
