package evidence

import (
	"slices"
	"time"
)

// A ScannerWaits tells since when commands of the runtime, or CNI plugins, by which the pod is to be stopped, wait for a program that
// scans files, the one after the other. What is executed in a container does not count.
type ScannerWaits struct {
	// Since and Last are the first and the last reading that show one wait.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// UnansweredSince is the first of these readings after the last sign of an answer, and Waits how many there are from
	// then on. It is zero when there has been such a sign since Last.
	UnansweredSince time.Time `json:"unansweredSince,omitzero"`
	Waits           int       `json:"waits,omitempty"`
}

// soonDone is the age before which a command that is gone, or a plugin, has got done, and was not killed: the kubelet gives
// it two minutes (runtimeRequestTimeout), and what comes before it takes a part of that.
const soonDone = time.Minute

// scannersSought is after how long without a sign of an answer it is looked who may be waited for.
const scannersSought = time.Minute

// Lasts reports whether commands have waited for a minute or more without an answer, and may wait again.
func (w *ScannerWaits) Lasts(now time.Time) bool {
	return !w.UnansweredSince.IsZero() && w.Last.Sub(w.UnansweredSince) >= scannersSought && now.Sub(w.Last) < NextRecord
}

// sinceScannerWaits goes on, as long as the containers are the same and what was killed may be tried
// again. A sign of an answer is a command that does not wait, or not as before, or that has got done, as it may have while the
// pod's files could not be read.
func (p *Pod) sinceScannerWaits(e *Pod, read time.Time) {
	w := e.ScannerWaits
	if !p.sameContainers(e) || read.Sub(w.Last) > NextRecord {
		w = ScannerWaits{}
	}
	now, before := p.enders(), e.enders()
	waits := slices.ContainsFunc(now, awaitsScanner)
	if !p.HungSince.IsZero() || slices.ContainsFunc(now, func(c RuntimeCommand) bool { return !awaitsScanner(c) }) ||
		slices.ContainsFunc(before, func(c RuntimeCommand) bool { return p.answered(&c, now, read) }) {
		w.UnansweredSince, w.Waits = time.Time{}, 0
	}
	if waits {
		w.Since, w.UnansweredSince, w.Last = firstOf(w.Since, read), firstOf(w.UnansweredSince, read), read
		w.Waits++
	}
	p.ScannerWaits = w
}

func awaitsScanner(c RuntimeCommand) bool {
	return slices.ContainsFunc(c.Tasks, func(t Task) bool { return t.AwaitsScanner() })
}

// answered reports whether a command that was seen to wait for a program that scans files does so no more, or has run since, and
// was not killed.
func (p *Pod) answered(c *RuntimeCommand, now []RuntimeCommand, read time.Time) bool {
	if !awaitsScanner(*c) {
		return false
	}
	i := slices.IndexFunc(now, func(o RuntimeCommand) bool { return o.same(c) })
	if i < 0 {
		return p.gotDone(c, now, read)
	}
	return slices.ContainsFunc(c.Tasks, func(t Task) bool {
		return t.AwaitsScanner() && !slices.ContainsFunc(now[i].Tasks, func(o Task) bool {
			return o.TID == t.TID && o.AwaitsScanner() && o.Switches == t.Switches
		})
	})
}

// enders returns the commands of the runtime by which the pod is to be stopped, and each CNI plugin as if it were one.
func (p *Pod) enders() []RuntimeCommand {
	var out []RuntimeCommand
	for _, c := range p.RuntimeCommands {
		if !c.Left && c.Command != execCommand && len(c.Tasks) > 0 && !p.KillsInVain(&c) {
			out = append(out, c)
		}
	}
	of := make(map[int]int) // the place in out, by PID
	for _, t := range p.Plugins {
		i, ok := of[t.PID]
		if !ok {
			i, ok = of[t.PPID]
		}
		if !ok {
			i = len(out)
			out = append(out, RuntimeCommand{})
		}
		of[t.PID] = i
		out[i].Tasks = append(out[i].Tasks, t)
	}
	return out
}

// KillsInVain reports whether a command is to kill a container of which each process has been killed already, or exits: the
// pod does not wait for that command.
func (p *Pod) KillsInVain(c *RuntimeCommand) bool {
	lives := false
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.Container != c.Container {
			continue
		}
		if !t.Killed() && !t.Exiting() && t.State != Zombie && t.State != Dead {
			return false
		}
		lives = true
	}
	return lives && c.Command == killCommand
}

// gotDone reports whether a command that is gone was not killed.
func (p *Pod) gotDone(c *RuntimeCommand, now []RuntimeCommand, read time.Time) bool {
	for _, s := range []Source{RuntimeCommands, Plugins} {
		if _, missing := p.Missing[s]; missing {
			return false
		}
	}
	limit := soonDone
	if c.Command == deleteCommand {
		limit = longDelete
	}
	first := &c.Tasks[0]
	return first.Probe != nil && !first.Probe.Started.IsZero() && read.Sub(first.Probe.Started) < limit &&
		!slices.ContainsFunc(now, func(o RuntimeCommand) bool { return o.Tasks[0].PID == first.PID })
}
