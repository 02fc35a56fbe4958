package signal

import (
	"fmt"
	"slices"
	"strconv"
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

// took reports whether the signal reaches the process and does not wait to be taken.
// A program that takes signals with sigwait or signalfd blocks them.
func took(fp fact.FirstProcess, sig evidence.Signal) bool {
	switch fp.Receives(sig) {
	case fact.Caught, fact.Blocked:
		// A thread that hangs in the kernel leaves it pending.
		return !fp.Leader.SharedPending.Has(sig)
	}
	return false
}

// hangs reports whether a thread waits for a disk, a server or a FUSE daemon and has
// not run for a while. It may be the one that has to take the signal.
func hangs(p *evidence.Pod, fp fact.FirstProcess) bool {
	return slices.ContainsFunc(fp.Threads, func(t *evidence.Task) bool {
		return (t.State == evidence.Uninterruptible || fact.Through(t, "request_wait_answer")) && t.Unchanged(p.Time) >= fact.Stuck
	})
}

// killedExit is the exit code of a container that SIGKILL has ended.
const killedExit = 128 + int(evidence.SIGKILL)

func slowFinding(p *evidence.Pod, fp fact.FirstProcess, doing string) diagnose.Finding {
	f := diagnose.About(p, fp, diagnose.Proved)
	if child := fp.ForwardsTo(); child != nil {
		f.Values["program"], f.Values["pid"] = child.Comm, strconv.Itoa(child.PID)
	}
	f.Values["grace"] = fact.Grace(p).String()
	f.Values["doing"] = doing
	f.Values["time"] = diagnose.Clock(fp.Container.Exit.At)
	return f
}

// A squeeze is a limit that held a container down for as long as it was asked
// to stop.
type squeeze struct{ family, limit string }

// squeezed finds the limit that held the program down for half of the grace
// period or more, up to the last reading; nil when there is none.
func squeezed(p *evidence.Pod, fp fact.FirstProcess) *squeeze {
	long := func(since time.Time) bool {
		return !since.IsZero() && p.Time.Sub(since) >= max(fact.Grace(p)/2, fact.Stuck)
	}
	for i := range p.Cgroups {
		g := &p.Cgroups[i]
		if g.Container != fp.Container.ID && g.Container != "" {
			continue
		}
		if c := g.CPU; c != nil && c.Millis > 0 && long(c.ThrottledSince) {
			return &squeeze{family: familyCPU, limit: fmt.Sprintf("its limit of %s was used up in most periods", processors(c.Millis))}
		}
		if m := g.Memory; m != nil && m.High > 0 && m.Current > m.High && long(m.StalledSince) {
			return &squeeze{family: familyMemory, limit: fmt.Sprintf("it uses more memory than memory.high, %d MiB, lets it have, and each allocation has to wait", m.High>>20)}
		}
	}
	return nil
}

// processors says thousandths of a processor in words.
func processors(millis int64) string {
	return fmt.Sprintf("%d.%02d processors", millis/1000, millis%1000/10)
}
