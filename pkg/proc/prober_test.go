package proc

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func ownTask() request {
	return request{What: askTask, Proc: "/proc", PID: os.Getpid(), TID: os.Getpid()}
}

// A helper that is slow, or gone, is no hang of the task that it was asked for.
func TestProberHelperTrouble(t *testing.T) {
	h := newHost(t)
	p := h.Prober
	p.Timeout = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := p.ask(ctx, ownTask()); err != nil {
		t.Fatal(err)
	}
	if err := p.usual.helper.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ask(ctx, ownTask()); !errors.Is(err, errStarved) || p.Hangs() != 0 {
		t.Errorf("a stopped helper: %v, %d hangs", err, p.Hangs())
	}
	if _, err := p.ask(ctx, ownTask()); err != nil {
		t.Fatal(err)
	}
	if err := p.usual.helper.process.Kill(); err != nil {
		t.Fatal(err)
	}
	if s, err := p.ask(ctx, ownTask()); err != nil || s.Start == 0 {
		t.Errorf("after the helper was killed: %+v, %v", s, err)
	}
	if n := p.Restarts(); n != 2 {
		t.Errorf("%d restarts", n)
	}
	eventually(t, "helpers reaped", func() bool { return p.Abandoned() == 0 })

	if s, err := p.ask(ctx, request{What: askTask, Proc: "/proc", PID: 1 << 22, TID: 1 << 22}); err != nil || !s.Gone {
		t.Errorf("no such task: %+v, %v", s, err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := p.ask(ctx, ownTask()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p.Close()
	p.Close()
	if _, err := p.ask(ctx, ownTask()); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Helpers that cannot be ended are few, and said to be there.
func TestProberTooManyAbandoned(t *testing.T) {
	h := newHost(t)
	v := start(t, 0, "sleep")
	h.Prober.MaxAbandoned = 1
	h.Prober.abandoned = []abandoned{{pid: v.pid()}} // lives on
	s := &status{Task: evidence.Task{PID: os.Getpid(), TID: os.Getpid()}}
	err := h.probe(context.Background(), s, &tables{Round: h.Round()}, "")
	if err == nil || !strings.Contains(err.Error(), "1 helper processes") || s.Probe != nil || h.Prober.Refused() != 1 {
		t.Errorf("%v, %d refused", err, h.Prober.Refused())
	}
	h.Prober.abandoned = nil
	if err := h.probe(context.Background(), s, &tables{Round: h.Round()}, ""); err != nil || s.Probe == nil {
		t.Error(err)
	}
}

func TestProberCannotStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, argv := range [][]string{{"/no/such/program"}, {"/bin/true"}} {
		p := &Prober{Argv: argv}
		if _, err := p.ask(ctx, ownTask()); err == nil {
			t.Errorf("%v is a helper", argv)
		}
		p.Close()
	}
}
