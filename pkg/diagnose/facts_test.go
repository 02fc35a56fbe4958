package diagnose_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// wrapped are the rules as all tests see them, by their causes.
var wrapped map[string]*diagnose.Guarded

// TestMain finds out whether each fact makes a difference: without it, a rule has to find something else in some evidence of these tests. It
// does when all of them run.
func TestMain(m *testing.M) {
	flag.Parse()
	if raceEnabled || testing.Short() || flag.Lookup("test.bench").Value.String() != "" {
		os.Exit(m.Run())
	}
	wrapped = diagnose.Guard(cause.All())
	if *find != "" {
		os.Exit(findChanges(m))
	}
	code := m.Run()
	if whole := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""; code == 0 && whole {
		code = judge(wrapped)
	}
	os.Exit(code)
}

// findChanges runs all tests but TestChanges, whatever was asked for, and then searches changes for the facts that none of them needs.
func findChanges(m *testing.M) (code int) {
	for name, pattern := range map[string]string{"test.run": "", "test.skip": "^TestChanges$"} {
		if err := flag.Set(name, pattern); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	if m.Run() != 0 {
		fmt.Println("Tests fail: what they need may be searched all the same.")
	}
	if err := search(wrapped, *find); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// judge prints which facts no test guards that are not in unguardedFile, and returns the code to exit with.
func judge(guarded map[string]*diagnose.Guarded) (code int) {
	fail := func(format string, args ...any) {
		fmt.Printf("FAIL: "+format+"\n", args...)
		code = 1
	}
	known, err := linesOf(unguardedFile)
	if err != nil {
		fail("%v", err)
	}
	for n, line := range known { // without what the search saw
		cells := strings.Split(line, "\t")
		known[n] = strings.Join(cells[:min(2, len(cells))], "\t")
	}
	facts, seen, unneeded := 0, map[string]bool{}, false
	for _, r := range cause.All() {
		g := guarded[r.Cause]
		says := g.Facts()
		facts += len(says)
		for _, i := range slices.Sorted(keys(g.Left)) {
			line := r.Cause + "\t" + says[i]
			if seen[line] = true; !slices.Contains(known, line) {
				fail("no test needs this fact of %s: %s", r.Cause, says[i])
				unneeded = true
			}
		}
		if g.Silent {
			fail("%s has found something, and its Tell says nothing of it", r.Cause)
		}
	}
	for _, line := range known {
		if !seen[line] {
			fail("a test needs this fact, or there is no such fact: remove it from %s: %s", unguardedFile, line)
		}
	}
	if unneeded {
		fmt.Printf("Add a row to a table in the layer's test in which only that fact is not so, and nothing is found.\n"+
			"Or %s for a change of a fixture, and writes it to %s.\nIf another fact follows from it, add the line CAUSE<tab>FACT<tab>REASON to %s.\n",
			findAnew, changesFile, unguardedFile)
	}
	fmt.Printf("%d lines of %d causes, %d facts that no test needs\n", facts, len(guarded), len(seen))
	return code
}

func keys[V any](m map[int]V) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
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
