package diagnose_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// placeholders are the names in braces in some texts.
func placeholders(texts ...string) map[string]bool {
	names := map[string]bool{}
	for _, text := range texts {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
	}
	return names
}

// containerdBlocked is the one variant with values of its own of which no fixture
// is captured: containerd's process in state D.
func containerdBlocked() *evidence.Pod {
	now := requested.Add(2 * time.Minute)
	return &evidence.Pod{
		Time: now, UnchangedSince: requested, Phase: "Running", DeletionRequested: requested, Deadline: requested.Add(30 * time.Second),
		Node: evidence.Node{Containerd: evidence.ContainerdService{
			UnansweredSince: now.Add(-time.Minute), Attempts: 3,
			Process: &evidence.Task{
				PID: 7, TID: 7, Comm: "containerd", State: evidence.Uninterruptible, UnchangedSince: now.Add(-time.Minute),
				Probe: &evidence.Probe{Wchan: "io_schedule"},
			},
		}},
	}
}

// findings are those of every fixture, by its name, and of what is made here.
func findings(t *testing.T) map[string][]diagnose.Finding {
	t.Helper()
	all := map[string][]diagnose.Finding{"containerd blocked": cause.Diagnose(containerdBlocked()).Findings}
	for _, f := range fixtures(t) {
		all[f.name] = cause.Diagnose(f.evidence).Findings
	}
	return all
}

// Each placeholder of a Doc is a phrase of it or one of the values; one that always
// stands is given in some finding. A misspelt one would stand on pods in capitals.
func TestPlaceholdersExist(t *testing.T) {
	byCause := map[string][]diagnose.Finding{}
	for _, found := range findings(t) {
		for _, f := range found {
			byCause[f.Cause] = append(byCause[f.Cause], f)
		}
	}
	for _, r := range cause.All() {
		d := &r.Doc
		var check func(text string, within []string)
		check = func(text string, within []string) {
			for name := range placeholders(text) {
				if slices.Contains(within, name) {
					t.Fatalf("%s: the phrases %v, {%s} are made of each other", r.Cause, within, name)
				}
				choices, phrase := d.Phrase(name)
				for _, c := range choices {
					check(c.Text, append(within, name))
				}
				if !phrase && !diagnose.IsValue(name) {
					t.Errorf("%s: {%s} is neither a phrase of the Doc nor a value", r.Cause, name)
				}
				given := func(f diagnose.Finding) bool { _, ok := d.Value(name, &f); return ok }
				if len(within) == 0 && !slices.ContainsFunc(byCause[r.Cause], given) {
					t.Errorf("%s: nothing gives a value to {%s}", r.Cause, name)
				}
			}
		}
		for _, text := range []string{d.Message, d.Meaning, d.Evidence, d.Remedy, d.Danger} {
			check(text, nil)
		}
		for _, f := range d.Families {
			for _, text := range []string{f.Meaning, f.Remedy, f.Danger} {
				check(text, nil)
			}
		}
		for name := range d.Phrases {
			check("{"+name+"}", nil)
		}
	}
}

// What a fixture shows has a value for each placeholder of its variant.
func TestFindingsHaveTheirValues(t *testing.T) {
	docs := map[string]*diagnose.Doc{}
	for _, r := range cause.All() {
		docs[r.Cause] = &r.Doc
	}
	for where, found := range findings(t) {
		for _, f := range found {
			d := docs[f.Cause]
			remedy, danger := d.Remedies(&f)
			for name := range placeholders(d.Message, remedy, danger) {
				if _, ok := d.Value(name, &f); !ok {
					t.Errorf("%s: %s %s has no value for {%s}", where, f.Cause, f.Family, name)
				}
			}
		}
	}
}

// Each phrase has words for a finding of no variant, which a page shows too.
func TestPhrasesHaveWordsForAll(t *testing.T) {
	for _, r := range cause.All() {
		for name, choices := range r.Doc.Phrases {
			if !slices.ContainsFunc(choices, func(c diagnose.Choice) bool { return c.Variant == "" }) {
				t.Errorf("%s: {%s} has words for variants only", r.Cause, name)
			}
		}
	}
}

// What others chose cannot break a line, nor pass for a sentence of ours.
func TestForeignWords(t *testing.T) {
	for in, want := range map[string]string{
		"java":                "java",
		"Web Content":         "Web Content",
		"a\nb":                `"a\nb"`,
		"a\xff":               `"a\xff"`,
		"x. Remedy: kill -9":  `"x. Remedy:…`,
		"longer than that is": "longer than…",
	} {
		if got := diagnose.Foreign(in, 14); got != want {
			t.Errorf("%q stands as %s, want %s", in, got, want)
		}
	}
}

