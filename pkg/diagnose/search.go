package diagnose

import (
	"cmp"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The layers of which it may not be known whether all causes were looked for.
const (
	layerRuntime = "runtime" // while containerd is silent, or views of a container differ
	layerStorage = "storage" // while a volume is not unmounted
	layerKernel  = "kernel"  // of a pod under gVisor
	layerSignal  = "signal"
)

// A search is one look for all causes of a table.
type search struct {
	pod   *fact.View
	d     Diagnosis
	found map[string][]Finding // by cause
	// elsewhereFound are the causes that were found in another phase than theirs, or too early: they are not told, and hold others.
	elsewhereFound []string
	// whole are the layers of the causes that were looked for, and part those of which a cause could not be looked for, or
	// is open. The same layer may stand in both, and more than once.
	whole, part []string
}

// look looks for one cause. One that holds others is looked for before it is told, too: what is seen of them may be its doing then.
func (s *search) look(row Row) {
	r := row.Rule
	if o := s.late(r); !o.Since.IsZero() {
		s.note(o, r.Cause)
	}
	due := r.due(s.pod)
	if !due && (len(row.Holds) == 0 || s.pod.Gone) {
		return
	}
	here := due && (len(r.Phases) == 0 || slices.Contains(r.Phases, s.d.Phase))
	if due && !here {
		s.elsewhere(r)
	}
	got := r.By.look(s.pod)
	s.opens(r, got.open...)
	if !here {
		if len(got.found) > 0 {
			s.elsewhereFound = append(s.elsewhereFound, r.Cause)
		}
		return
	}
	s.lacks(r, got.unread)
	if got.blind {
		return
	}
	s.whole = append(s.whole, r.Doc.Layer)
	for _, f := range got.found {
		f.Cause = r.Cause
		f.Objects.Claimed = claimed(s.pod, &f.Objects)
		f.node = s.pod.Node.Name
		r.Doc.say(&f)
		s.d.Findings = append(s.d.Findings, f)
	}
	s.found[r.Cause] = got.found
}

// opens notes what a rule leaves open. What only takes its time though the cause is not there refutes a verdict of before.
func (s *search) opens(r *Rule, open ...Open) {
	for _, o := range open {
		switch {
		case o.Since.IsZero():
		case o.passes():
			if o.Until.After(s.pod.Time) {
				s.note(o)
			}
		default:
			s.note(o, r.Cause)
			s.part = append(s.part, r.Doc.Layer)
		}
	}
}

// note notes what is open, until no later than it may be. Causes that are open for the same stand together.
func (s *search) note(o Open, causes ...string) {
	if last := o.Since.Add(longestOpen); o.Until.After(last) {
		o.Until = last
	}
	i := slices.IndexFunc(s.d.Open, func(e Open) bool {
		return e.Container == o.Container && e.Since.Equal(o.Since) && e.Until.Equal(o.Until) && e.Why == o.Why &&
			e.By == o.By && e.Timed == o.Timed && len(e.Causes) > 0
	})
	if i < 0 {
		i, s.d.Open = len(s.d.Open), append(s.d.Open, o)
	}
	for _, c := range causes {
		if !slices.Contains(s.d.Open[i].Causes, c) {
			s.d.Open[i].Causes = append(s.d.Open[i].Causes, c)
		}
	}
}

// waits notes what is under way in a pod of which nothing was found, and reports whether anything that is open is waited for.
func (s *search) waits(table Table) bool {
	for _, o := range underWay(s.pod, s.d.Phase, table) {
		if o.Until.After(s.pod.Time) {
			s.note(o)
		}
	}
	// What begins to last again and again, while the pod gets no further, is not waited for without an end.
	last := fact.Unchanged(s.pod).Add(longestOpen)
	return slices.ContainsFunc(s.d.Open, func(o Open) bool {
		return o.Until.After(s.pod.Time) && (!o.Timed || o.Since.Before(last))
	})
}

// late returns that a cause of the grace period may be told of no more, because that is over and SIGKILL may still be on its way, or
// because the stop signal has met what is not there any more, so that no reading refutes what an earlier one has shown.
func (s *search) late(r *Rule) Open {
	p := s.pod
	switch {
	case p.Gone || r.When != InGrace && r.When != InGraceAndAfter:
	case s.killMayCome():
		return Waits(p.Deadline, fact.UnknownAfter, Late)
	case r.When == InGrace && r.Doc.Layer == layerSignal && p.Overdue() < 0 && fact.DispositionUnknown(p):
		return Open{Since: p.DeletionRequested, Until: p.Deadline, Why: Late}
	}
	return Open{}
}

// killMayCome reports whether SIGKILL may still be on its way to a pod whose grace period may be over.
func (s *search) killMayCome() bool {
	p := s.pod
	waits := s.silent() || slices.Contains([]Phase{PreStop, StopSignal, PhaseUnknown}, s.d.Phase)
	return waits && p.Overdue() >= -p.ClockDoubt() && p.Overdue() < fact.UnknownAfter
}

// silent reports whether containerd is silent or down, so that the pod seems to wait for it: the causes of other phases
// are neither there nor ruled out.
func (s *search) silent() bool {
	return !s.pod.Node.Containerd.UnansweredSince.IsZero() || s.pod.Node.Containerd.Refused
}

// elsewhere notes what is not known of a cause of other phases than the pod seems to be in.
func (s *search) elsewhere(r *Rule) {
	if s.silent() {
		s.unlooked(evidence.Containerd, s.pod.Node.Containerd.Error, r)
	}
	if s.d.Phase == PhaseUnknown && mayBeIn(s.pod, r.Phases) {
		s.lacks(r, append(r.Sources(), phaseSources...))
	}
}

// unreadFor is for how long a source may be missing before Unknown is told without it: one request of many that fails, on a node
// under pressure, says nothing.
const unreadFor = time.Minute

// lacks notes those of the sources of a rule that could not be read.
func (s *search) lacks(r *Rule, sources []evidence.Source) {
	for _, source := range sources {
		why, ok := s.pod.Missing[source]
		if !ok {
			continue
		}
		s.unlooked(source, why, r)
		if o := Waits(s.pod.LackingSince(source), unreadFor, Unread); o.Until.After(s.pod.Time) {
			o.By = string(source)
			s.note(o, r.Cause)
		}
	}
}

// unlooked notes that a rule's cause was not looked for, for want of a source.
func (s *search) unlooked(source evidence.Source, why string, r *Rule) {
	i := slices.IndexFunc(s.d.Unknown, func(u Unknown) bool { return u.Source == source })
	if i < 0 {
		i = len(s.d.Unknown)
		s.d.Unknown = append(s.d.Unknown, Unknown{Source: source, Why: why})
	}
	if !slices.Contains(s.d.Unknown[i].Causes, r.Cause) {
		s.d.Unknown[i].Causes = append(s.d.Unknown[i].Causes, r.Cause)
	}
	s.part = append(s.part, r.Doc.Layer)
}

// hold opens the causes that another one holds, and takes back that they were found. What somebody has stopped waits for nothing else.
func (s *search) hold(table Table) {
	for _, row := range table {
		by := s.undecided(row.Rule)
		for _, held := range row.Holds {
			for _, o := range by {
				s.d.Findings = slices.DeleteFunc(s.d.Findings, func(f Finding) bool {
					return f.Cause == held.Cause && f.Family != Stopped && (o.Container == "" || o.Container == f.Container)
				})
				s.opens(held, Open{Container: o.Container, Since: o.Since, Until: o.Until, Why: HeldBack, By: row.Rule.Cause})
			}
		}
	}
}

// undecided returns where a cause is open and its time has not come, or is found in another phase than its own.
func (s *search) undecided(r *Rule) []Open {
	var out []Open
	if slices.Contains(s.elsewhereFound, r.Cause) {
		out = append(out, Seen(s.pod, HeldBack))
	}
	for _, o := range s.d.Open {
		if slices.Contains(o.Causes, r.Cause) && o.Why != HeldBack && o.Until.After(s.pod.Time) {
			out = append(out, o)
		}
	}
	return out
}

// explain tells symptoms from causes.
func (s *search) explain(table Table) {
	for _, row := range table {
		by := s.found[row.Rule.Cause]
		if len(by) == 0 {
			continue
		}
		for i := range s.d.Findings {
			f := &s.d.Findings[i]
			// What somebody has stopped waits for nothing else: it stays when the other cause goes.
			if row.reaches(f.Cause) && f.Family != Stopped && slices.ContainsFunc(by, func(by Finding) bool { return by.reaches(f) }) {
				f.Symptom = true
			}
		}
	}
}

// reaches reports whether the row's cause explains or holds another one.
func (r *Row) reaches(cause string) bool {
	is := func(r *Rule) bool { return r.Cause == cause }
	return slices.ContainsFunc(r.Explains, is) || slices.ContainsFunc(r.Holds, is)
}

// conclude says what follows from the search as a whole.
func (s *search) conclude(table Table) {
	p, d := s.pod, &s.d
	slices.SortFunc(d.Unknown, func(a, b Unknown) int { return cmp.Compare(a.Source, b.Source) })
	s.doubt()
	d.Force = force(p, d, table.layer)
	if len(d.Findings) == 0 && !p.Gone && p.Overdue() >= 0 && !s.waits(table) {
		d.Findings = []Finding{unknown(p, d.Phase, s, d.Unknown, d.Force)}
	}
	f, found := d.Verdict()
	ofApp := func(c evidence.Container) bool { return c.Kind == evidence.App && c.Name == f.Container }
	if found && d.Phase != Startup && slices.ContainsFunc(p.Containers, ofApp) {
		d.Sidecars = waitingSidecars(p)
	}
	d.ShutsDown = !p.Gone && len(d.Findings) > 0 && p.Delivery.NodeShuttingDown
}

// waitingSidecars returns the names of the sidecars that have not been sent their stop
// signal, because a container of the app lives and the deadline has not come: the kubelet
// stops them after it, or at the deadline, or later by as much as it has begun late (waitForTurn,
// pkg/kubelet/kuberuntime/kuberuntime_termination_order.go). One with a preStop hook is left
// out, which runs before that and may ask it to stop, and so is one that ends by itself.
func waitingSidecars(p *fact.View) []string {
	if p.Gone || p.Mirror || p.Overdue() >= -p.ClockDoubt() || p.DeadlineUnsure || !p.Kill.Stayed ||
		fact.Missing(p, evidence.Processes, evidence.Containers) {
		return nil
	}
	if !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Kind == evidence.App && c.State == evidence.StateRunning }) {
		return nil
	}
	var out []string
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind == evidence.Sidecar && c.State == evidence.StateRunning && !c.PreStop && runsOn(fact.FirstLeader(p, c), c.StopSignal) {
			out = append(out, c.Name)
		}
	}
	return out
}

