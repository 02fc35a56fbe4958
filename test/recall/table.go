package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// document is where the table of the last whole run is.
const document = "docs/recall.md"

// enough is the part of the pods that burn their grace period of which the cause has to be told.
const enough = 0.95

// A result is what became of a cell.
type result struct {
	Name      string  `json:"name"`
	Shape     string  `json:"shape"`
	StandIn   string  `json:"standIn,omitempty"`
	Hook      string  `json:"hook"`
	Behaviour string  `json:"behaviour"`
	Container string  `json:"container"`
	Node      string  `json:"node"`
	Grace     int64   `json:"grace"`          // seconds
	Want      string  `json:"want,omitempty"` // the causes that are true
	Why       string  `json:"why"`
	Ending    ending  `json:"ending"`
	Outcome   outcome `json:"outcome"`
	// Because says what is wrong, of a cell that is.
	Because  string    `json:"because,omitempty"`
	Verdicts []verdict `json:"verdicts,omitempty"`
}

// A table is one run.
type table struct {
	commit, on string
	results    []result
	// What the agents have counted: containers that were killed at their deadline, those of them without a cause, and verdicts that were held
	// back, because too many were due at a time.
	killed, unexplained, heldBack int
}

// causes lists those of which each is true.
func causes(accepts []told) string {
	var out []string
	for _, t := range accepts {
		out = append(out, t.cause)
	}
	return strings.Join(out, " or ")
}

// of counts the results with an outcome.
func (t table) of(o outcome) int {
	n := 0
	for _, e := range t.results {
		if e.Outcome == o {
			n++
		}
	}
	return n
}

// burnt counts the pods that burnt their grace period, as they had to.
func (t table) burnt() int { return t.of(right) + t.of(wrong) + t.of(missed) }

// recall is the part of those of which the cause was told.
func (t table) recall() float64 {
	if t.burnt() == 0 {
		return 1
	}
	return float64(t.of(right)) / float64(t.burnt())
}

// verdict is an error when the agent tells too little or too much, or a pod did not end as its cell says.
func (t table) verdict() error {
	var errs []error
	if t.recall() < enough {
		errs = append(errs, fmt.Errorf("the cause was told of %d of %d pods that burnt their grace period, want %.0f %%", t.of(right), t.burnt(), 100*enough))
	}
	if n := t.of(accused); n > 0 {
		errs = append(errs, fmt.Errorf("%d pods that ended in time were accused", n))
	}
	if t.heldBack > 0 { // then nothing can be said of what was missed
		errs = append(errs, fmt.Errorf("the agents have held %d verdicts back", t.heldBack))
	}
	if n := t.of(otherwise); n > 0 {
		errs = append(errs, fmt.Errorf("%d pods did not end as their cells say, so that nothing can be said of the agent there", n))
	}
	return errors.Join(errs...)
}

// sum counts.
func (t table) sum() string {
	s := fmt.Sprintf("%d cells: %d burnt their grace period: %d told right, %d told wrong, %d missed: %.0f %%; %d ended in time: %d accused",
		len(t.results), t.burnt(), t.of(right), t.of(wrong), t.of(missed), 100*t.recall(), t.of(silent)+t.of(accused), t.of(accused))
	if n := t.of(otherwise); n > 0 {
		s += fmt.Sprintf("; %d ended otherwise than they had to", n)
	}
	return s
}

// counted is what the agents have counted themselves, as each installed one does.
func (t table) counted() string {
	return fmt.Sprintf("Counted by the agents: %d containers killed at the deadline, %d of them without a cause", t.killed, t.unexplained)
}

// folder is where a run leaves its results.
func folder() string { return filepath.Join(bed.Root(), "bin", "recall") }

// keep writes all of it to bin/recall.
func (t table) keep() error {
	data, err := json.MarshalIndent(t.results, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder(), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder(), "results.json"), data, 0o644)
}

var head = []string{"shape", "hook", "behaviour", "ended after", "true cause", "told", "outcome"}

// cells are what a row of the table has, below head.
func (e result) cells() []string {
	var told []string
	for _, v := range e.Verdicts {
		told = append(told, fmt.Sprintf("%s, %.0f s", v.Cause, v.After.Seconds()))
	}
	shape := e.Shape
	if e.StandIn != "" {
		shape += " *"
	}
	ended := fmt.Sprintf("%.0f of %d s", e.Ending.After.Seconds(), e.Grace)
	if e.Ending.Killed {
		ended += ", killed"
	}
	want := e.Want
	if want == "" {
		want = "(innocent)"
	}
	return []string{shape, e.Hook, e.Behaviour, ended, want, strings.Join(told, "; "), string(e.Outcome)}
}

// rows is the table for a terminal, and what is wrong below it.
func (t table) rows() string {
	var b strings.Builder
	line := func(c []string) {
		fmt.Fprintf(&b, "%-14s %-16s %-19s %-20s %-36s %-36s %s\n", c[0], c[1], c[2], c[3], c[4], c[5], c[6])
	}
	b.WriteByte('\n')
	line(head)
	for _, e := range t.results {
		line(e.cells())
	}
	b.WriteByte('\n')
	for _, e := range t.results {
		if e.Because != "" {
			fmt.Fprintf(&b, "%s: %s: %.400s\n", e.Name, e.Outcome, strings.Join(strings.Fields(e.Because), " "))
		}
	}
	return b.String()
}

// markdown is the table as docs/recall.md has it.
func (t table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Recall

Of the pods that burn their grace period, how many does nodeagent tell the cause of? `+"`make recall`"+` runs twenty shapes of everyday images
on a real kubelet, containerd and kernel, crossed with preStop hooks and with what the program does when it is asked to stop, so that each two of these come
together. It deletes each pod, waits until it is gone, and compares. Written by it.

- A pod has burnt its grace period when its container was ended by SIGKILL at the deadline, by the last status in the API.
- It is told right when the cause and the container are, and where one program waits for another one below it, that one. Each other verdict is wrong.
- A pod that ended in time is innocent. Anything that is said of it accuses it.
- At least %.0f %% have to be told right, and no innocent one accused.

The programs are Debian's, but for stand-ins (*): %s.

- Commit: %s
- Date: %s
- On: %s
- %s
- %s

`, 100*enough, t.standIns(), t.commit, time.Now().UTC().Format(time.DateOnly), t.on, t.sum(), t.counted())
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, e := range t.results {
		line(e.cells())
	}
	b.WriteString("\n## What the programs do\n\n")
	line([]string{"shape", "behaviour", "what it does with its stop signal", "true cause"})
	line(slices.Repeat([]string{"---"}, 4))
	for _, s := range shapes() {
		for _, a := range behaviours {
			if p, ok := s.programs[a]; ok {
				line([]string{s.what, string(a), p.why, causes(p.burns)})
			}
		}
	}
	b.WriteString("\nA shell without exec runs the program that ends in time, and waits for it: ShellPID1NoTrap.\n")
	b.WriteString("A drain script waits until nobody has a connection to the program. Where a client holds one, the script itself uses up\n" +
		"the grace period (PreStopHookRunning).\n")
	return b.String()
}

// standIns says what the stand-ins stand in for.
func (t table) standIns() string {
	var out []string
	for _, s := range shapes() {
		if s.standIn != "" {
			out = append(out, fmt.Sprintf("%s for %s", s.what, s.standIn))
		}
	}
	return strings.Join(out, "; ")
}
