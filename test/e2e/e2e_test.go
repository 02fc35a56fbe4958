//go:build e2e

// Package e2e runs the agent on a real cluster against real incidents. `make
// e2e` boots the cluster, builds the images and runs these tests.
package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// The environment that chooses what runs.
const (
	// namesVariable is a pattern of names of scenarios, as of a shell.
	namesVariable = "NODEAGENT_SCENARIO"
	// failedVariable, when set, leaves what did not fail in the last run.
	failedVariable = "NODEAGENT_FAILED"
)

var table = &results{begun: time.Now()}

func TestMain(m *testing.M) {
	code := m.Run()
	if table.cluster != nil {
		if err := table.keep(); err != nil {
			fmt.Println(err)
			code = 1
		}
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
	scenarios := append(scenario.All(), scenario.Alone()...)
	checks := agentJobs(c)
	if pattern := os.Getenv(namesVariable); pattern != "" {
		var names []string
		for _, s := range scenarios {
			names = append(names, s.Name)
		}
		for _, j := range checks {
			names = append(names, j.name)
		}
		wanted, err := scenario.Matching(pattern, names)
		if err != nil {
			t.Fatal(err)
		}
		scenarios = slices.DeleteFunc(scenarios, func(s bed.Scenario) bool { return !wanted[s.Name] })
		checks = slices.DeleteFunc(checks, func(j job) bool { return !wanted[j.name] })
	}
	var jobs []job
	for _, s := range scenarios {
		places := c.For(s)
		if len(places) == 0 {
			table.notRun = append(table.notRun, s.Name+", which needs "+needs(s)+": no node offers that")
		}
		for _, nodes := range places {
			wish := bed.Wish{Order: order(s, nodes), Alone: s.Alone, Waits: s.Long}
			jobs = append(jobs, job{name: s.Name, nodes: nodes, wish: wish, do: func(t *testing.T, turn *bed.Turn) {
				incident(t, s, turn)
			}})
		}
	}
	jobs = append(jobs, checks...)
	if os.Getenv(failedVariable) != "" {
		jobs = failedJobs(jobs)
		if len(jobs) == 0 {
			t.Log("nothing failed in the last run")
			return
		}
	}
	table.cluster, table.planned = c, len(jobs)
	withImages := scenarios
	if len(checks) > 0 {
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
	fmt.Printf("%s the agent runs; %d incidents and checks\n", time.Now().Format(time.TimeOnly), len(jobs))
	run(t, "side by side", jobs)
	if again := table.tryAgain(jobs); len(again) > 0 {
		run(t, "once more", again)
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
					turn, err := bed.Wait(t.Context(), j.nodes, j.wish)
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

// failedJobs returns those of the last run that failed, or were not reached.
func failedJobs(jobs []job) []job {
	var out []job
	for _, j := range jobs {
		if last, ok := table.earlier.Of(j.name, j.on()); !ok || len(last.Failures) > 0 {
			out = append(out, j)
		}
	}
	return out
}