// runsOn reports whether a first process lives, and has not been sent a signal, as far as is seen.
func runsOn(first *evidence.Task, sig evidence.Signal) bool {
	return first != nil && !fact.Dying(first) && first.State != evidence.Zombie && !first.Sent(sig)
}

// doubt notes of which layers it is not known whether a cause is there.
func (s *search) doubt() {
	if s.silent() || len(views(s.pod)) > 0 {
		s.part = append(s.part, layerRuntime) // it has not hung for long enough, a shim behind it does, or it is wrong
	}
	if unmountFails(s.pod, s.d.Phase) != nil {
		s.part = append(s.part, layerStorage)
	}
	if fact.UnderGVisor(s.pod) && len(s.pod.Tasks) > 0 {
		s.part = append(s.part, layerKernel) // that a thread of it waits for a FUSE daemon is not seen
	}
}

// ruledOut returns the layers whose causes were all looked for, and those of
// which some were.
func (s *search) ruledOut() (whole, part []string) {
	slices.Sort(s.whole)
	for _, layer := range slices.Compact(s.whole) {
		if slices.Contains(s.part, layer) {
			part = append(part, layer)
		} else {
			whole = append(whole, layer)
		}
	}
	return whole, part
}

// Sources returns those that the rule reads, each once.
func (r *Rule) Sources() []evidence.Source { return slices.Concat(r.sources()) }

// sources returns those of which the rule needs all, and those of which it can use a part. Each is in one list, once.
func (r *Rule) sources() (needs, partly []evidence.Source) {
	all, part := r.By.sources()
	for _, s := range all {
		if !slices.Contains(needs, s) {
			needs = append(needs, s)
		}
	}
	for _, s := range part {
		if !slices.Contains(needs, s) && !slices.Contains(partly, s) {
			partly = append(partly, s)
		}
	}
	return needs, partly
}
