package evidence

import (
	"slices"
	"time"
)

// A ScannerWaits counts readings that show a command of the runtime, or a CNI plugin, by which the pod is to be stopped. What is
// executed in a container does not count.
type ScannerWaits struct {
	// Since and Last are the first and the last reading that show one wait until a program that scans files has
	// answered.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// Waits are the readings from Since on that do, and Looks those that show a command at all.
	Waits int `json:"waits"`
	Looks int `json:"looks"`
	// Answered is when a reading showed last that one which waits had run since the reading before: somebody was
	// answered. It is zero when there was none, and when one has waited for silentScanner since without running.
	Answered time.Time `json:"answered,omitzero"`
	// Done is when a reading showed last that one which had waited was gone before its time was over, or may have been while
	// the pod's files could not be read.
	Done time.Time `json:"done,omitzero"`
}

// silentScanner is for how long a program that scans files has answered nobody when it does not answer: what was
// answered before tells nothing of it.
const silentScanner = time.Minute

// soonDone is the age before which a command that is gone, or a plugin, has got done, and was not killed: the kubelet gives
// it two minutes (runtimeRequestTimeout), and what comes before it takes a part of that.
const soonDone = time.Minute

// scannersSought is after how long it is looked who may be waited for, though it answers others meanwhile.
const scannersSought = time.Minute

// Lasts reports whether commands have waited for a minute or more, and may wait again.
func (w *ScannerWaits) Lasts(now time.Time) bool {
	return w.Last.Sub(w.Since) >= scannersSought && now.Sub(w.Last) < NextRecord
}

// sinceScannerWaits counts on, as long as the containers are the same and what was killed may be tried
// again.
func (p *Pod) sinceScannerWaits(e *Pod, read time.Time) {
	w := e.ScannerWaits
	if !p.sameContainers(e) || read.Sub(w.Last) > NextRecord {
		w = ScannerWaits{}
	}
	now, before := p.enders(), e.enders()
	looks, waits, answered, silent := false, false, false, false
	for i := range now {
		c := &now[i]
		j := slices.IndexFunc(before, func(o RuntimeCommand) bool { return c.same(&o) })
		for k := range c.Tasks {
			t := &c.Tasks[k]
			looks = true
			if !t.AwaitsScanner() {
				continue
			}
			waits = true
			silent = silent || read.Sub(t.UnchangedSince) >= silentScanner
			answered = answered || j >= 0 && slices.ContainsFunc(before[j].Tasks, func(o Task) bool {
				return o.TID == t.TID && o.AwaitsScanner() && o.Switches != t.Switches
			})
		}
	}
	if waits {
		w.Since, w.Last = firstOf(w.Since, read), read
		w.Waits++
	}
	if looks && w.Waits > 0 {
		w.Looks++
	}
	if silent {
		w.Answered = time.Time{}
	} else if answered {
		w.Answered = read
	}
	if w.Waits > 0 && (!p.Unreturned.IsZero() || slices.ContainsFunc(before, func(c RuntimeCommand) bool { return p.gotDone(&c, now, read) })) {
		w.Done = read
	}
	p.ScannerWaits = w
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

// gotDone reports whether a command that was seen to wait for a program that scans files is gone, and was not killed.
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
	return slices.ContainsFunc(c.Tasks, func(t Task) bool { return t.AwaitsScanner() }) &&
		first.Probe != nil && !first.Probe.Started.IsZero() && read.Sub(first.Probe.Started) < limit &&
		!slices.ContainsFunc(now, func(o RuntimeCommand) bool { return o.Tasks[0].PID == first.PID })
}
