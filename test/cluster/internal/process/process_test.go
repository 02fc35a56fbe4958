package process

import (
	"context"
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	stat := "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654 10 11"
	state, threads, start, err := parseStat(stat)
	if err != nil || state != "S" || threads != 3 || start != 987654 {
		t.Errorf("parseStat = %s, %d, %d, %v", state, threads, start, err)
	}
	for _, broken := range []string{"", "42 (a", "42 (a) S 1"} {
		if _, _, _, err := parseStat(broken); err == nil {
			t.Errorf("parseStat(%q) gives no error", broken)
		}
	}
}

func TestAnotherProcessWithTheSamePIDIsNotOurs(t *testing.T) {
	own, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !own.Alive() {
		t.Error("this process is not alive")
	}
	own.StartTime++
	if own.Alive() {
		t.Error("a process that started at another time passes for the same")
	}
}

func TestStartAndStop(t *testing.T) {
	d := Dir{Pids: t.TempDir(), Logs: t.TempDir()}
	for name, test := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"polite":   {"echo up; exec sleep 60", 10 * time.Second},
		"stubborn": {"trap '' TERM; echo up; while :; do sleep 1; done", 300 * time.Millisecond},
		"killed":   {"echo up; exec sleep 60", 0},
	} {
		p, err := d.Start(name, []string{"sh", "-c", test.script}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 6000 {
			if out, err := os.ReadFile(d.Log(name)); err == nil && string(out) == "up\n" {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := d.Start(name, []string{"true"}, nil); err == nil {
			t.Errorf("%s: started twice", name)
		}
		if err := d.Stop(context.Background(), name, test.grace); err != nil {
			t.Error(err)
		}
		if p.Alive() {
			t.Errorf("%s: still alive", name)
		}
	}
	if names := d.Names(); len(names) != 0 {
		t.Errorf("pid files of %v are left", names)
	}
}
