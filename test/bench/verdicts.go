package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The limits of the verdicts' latencies: from the deadline or, where the cause
// is known before, from the deletion, to the Event. The condition is written
// before the Event.
var limits = []struct {
	scenario     string
	fromDeletion bool
	limit        time.Duration
}{
	{"shell-pid1", true, 8 * time.Second},
	{"sleep-pid1", true, 8 * time.Second},
	{"frozen-filesystem", false, 10 * time.Second},
	{"zombie-leader", false, 10 * time.Second},
	{"finalizer", false, 10 * time.Second},
	{"nfs-server-gone", false, 15 * time.Second},
	{"shim-stopped", false, 15 * time.Second},
	{"containerd-stopped", false, 15 * time.Second},
}

// A verdict is a line of the table that the tests of test/e2e leave.
type verdict struct {
	scenario           string
	told               bool
	deletion, deadline time.Duration // to the Event
}

// verdicts reads the table of the last run of the tests on the cluster. That
// there is none is no failure: the run takes longer than all the rest here.
func verdicts(context.Context) ([]row, error) {
	dir := os.Getenv("NODEAGENT_ARTIFACTS")
	path := filepath.Join(dir, "verdicts-v2.txt")
	hint := []row{{what: "Latency of verdicts", measured: "run make e2e first, both with NODEAGENT_ARTIFACTS=DIR"}}
	if dir == "" {
		return hint, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return hint, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := parseVerdicts(string(text))
	rows := []row{{what: "Latency of verdicts", measured: "in the run that ended " + info.ModTime().Format(time.RFC3339)}}
	for _, l := range limits {
		r := row{what: "  " + l.scenario + ": deadline to Event"}
		if l.fromDeletion {
			r.what = "  " + l.scenario + ": deletion to Event"
		}
		r.target = "≤" + l.limit.String()
		i := slices.IndexFunc(found, func(v verdict) bool { return v.scenario == l.scenario })
		switch {
		case i < 0:
			r.target, r.measured = "", "not in the run"
		case !found[i].told:
			r.measured = "no verdict"
		default:
			v := found[i].deadline
			if l.fromDeletion {
				v = found[i].deletion
			}
			r.measured, r.met = v.String(), v <= l.limit
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// parseVerdicts reads lines of scenario, cause, verdict and, of those that were
// told, the time from the deletion and from the deadline.
func parseVerdicts(text string) []verdict {
	var out []verdict
	inTable := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || !inTable {
			inTable = len(f) > 0 && f[0] == "SCENARIO"
			continue
		}
		v := verdict{scenario: f[0]}
		if len(f) >= 5 && f[2] == "true" {
			var err, err2 error
			v.deletion, err = time.ParseDuration(f[3])
			v.deadline, err2 = time.ParseDuration(f[4])
			v.told = err == nil && err2 == nil
		}
		out = append(out, v)
	}
	return out
}
