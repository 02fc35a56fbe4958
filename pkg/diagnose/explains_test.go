package diagnose_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// finds finds something in each pod, and answers recognises a cause by an answer.
func finds(f diagnose.Finding) diagnose.Recognition { return answers(diagnose.Is(true), f) }

func answers(h diagnose.Holding, f diagnose.Finding) diagnose.Recognition {
	return diagnose.By[diagnose.ThePod]{
		Facts: []diagnose.Fact[diagnose.ThePod]{{Pod: func(*fact.View) diagnose.Holding { return h }}},
		Tell:  diagnose.OfPod(func(*fact.View) diagnose.Finding { return f }),
	}
}

// A cause explains a symptom where it happens, not in another container.
func TestExplainsWithinAContainer(t *testing.T) {
	for name, tc := range map[string]struct {
		cause, symptom string // the containers, "" for the pod
		want           bool
	}{
		"the same container":      {"main", "main", true},
		"another container":       {"main", "other", false},
		"the pod, by a container": {"main", "", true},
		"a container, by the pod": {"", "main", false},
		"the pod, by the pod":     {"", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			symptom := &diagnose.Rule{Cause: "Symptom", By: finds(diagnose.Finding{Container: tc.symptom})}
			cause := &diagnose.Rule{Cause: "Cause", By: finds(diagnose.Finding{Container: tc.cause})}
			p := &evidence.Pod{Time: requested, Deadline: requested.Add(-1)}
			for _, f := range diagnose.Run(p, diagnose.Table{{Rule: symptom}, {Rule: cause, Explains: []*diagnose.Rule{symptom}}}).Findings {
				if want := tc.want && f.Cause == "Symptom"; f.Symptom != want {
					t.Errorf("%s in %q is a symptom: %v, want %v", f.Cause, f.Container, f.Symptom, want)
				}
			}
		})
	}
}

// A hang in one container says nothing about a first process of another one that
// waits for a zombie which its parent outside does not reap.
func TestUnrelatedSymptomIsFound(t *testing.T) {
	p := killed(func(p *evidence.Pod, _ *evidence.Task) {
		other := p.Containers[0]
		other.Name, other.ID, other.Task.PID = "other", "d", 200
		p.Containers = append(p.Containers, other)
		init := task(200, 50, "app", evidence.Sleeping, "")
		init.NSpid = []int{200, 1}
		ends(&init)
		z := member(p, 70)
		z.PID, z.TID, z.NSpid = 201, 201, []int{201, 2}
		init.Container, z.Container = "d", "d"
		init.UnchangedSince = p.Deadline
		p.Tasks = append(p.Tasks, init, z)
		outside(p, 70, "nsenter", evidence.Sleeping)
	})
	symptoms := map[string]bool{}
	for _, f := range cause.Diagnose(p).Findings {
		symptoms[f.Cause+" in "+f.Container] = f.Symptom
	}
	for _, want := range []string{"UninterruptibleSleep in main", "PIDNamespaceReapWait in other"} {
		if symptom, found := symptoms[want]; !found || symptom {
			t.Errorf("%s: found %v, symptom %v", want, found, symptom)
		}
	}
}

// Of causes that explain each other in a circle none would be told.
func TestExplanationsEnd(t *testing.T) {
	explains := map[*diagnose.Rule][]*diagnose.Rule{}
	for _, row := range cause.Table() {
		explains[row.Rule] = slices.Concat(row.Explains, row.Holds)
	}
	var follow func(r *diagnose.Rule, path []string)
	follow = func(r *diagnose.Rule, path []string) {
		if slices.Contains(path, r.Cause) {
			t.Fatalf("a cycle: %v, %s", path, r.Cause)
		}
		if _, ok := explains[r]; !ok {
			t.Errorf("%v explain %s, which is not in the table", path, r.Cause)
		}
		for _, symptom := range explains[r] {
			follow(symptom, append(path, r.Cause))
		}
	}
	for r := range explains {
		follow(r, nil)
	}
}

