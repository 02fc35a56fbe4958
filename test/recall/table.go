package main

import (
	"context"
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
	// First is what the Event says to do first. Remedy is how it is done to the pod, or why it is not, and Remedied what became of that: "" where it
	// is not done, works, or what is wrong.
	First    string `json:"first,omitempty"`
	Own      bool   `json:"own,omitempty"` // nothing but the program itself can be changed
	Remedy   string `json:"remedy,omitempty"`
	Remedied string `json:"remedied,omitempty"`
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

// enoughWork is the part of the remedies that were done that have to work, and enoughNamed the part of the pods told right whose Event has to name
// one that can be done.
const (
	enoughWork  = 0.95
	enoughNamed = 0.80
	itWorks     = "works"
)

// remedy does to each pod of which the cause was told what its Event says to do first, and deletes it again.
func (t *table) remedy(ctx context.Context, c *bed.Cluster, cells []cell) error {
	handled := make(map[string]int32) // exit codes, by shape
	var some []cell
	var of []int
	for i, e := range t.results {
		if e.Outcome == silent {
			handled[e.Shape] = e.Ending.Code
		}
		if e.Outcome != right {
			continue
		}
		after, ok, why := cells[i].remedied(e.First)
		if t.results[i].Remedy = why; ok {
			t.results[i].Remedy = after.remedy.name
			some, of = append(some, after), append(of, i)
		}
	}
	if len(some) == 0 {
		return nil
	}
	results, err := measure(ctx, c, some)
	if err != nil {
		return err
	}
	for i, e := range results {
		of := &t.results[of[i]]
		if of.Remedied = itWorks; e.Ending.After == 0 && e.Because != "" {
			of.Remedied = e.Because
		} else if wrong := works(some[i], e.Ending, handled[of.Shape]); wrong != "" {
			of.Remedied = wrong
		}
		if len(e.Verdicts) > 0 && of.Remedied == itWorks {
			of.Remedied = "it is accused: " + e.Verdicts[0].Note
		}
	}
	return nil
}

// remedies counts the pods of which the cause was told, those whose Event names what was done to them, and those for which that works.
func (t table) remedies() (told, done, work int) {
	for _, e := range t.results {
		if e.Outcome != right || e.Own && e.Remedied == "" {
			continue
		}
		told++
		if e.Remedied != "" {
			done++
		}
		if e.Remedied == itWorks {
			work++
		}
	}
	return told, done, work
}

// remediesSum says so.
func (t table) remediesSum() string {
	told, done, work := t.remedies()
	return fmt.Sprintf("Of %d pods told right whose image or manifest can be changed, %d Events name a remedy that can be done, and %d of these work", told, done, work)
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
	told, done, work := t.remedies()
	if float64(work) < enoughWork*float64(done) {
		errs = append(errs, fmt.Errorf("%d of %d remedies work, want %.0f %%", work, done, 100*enoughWork))
	}
	if float64(done) < enoughNamed*float64(told) {
		errs = append(errs, fmt.Errorf("%d of %d Events name a remedy that can be done, want %.0f %%", done, told, 100*enoughNamed))
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

var head = []string{"shape", "hook", "behaviour", "ended after", "true cause", "told", "outcome", "remedy"}

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
	return []string{shape, e.Hook, e.Behaviour, ended, want, strings.Join(told, "; "), string(e.Outcome), e.remedyCell()}
}

// remedyCell is what was done to the pod, and what came of it.
func (e result) remedyCell() string {
	if e.Remedied == "" {
		return e.Remedy
	}
	return e.Remedy + ": " + e.Remedied
}

// rows is the table for a terminal, and what is wrong below it.
func (t table) rows() string {
	var b strings.Builder
	line := func(c []string) {
		fmt.Fprintf(&b, "%-14s %-16s %-19s %-20s %-36s %-36s %-12s %s\n", c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7])
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

Of the pods that burn their grace period, how many does nodeagent tell the cause of? `+"`make recall`"+` runs 27 shapes of everyday images
on a real kubelet, containerd and kernel, crossed with preStop hooks and with what the program does when it is asked to stop, so that each two of these come
together. It deletes each pod, waits until it is gone, and compares. Written by it.

- A pod has burnt its grace period when its container was ended by SIGKILL at the deadline, by the last status in the API.
- It is told right when the cause and the container are, and where one program waits for another one below it, that one. Each other verdict is wrong.
- A pod that ended in time is innocent. Anything that is said of it accuses it.
- At least %.0f %% have to be told right, and no innocent one accused.
- What the Event says to do first is then done to the same pod, by the words of the Event alone. It works if the program ends by itself, in two thirds of
  the grace period or less, with the exit code that its handler gives. At least %.0f %% of those that can be done have to work, and %.0f %% of the Events name one.

The programs are Debian's, but for stand-ins (*): %s.

- Commit: %s
- Date: %s
- On: %s
- %s
- %s
- %s

`, 100*enough, 100*enoughWork, 100*enoughNamed, t.standIns(), t.commit, time.Now().UTC().Format(time.DateOnly), t.on, t.sum(), t.remediesSum(), t.counted())
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
