package orphan

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const uid = "0b4ddc3e-1111-4222-8333-444455556666"

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(after time.Duration) time.Time { return start.Add(after) }

func TestSearch(t *testing.T) {
	pod := Pod{UID: uid, Namespace: "shop", Name: "web-0", Grace: 30 * time.Second}
	dirs := []string{uid, "3f1cbb1c5f6f4cb0b2f4b9b2a1d4e5f6", "lost+found", "..", uid + "x"}
	for name, tc := range map[string]struct {
		grace  time.Duration
		before bool // it was seen in the API
		after  time.Duration
		due    bool
	}{
		"too soon":                  {30 * time.Second, true, 5*time.Minute - time.Second, false},
		"in time":                   {30 * time.Second, true, 5 * time.Minute, true},
		"a long grace period":       {10 * time.Minute, true, 13 * time.Minute, false},
		"a long one that is over":   {10 * time.Minute, true, 14 * time.Minute, true},
		"of which nothing is known": {0, false, 5 * time.Minute, true},
	} {
		tr := &Tracker{After: 5 * time.Minute}
		pod.Grace = tc.grace
		if tc.before {
			if due := tr.Search(at(-time.Minute), dirs, []Pod{pod}); due != nil {
				t.Errorf("%s: in the API, and due: %q", name, due)
			}
		}
		if due := tr.Search(at(0), dirs, nil); due != nil {
			t.Errorf("%s: due immediately: %q", name, due)
		}
		due := tr.Search(at(tc.after), dirs, nil)
		if tc.due != slices.Equal(due, []string{uid}) || !tc.due && due != nil {
			t.Errorf("%s: due %q", name, due)
		}
		if !tc.due {
			continue
		}
		got := tr.Confirm(due, map[string]bool{})
		if len(got) != 1 || got[0].UID != uid || tc.before && got[0].Name != "web-0" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Back in the API, or out of the node, a pod is no orphan, and the time begins anew.
func TestOrphansEnd(t *testing.T) {
	for name, end := range map[string]func(tr *Tracker){
		"a watch that was behind": func(tr *Tracker) { tr.Search(at(6*time.Minute), []string{uid}, []Pod{{UID: uid}}) },
		"a list that has it":      func(tr *Tracker) { tr.Confirm([]string{uid}, map[string]bool{uid: true}) },
		"no directory":            func(tr *Tracker) { tr.Search(at(6*time.Minute), nil, nil) },
	} {
		tr := &Tracker{After: 5 * time.Minute}
		tr.Search(at(0), []string{uid}, nil)
		tr.Search(at(5*time.Minute), []string{uid}, nil)
		if !tr.Read(uid, at(5*time.Minute), Process) || tr.Count()[Process] != 1 {
			t.Errorf("%s: it is none at first", name)
		}
		end(tr)
		if n := tr.Count()[Process]; n != 0 {
			t.Errorf("%s: %d orphans", name, n)
		}
		if tr.Read(uid, at(7*time.Minute), Process) {
			t.Errorf("%s: it is told", name)
		}
		if due := tr.Search(at(7*time.Minute), []string{uid}, nil); due != nil {
			t.Errorf("%s: due again: %q", name, due)
		}
	}
}

func TestRead(t *testing.T) {
	tr := &Tracker{After: 5 * time.Minute}
	tr.Search(at(0), []string{uid}, nil)
	for i, step := range []struct {
		after time.Duration
		kind  Kind
		told  bool
		count Kind
	}{
		{5 * time.Minute, "", false, ""},
		{10 * time.Minute, Directory, false, Directory},
		{15 * time.Minute, Volume, true, Volume},
		{16 * time.Minute, Volume, false, Volume},
		{25 * time.Minute, "", false, Volume},
		{75 * time.Minute, Volume, true, Volume},
		{80 * time.Minute, Directory, false, Directory},
	} {
		if due := tr.Search(at(step.after), []string{uid}, nil); len(due) != 1 {
			t.Errorf("%d: not due", i)
		}
		if due := tr.Search(at(step.after), []string{uid}, nil); len(due) != 1 {
			t.Errorf("%d: what was not read is not due any more", i)
		}
		if told := tr.Read(uid, at(step.after), step.kind); told != step.told {
			t.Errorf("%d: told %t", i, told)
		}
		if due := tr.Search(at(step.after+59*time.Second), []string{uid}, nil); due != nil {
			t.Errorf("%d: due again", i)
		}
		if step.count != "" && tr.Count()[step.count] != 1 {
			t.Errorf("%d: %v", i, tr.Count())
		}
	}
}

// Many directories have their turn, a few at a time.
func TestManyDirectories(t *testing.T) {
	tr := &Tracker{After: 5 * time.Minute}
	var dirs []string
	for i := range 80 {
		dirs = append(dirs, fmt.Sprintf("0b4ddc3e-1111-4222-8333-%012d", i))
	}
	tr.Search(at(0), dirs, nil)
	seen := map[string]bool{}
	for i := range 20 {
		now := at(5*time.Minute + time.Duration(i)*time.Second)
		due := tr.Search(now, dirs, nil)
		if len(due) != most {
			t.Fatalf("%d at a time", len(due))
		}
		for _, uid := range due {
			seen[uid] = true
			tr.Read(uid, now, Directory)
		}
	}
	if len(seen) != 80 || tr.Count()[Directory] != 80 {
		t.Errorf("%d had their turn, %v", len(seen), tr.Count())
	}
}
