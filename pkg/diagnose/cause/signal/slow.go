package signal

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// slow are the first processes that have taken their stop signal, as far as can
// be told, and have not ended within the grace period.
func slow(p *evidence.Pod) []fact.FirstProcess {
	if !p.Gone {
		return nil
	}
	var out []fact.FirstProcess
	for _, fp := range fact.Signalled(p) {
		t := fp.Leader
		switch {
		case !took(fp, fp.Container.StopSignal), t.CoreDumping:
		case t.State == evidence.Stopped, t.State == evidence.Traced, fact.FrozenGroup(p, t) != nil:
		case hangs(p, fp): // SIGKILL shows whether that can end
		case !fact.EndedAtDeadline(p, fp.Container), fp.Container.Exit.Code != killedExit:
		default:
			if c, _ := fp.Foreground(p); c != nil {
				continue // its trap has not run
			}
			if fp.DeafChild(p) != nil {
				continue
			}
			out = append(out, fp)
		}
	}
	return out
}

// took reports whether the signal reaches the process and does not wait to be
// taken. A program that takes signals with sigwait or signalfd blocks them.
func took(fp fact.FirstProcess, sig evidence.Signal) bool {
	switch fp.Receives(sig) {
	case fact.Caught, fact.Blocked:
		// A thread that hangs in the kernel leaves it pending.
		return !fp.Leader.SharedPending.Has(sig)
	}
	return false
}

// hangs reports whether a thread waits for a disk, a server or a FUSE daemon and
// has not run for a while. It may be the one that has to take the signal.
func hangs(p *evidence.Pod, fp fact.FirstProcess) bool {
	return slices.ContainsFunc(fp.Threads, func(t *evidence.Task) bool {
		return (t.State == evidence.Uninterruptible || fact.Through(t, "request_wait_answer")) && t.Unchanged(p.Time) >= fact.Stuck
	})
}

// killedExit is the exit code of a container that SIGKILL has ended.
const killedExit = 128 + int(evidence.SIGKILL)

// slowFinding is what both causes say of a program that was not done in time.
func slowFinding(p *evidence.Pod, fp fact.FirstProcess) diagnose.Finding {
	f := diagnose.About(p, fp, diagnose.Proved)
	if child := fp.ForwardsTo(); child != nil {
		f.Objects.Process = diagnose.ProcessOf(p, child)
	}
	f.Objects.GraceSeconds = int64(fact.Grace(p).Seconds())
	f.Objects.Ended = fp.Container.Exit.At
	return f
}

// squeezed finds the limit that held the program down for half of the grace
// period or more, up to the last reading: that of processors, or that of memory,
// nil for what did not.
func squeezed(p *evidence.Pod, fp fact.FirstProcess) (*evidence.CPU, *evidence.Memory) {
	long := func(since time.Time) bool {
		return !since.IsZero() && p.Time.Sub(since) >= max(fact.Grace(p)/2, fact.Stuck)
	}
	for i := range p.Cgroups {
		g := &p.Cgroups[i]
		if g.Container != fp.Container.ID && g.Container != "" {
			continue
		}
		if c := g.CPU; c != nil && c.Millis > 0 && long(c.ThrottledSince) {
			return c, nil
		}
		if m := g.Memory; m != nil && m.High > 0 && m.Current > m.High && long(m.StalledSince) {
			return nil, m
		}
	}
	return nil, nil
}
