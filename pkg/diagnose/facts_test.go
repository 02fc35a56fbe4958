package diagnose_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unguardedFile lists the facts that no evidence of a test needs: a line for each, with the cause before it. It should get shorter.
const unguardedFile = "testdata/unguarded.txt"

// TestMain finds out whether each fact makes a difference: without it, a rule has to find something else in some evidence of these tests. It
// does when all of them run.
func TestMain(m *testing.M) {
	flag.Parse()
	part := func(name string) bool { return flag.Lookup("test."+name).Value.String() != "" }
	if raceEnabled || testing.Short() || part("run") || part("skip") || part("bench") {
		os.Exit(m.Run())
	}
	guarded := diagnose.Guard(cause.All())
	code := m.Run()
	if code == 0 {
		code = judge(guarded)
	}
	os.Exit(code)
}

// judge prints which facts no test guards, and returns the code to exit with.
func judge(guarded map[string]*diagnose.Guarded) (code int) {
	lines, free := 0, map[string]bool{}
	for _, r := range cause.All() {
		var says []string
		for _, l := range guarded[r.Cause].Lines() {
			says = append(says, l.Says...)
		}
		lines += len(says)
		for i := range guarded[r.Cause].Left {
			free[r.Cause+": "+says[i]] = true
		}
		if guarded[r.Cause].Silent {
			fmt.Printf("FAIL: %s has found something, and its Tell says nothing of it\n", r.Cause)
			code = 1
		}
	}
	fmt.Printf("%d lines of %d causes, %d facts that no test needs\n", lines, len(guarded), len(free))
	text := strings.Join(slices.Sorted(maps.Keys(free)), "\n") + "\n"
	if *update {
		if err := os.WriteFile(unguardedFile, []byte(text), 0o644); err != nil {
			fmt.Println("FAIL:", err)
			return 1
		}
		return code
	}
	listed, err := os.ReadFile(unguardedFile)
	if err != nil {
		fmt.Println("FAIL:", err)
		return 1
	}
	for name := range free {
		if !strings.Contains(string(listed), name+"\n") {
			fmt.Printf("FAIL: no test needs this fact, so none would fail if it were wrong: %s\n", name)
			code = 1
		}
	}
	for name := range strings.Lines(string(listed)) {
		if !free[strings.TrimSuffix(name, "\n")] {
			fmt.Printf("FAIL: a test needs this fact now: go test ./pkg/diagnose -update removes it from %s: %s", unguardedFile, name)
			code = 1
		}
	}
	return code
}

func TestFactsAreWhole(t *testing.T) {
	for _, r := range cause.All() {
		for _, problem := range r.Problems() {
			t.Errorf("%s: %s", r.Cause, problem)
		}
	}
}

// farTwins are the causes whose healthy twins all miss more than two facts, with the reason.
var farTwins = map[string]string{}

// A healthy twin looks like its cause: the rule has something to look at. One of a cause misses one or two facts at most.
func TestTwinsAreNear(t *testing.T) {
	near, at := map[string]int{}, map[int]int{}
	for _, r := range cause.All() {
		near[r.Cause] = 99
	}
	for _, r := range cause.All() {
		for _, f := range fixtures(t) {
			if !slices.Contains(f.twinOf, r.Cause) || r == diagnose.Unrecognised {
				continue
			}
			n, ok := r.Distance(f.evidence)
			if !ok {
				t.Errorf("%s is no twin of %s: the rule has nothing to look at", f.name, r.Cause)
				continue
			}
			near[r.Cause] = min(near[r.Cause], n)
			at[n]++
		}
		if far := near[r.Cause] > 2 && r != diagnose.Unrecognised; far != (farTwins[r.Cause] != "") {
			t.Errorf("%s: its nearest twin misses %d facts", r.Cause, near[r.Cause])
		}
	}
	t.Logf("twins by the number of facts that they miss: %v", at)
}