// A cause that is open holds others until its time has come, and so does one that is found in another phase than its own. When it
// is found it explains them. What only takes its time holds nothing, and refutes what stood.
func TestHolds(t *testing.T) {
	const late = time.Minute
	p := &evidence.Pod{Time: requested.Add(late), Deadline: requested, UnchangedSince: requested, Phase: "Running"}
	other := []diagnose.Phase{diagnose.Volumes}
	for name, tc := range map[string]struct {
		says          diagnose.Holding
		phases        []diagnose.Phase
		held, symptom bool
		open          bool // the holder's own cause
	}{
		"it is not there":          {diagnose.Is(false), nil, false, false, false},
		"it is open":               {diagnose.NotYet(diagnose.Waits(requested, 2*late, diagnose.Slow)), nil, true, false, true},
		"it is open elsewhere":     {diagnose.NotYet(diagnose.Waits(requested, 2*late, diagnose.Slow)), other, true, false, true},
		"its time has come":        {diagnose.NotYet(diagnose.Waits(requested, late, diagnose.Slow)), nil, false, false, true},
		"it is seen at the moment": {diagnose.NotYet(diagnose.Open{Since: p.Time, Until: p.Time, Why: diagnose.Slow}), nil, false, false, true},
		"it moves":                 {diagnose.NotYet(diagnose.Waits(requested, 2*late, diagnose.Moves)), nil, false, false, false},
		"the next try tells":       {diagnose.NotYet(diagnose.Waits(requested, 2*late, diagnose.Next)), nil, false, false, false},
		"it is found":              {diagnose.Is(true), nil, false, true, false},
		"it is found elsewhere":    {diagnose.Is(true), other, true, false, false},
	} {
		held := &diagnose.Rule{Cause: "Held", By: finds(diagnose.Finding{Container: "main"})}
		stopped := &diagnose.Rule{Cause: "Stopped", By: finds(diagnose.Finding{Container: "main", Family: diagnose.Stopped})}
		holder := &diagnose.Rule{Cause: "Holder", Phases: tc.phases, By: answers(tc.says, diagnose.Finding{Container: "main"})}
		table := diagnose.Table{{Rule: held}, {Rule: stopped}, {Rule: holder, Holds: []*diagnose.Rule{held, stopped}}}
		d := diagnose.Run(p, table)
		for r, told := range map[*diagnose.Rule]bool{held: !tc.held, stopped: true} {
			if page := table.AskedPage(r, p); strings.Contains(page, "So it is found.") != told {
				t.Errorf("%s: %s is told: %t\n%s", name, r.Cause, told, page)
			}
		}
		found := map[string]diagnose.Finding{}
		for _, f := range d.Findings {
			found[f.Cause] = f
		}
		if f, ok := found["Held"]; ok == tc.held || f.Symptom != tc.symptom || d.NotLookedFor("Held") != tc.held {
			t.Errorf("%s: found %t, symptom %t, open %t; %+v", name, ok, f.Symptom, d.NotLookedFor("Held"), d.Open)
		}
		if d.NotLookedFor("Holder") != tc.open {
			t.Errorf("%s: the holder is open: %t; %+v", name, !tc.open, d.Open)
		}
		if f, ok := found["Stopped"]; !ok || f.Symptom {
			t.Errorf("%s: what somebody has stopped is %+v", name, f)
		}
	}
}

// What begins to last again in each reading is waited for, but not for ever: a pod that gets no further is told to be stuck.
func TestWhatBeginsAgainDoesNotMute(t *testing.T) {
	now := requested.Add(time.Hour)
	fresh := diagnose.By[diagnose.ThePod]{
		Facts: []diagnose.Fact[diagnose.ThePod]{{Pod: func(p *fact.View) diagnose.Holding {
			return diagnose.Lasted(p, p.Time.Add(-time.Second), time.Minute, diagnose.Slow)
		}}},
		Tell: diagnose.OfPod(func(*fact.View) diagnose.Finding { return diagnose.Finding{} }),
	}
	for ago, want := range map[time.Duration]bool{10 * time.Minute: false, 16 * time.Minute: true} {
		p := &evidence.Pod{Time: now, DeletionRequested: requested, Deadline: requested, UnchangedSince: now.Add(-ago), Phase: "Running"}
		d := diagnose.Run(p, diagnose.Table{{Rule: &diagnose.Rule{Cause: "Fresh", By: fresh}}})
		if f, found := d.Verdict(); found != want || found && f.Cause != diagnose.Unrecognised.Cause {
			t.Errorf("unchanged for %s: %s, want Unknown: %t; open %+v", ago, f.Cause, want, d.Open)
		}
	}
}

// What cannot be told for want of a source that is not the rule's own, or of one thread's probe, is not ruled out.
func TestUnreadElsewhereIsOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		fixture, cause string
		lose           func(p *evidence.Pod)
	}{
		"the phase, without the mounts": {"file_scanner_not_answering", "FileScannerNotAnswering", func(p *evidence.Pod) {
			p.Mounts = nil
			p.Lack(evidence.Mounts, "3 lines of the host's mountinfo were not understood")
		}},
		"since when a CNI plugin runs": {"cni_del_hanging", "CNIDelHanging", func(p *evidence.Pod) {
			for i := range p.Plugins {
				p.Plugins[i].Probe = nil
			}
		}},
		"who uses the volume": {"volume_left_mounted", "VolumeLeftMounted", func(p *evidence.Pod) {
			p.Holders = nil
			p.Lack(evidence.Holders, "no time left")
		}},
		"whether the API server hears from the kubelet": {"volume_left_mounted", "VolumeLeftMounted", func(p *evidence.Pod) {
			p.Node.Ready = nil
			p.Lack(evidence.NodeObject, "forbidden")
		}},
		"what the last process of a namespace waits for": {"healthy_namespace_ends_in_rcu", "PIDNamespaceReapWait", func(p *evidence.Pod) {
			for i := range p.Tasks {
				if p.Tasks[i].Comm == "worker" {
					p.Tasks[i].Probe = nil
				}
			}
		}},
	} {
		p := fixtureNamed(t, tc.fixture)
		if tc.lose(p); name == "the phase, without the mounts" {
			p = p.Later(17 * time.Minute)
		}
		d := cause.Diagnose(p)
		if v, _ := d.Verdict(); v.Cause == tc.cause || !d.NotLookedFor(tc.cause) {
			t.Errorf("%s: verdict %q, %s looked for", name, v.Cause, tc.cause)
		}
		for _, u := range d.Unknown {
			if slices.Sort(u.Causes); len(slices.Compact(slices.Clone(u.Causes))) != len(u.Causes) {
				t.Errorf("%s: without %s some causes are said twice not to be looked for: %v", name, u.Source, u.Causes)
			}
		}
	}
}
