//go:build e2e

// Package e2e runs the agent on a real cluster against real incidents. `make
// e2e` boots the cluster, builds the images and runs these tests.
package e2e

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// The environment that chooses what runs.
const (
	// namesVariable has patterns of names, as of a shell: these are watched, and tried once.
	namesVariable = "NODEAGENT_SCENARIO"
	// rowsVariable has the names that run in place of the sentinels.
	rowsVariable = "NODEAGENT_ROWS"
	// alsoVariable has names that run beside the sentinels.
	alsoVariable = "NODEAGENT_ALSO"
	// failedVariable, when set, leaves out what did not fail in the last run.
	failedVariable = "NODEAGENT_FAILED"
	// resumeVariable, when set, leaves out what is green on the same commit.
	resumeVariable = "NODEAGENT_RESUME"
)

var table = &results{begun: time.Now()}

func TestMain(m *testing.M) {
	code := m.Run()
	if table.cluster != nil {
		table.print()
	}
	os.Exit(code)
}

// The orders of the turns: what failed in the last run or takes minutes by its nature, then what was
// quick in it, then what is killed at its deadline and must have been seen shortly before,
// then what wants a node to itself. Where no other node does that, what takes minutes of it comes before all: it
// waits more than it computes, and at the end the whole machine would wait with it.
const (
	orderOnly  = -1
	orderFirst = 0
	orderUsual = 60 // for what has no last time, in seconds
	orderCalm  = 10_000
	orderAlone = 20_000
)

// A job is one row of the table to come: a scenario, or a check of the agent.
type job struct {
	name string
	// nodes are alike, and the first that has room does the job. None is for the whole
	// cluster.
	nodes []*bed.Node
	wish  bed.Wish
	do    func(*testing.T, *bed.Turn)
}

// on returns the software of the job's nodes.
func (j job) on() string { return software(j.nodes) }

// software returns what nodes that are alike have, none of no node.
func software(nodes []*bed.Node) string {
	if len(nodes) == 0 {
		return ""
	}
	return nodes[0].Software()
}

func TestCluster(t *testing.T) {
	if artifacts() == "" {
		t.Fatal("NODEAGENT_ARTIFACTS is not set; make e2e sets it")
	}
	c, err := bed.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if table.earlier, err = bed.ReadResults(artifacts()); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		fmt.Println(n)
	}
	if table.commit, err = bed.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	scenarios, others, err := chosen()
	if err != nil {
		t.Fatal(err)
	}
	var jobs []job
	for _, s := range scenarios {
		places := c.For(s)
		if len(places) == 0 {
			table.notRun = append(table.notRun, s.Name+", which needs "+needs(s)+": no node offers that")
		}
		for _, nodes := range places {
			wish := bed.Wish{Order: order(s, nodes), Alone: s.Alone, Hungry: s.Hungry, Waits: s.Long}
			jobs = append(jobs, job{name: s.Name, nodes: nodes, wish: wish, do: func(t *testing.T, turn *bed.Turn) {
				incident(t, s, turn)
			}})
		}
	}
	for _, check := range others {
		if j, ok := checkJob(c, check); ok {
			jobs = append(jobs, j)
		} else {
			table.notRun = append(table.notRun, check.Name+", which needs "+needs(onKernel)+": no node offers that")
		}
	}
	if jobs = left(jobs); len(jobs) == 0 {
		fmt.Println("nothing is left to run")
		return
	}
	table.cluster, table.planned = c, len(jobs)
	withImages := scenarios
	if len(others) > 0 {
		alone := scenario.SameName() // as those that stop the agent are
		alone.Alone = true
		withImages = slices.Concat(scenarios, []bed.Scenario{alone}, scenario.ThreeStuck())
	}
	if err := bed.Images(t.Context(), c, withImages); err != nil {
		t.Fatal(err)
	}
	if err := bed.Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	table.told = time.Now()
	fmt.Printf("%s the agent runs; %d incidents and checks\n", table.told.Format(time.TimeOnly), len(jobs))
	go table.tellsWhatRuns(t.Context())
	run(t, "side by side", jobs)
	if again := table.tryAgain(jobs); len(again) > 0 {
		run(t, "once more", again)
	}
	unexplained(t, c, scenarios)
}

// missed is what an agent logs of a pod that has gone, of which a container was killed at its deadline and no cause was found.
var missed = regexp.MustCompile(`and no cause was found.* pod=([a-z0-9.-]+) .* unexplained=[1-9]`)