// clear removes what a source has read.
var clear = map[evidence.Source]func(*evidence.Pod){
	evidence.Processes:       func(p *evidence.Pod) { p.Tasks, p.Parents, p.Leftovers = nil, nil, nil },
	evidence.Suspects:        func(p *evidence.Pod) { eachTask(p, func(t *evidence.Task) { t.Probe = nil }) },
	evidence.Cgroups:         func(p *evidence.Pod) { p.Cgroups = nil },
	evidence.Mounts:          func(p *evidence.Pod) { p.Mounts, p.Devices, p.ImageMounts = nil, nil, nil },
	evidence.Containers:      func(p *evidence.Pod) { eachContainer(p, func(c *evidence.Container) { c.State, c.Runtime = "", "" }) },
	evidence.Shims:           func(p *evidence.Pod) { eachContainer(p, func(c *evidence.Container) { c.Task = evidence.ShimTask{} }) },
	evidence.Containerd:      func(p *evidence.Pod) { p.Node.Containerd = evidence.ContainerdService{} },
	evidence.Kubelet:         func(p *evidence.Pod) { p.Node.Kubelet = evidence.KubeletService{} },
	evidence.Volumes:         func(p *evidence.Pod) { p.Volumes = nil },
	evidence.Holders:         func(p *evidence.Pod) { p.Holders = nil },
	evidence.VolumeCalls:     func(p *evidence.Pod) { p.Node.Kubelet.VolumeCalls = nil },
	evidence.APICalls:        func(p *evidence.Pod) { p.Node.Kubelet.APICalls = nil },
	evidence.Claims:          func(p *evidence.Pod) { p.Claims = nil },
	evidence.ClaimCalls:      func(p *evidence.Pod) { p.Node.Kubelet.ClaimCalls = nil },
	evidence.Events:          func(p *evidence.Pod) { p.KillFailures = nil },
	evidence.Plugins:         func(p *evidence.Pod) { p.Plugins, p.NetworkSetup = nil, nil },
	evidence.RuntimeCommands: func(p *evidence.Pod) { p.RuntimeCommands, p.ShimChildren = nil, nil },
	evidence.NodeObject:      func(p *evidence.Pod) { p.Node.Ready = nil },
	evidence.Requests:        func(p *evidence.Pod) { p.Requests = nil },
	evidence.Limits:          func(p *evidence.Pod) { p.Shortages = nil },
	evidence.Pulls:           func(p *evidence.Pod) { p.Pulls = nil },
}

func eachTask(p *evidence.Pod, f func(*evidence.Task)) {
	for _, tasks := range [][]evidence.Task{p.Tasks, p.Parents, p.Leftovers, p.Plugins, p.NetworkSetup} {
		for i := range tasks {
			f(&tasks[i])
		}
	}
}

func eachContainer(p *evidence.Pod, f func(*evidence.Container)) {
	for i := range p.Containers {
		f(&p.Containers[i])
	}
}

// ruledOutUnread are the causes that are ruled out though a source could not be read, with the reason.
var ruledOutUnread = map[string]string{}

// What could not be read is no "no": without one of the sources that a cause is read from, it is found all the same, or nobody knows.
func TestUnreadIsNotNo(t *testing.T) {
	rules := map[string]*diagnose.Rule{}
	for _, r := range cause.All() {
		rules[r.Cause] = r
	}
	asked := 0
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		v, ok := d.Verdict()
		if !ok || v.Cause == diagnose.Unrecognised.Cause {
			continue
		}
		for _, s := range rules[v.Cause].Sources() {
			p := readFixture(t, "testdata/"+f.name+".txtar").evidence
			clear[s](p)
			p.Lack(s, "not read")
			asked++
			name := fmt.Sprintf("%s without %s", v.Cause, s)
			if rules[v.Cause].RuledOut(p) != (ruledOutUnread[name] != "") {
				t.Errorf("%s: %s is ruled out without %s\n%s", f.name, v.Cause, s, cause.Table().AskedPage(rules[v.Cause], p))
			}
		}
	}
	t.Logf("%d times a source was missing", asked)
}