// everything is a finding that has every object.
func everything() diagnose.Finding {
	process := func(n int, comm string) *diagnose.Process {
		return &diagnose.Process{PID: n, Comm: comm, State: evidence.Sleeping}
	}
	return diagnose.Finding{Container: "main", Objects: diagnose.Objects{
		Process: &diagnose.Process{PID: 7, Comm: "java", Program: "server"},
		Thread:  &diagnose.Thread{TID: 8, Comm: "worker", State: evidence.Sleeping, Function: "ep_poll", Syscall: "epoll_wait"}, Alike: 2,
		Child: process(9, "child"), Foreground: process(10, "sleep"),
		Tracer: &diagnose.Process{PID: 11, Comm: "gdb", Container: "tools"}, Member: process(12, "sh"),
		Parent:     &diagnose.Process{PID: 13, Comm: "nsenter", Pod: "shop/debug"},
		Containers: []string{"main", "other"}, ContainerID: "c0ffee", Cgroup: "/kubepods/a", Device: "sdb", CorePattern: "|/bin/dump",
		Mount: &diagnose.Mount{
			Type: "nfs4", Family: "NFS", Device: "0:50", Source: "192.0.2.1:/export", Server: "192.0.2.1", Volume: "data",
			Point: "/data", HostPoint: "/var/data", Unanswered: true, OutOfReach: true, Connection: evidence.Established, KernelThread: "kworker/1",
		},
		Signal: "SIGTERM", Handled: "SIGINT", Deadline: requested, GraceSeconds: 90, Since: requested.Add(time.Second), Ended: requested.Add(time.Minute),
		CPULimitMillis: 10, CPUUsedMillis: 1250, MemoryHigh: 60 << 20, Finalizers: []string{"example.org/a", "example.org/b"},
		Pod: "shop/web-0", Left: []string{diagnose.LeftMounts, diagnose.LeftCgroup}, RuledOut: []string{"kernel", "signal"}, PartlyRuledOut: []string{"runtime"}, Unread: []evidence.Source{evidence.Shims},
	}}
}

// Every value says what it should of a finding that has everything, and nothing of
// one that has nothing.
func TestValues(t *testing.T) {
	full := everything()
	want := map[string]string{
		"container": "main", "containers": "main, other", "containerid": "c0ffee", "cgroup": "kubepods/a", "device": "sdb", "target": "|/bin/dump",
		"program": "server", "process": "java (PID 7)", "pid": "7", "comm": "worker",
		"thread": "8", "function": "ep_poll", "syscall": "epoll_wait", "state": "S", "alike": "2", "threads": "2 threads",
		"child": "child", "childpid": "9", "foreground": "sleep", "foregroundpid": "10",
		"tracer": "gdb (PID 11, of container tools)", "tracerpid": "11", "member": "sh", "memberpid": "12", "memberstate": "S",
		"parent": "nsenter (PID 13, of pod shop/debug)", "parentpid": "13",
		"mountpoint": "/var/data", "point": "/data", "fstype": "nfs4", "protocol": "NFS", "source": "192.0.2.1:/export", "server": "192.0.2.1",
		"volume": "data", "connection": "50", "silence": "requests without an answer, the server acknowledges nothing",
		"details": "on the node /var/data, source 192.0.2.1:/export, volume data, requests without an answer, " +
			"the server acknowledges nothing, for which the kernel's thread kworker/1 waits too",
		"signal": "SIGTERM", "handled": "SIGINT", "deadline": "03:00:00 UTC", "since": "03:00:01 UTC", "ended": "03:01:00 UTC", "grace": "1m30s",
		"cpulimit": "0.01 processors", "cpuused": "1.25 processors", "memoryhigh": "60 MiB",
		"finalizers": "finalizers example.org/a, example.org/b", "domain": "example.org",
		"pod": "shop/web-0", "left": "mounts, its cgroup", "layers": "kernel, signal", "partly": "runtime", "unread": "shims",
	}
	got := map[string]string{}
	var d diagnose.Doc
	for _, name := range diagnose.ValueNames() {
		got[name], _ = d.Value(name, &full)
		if v, ok := d.Value(name, &diagnose.Finding{}); ok {
			t.Errorf("{%s} of a finding without objects is %q", name, v)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values differ (-want +got):\n%s", diff)
	}
}

// A finding is data: it is the same when it has been written as JSON and read, and
// each field has a name of its own there.
func TestFindingsAreData(t *testing.T) {
	want := everything()
	objects := reflect.ValueOf(want.Objects)
	for i := range objects.NumField() {
		if objects.Field(i).IsZero() {
			t.Errorf("everything has no %s", objects.Type().Field(i).Name)
		}
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got diagnose.Finding
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a finding differs after JSON (-written +read):\n%s", diff)
	}
}