// unexplained fails for each pod of an incident that an agent has counted as killed without a cause. Innocents may use up their grace period
// unseen, as under gVisor.
func unexplained(t *testing.T, c *bed.Cluster, scenarios []bed.Scenario) {
	for _, n := range c.Nodes {
		agent, err := n.AgentPod(t.Context())
		if err != nil {
			t.Errorf("the agent's log on %s: %v", n.Name, err)
			continue
		}
		log, err := n.Kubectl(t.Context(), "-n", agent.Namespace, "logs", agent.Name)
		if err != nil {
			t.Errorf("the agent's log on %s: %v", n.Name, err)
		}
		for line := range strings.Lines(log) {
			m := missed.FindStringSubmatch(line)
			if m == nil || slices.ContainsFunc(table.first, func(e bed.Result) bool { return e.Name == m[1] }) {
				continue // that try has failed for it
			}
			if slices.ContainsFunc(scenarios, func(s bed.Scenario) bool { return s.Name == m[1] && s.Cause != "" }) {
				t.Errorf("%s on %s was killed at its deadline, and no cause was found: %.1000s", m[1], n.Name, line)
			}
		}
	}
}

// run does the jobs side by side, and after them those of the whole cluster: what all
// nodes suffer from.
func run(t *testing.T, name string, jobs []job) {
	t.Run(name, func(t *testing.T) {
		for _, j := range jobs {
			if len(j.nodes) > 0 {
				t.Run(j.name+"@"+j.nodes[0].Kind, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := inTime(t)
					defer cancel()
					turn, err := bed.Wait(ctx, j.nodes, j.wish)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(turn.Done)
					j.do(t, turn)
				})
			}
		}
	})
	for _, j := range jobs {
		if len(j.nodes) == 0 {
			t.Run(j.name, func(t *testing.T) { j.do(t, nil) })
		}
	}
}

func needs(s bed.Scenario) string {
	var all []string
	for _, n := range s.Needs {
		all = append(all, string(n))
	}
	return strings.Join(all, " and ")
}

// order returns a scenario's place in the queue of its nodes.
func order(s bed.Scenario, nodes []*bed.Node) int {
	order := orderUsual
	last, ok := table.earlier.Of(s.Name, software(nodes))
	if ok {
		order = int(last.Whole.Seconds())
	}
	switch {
	case s.Alone && s.Long && len(nodes) == 1:
		return orderOnly
	case s.Alone && s.When == bed.WhenGone:
		return orderAlone + orderCalm
	case s.Alone && s.Long:
		return orderAlone - 1
	case s.Alone:
		return orderAlone
	case s.When == bed.WhenGone:
		return orderCalm + order
	case s.Long || ok && len(last.Failures) > 0:
		return orderFirst
	}
	return order
}

// chosen returns what runs, by the environment: what is named, or the sentinels.
func chosen() ([]bed.Scenario, []bed.Check, error) {
	scenarios, others := append(scenario.All(), scenario.Alone()...), scenario.Checks()
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Name)
	}
	for _, check := range others {
		names = append(names, check.Name)
	}
	patterns := cmp.Or(os.Getenv(namesVariable), os.Getenv(rowsVariable), os.Getenv(alsoVariable))
	wanted, err := scenario.Matching(patterns, names)
	if err != nil {
		return nil, nil, err
	}
	sentinels := os.Getenv(namesVariable) == "" && os.Getenv(rowsVariable) == ""
	out := func(name string, tier bed.Tier) bool {
		return !wanted[name] && (!sentinels || tier != bed.Sentinel)
	}
	return slices.DeleteFunc(scenarios, func(s bed.Scenario) bool { return out(s.Name, s.Tier) }),
		slices.DeleteFunc(others, func(check bed.Check) bool { return out(check.Name, check.Tier) }), nil
}

// left returns the jobs that an earlier run has left to do, if the environment says that it counts.
func left(jobs []job) []job {
	green := table.earlier.Green(table.commit)
	return slices.DeleteFunc(jobs, func(j job) bool {
		if os.Getenv(resumeVariable) != "" {
			if _, ok := green.Of(j.name, j.on()); ok {
				return true
			}
		}
		last, ok := table.earlier.Of(j.name, j.on())
		return os.Getenv(failedVariable) != "" && ok && len(last.Failures) == 0
	})
}
