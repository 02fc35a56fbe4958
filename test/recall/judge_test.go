package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// find returns the cell of a name.
func find(t *testing.T, name string) cell {
	t.Helper()
	some, err := named(pairwise(shapes()), name)
	if err != nil {
		t.Fatal(err)
	}
	return some[0]
}

func TestJudge(t *testing.T) {
	killed, ended := ending{Killed: true, Code: 137, After: 15 * time.Second}, ending{After: 2 * time.Second}
	slow := verdict{Cause: "SlowShutdown", Note: "Was stuck: container main: java handled SIGTERM but did not exit"}
	for _, test := range []struct {
		name, cell string
		ending     ending
		verdicts   []verdict
		want       outcome
	}{
		{"told", "java-none-slow", killed, []verdict{slow}, right},
		{"nothing told", "java-none-slow", killed, nil, missed},
		{"another cause", "java-none-nohandler", killed, []verdict{slow}, wrong},
		{"another cause beside the right one", "java-none-slow", killed, []verdict{slow, {Cause: "Unknown"}}, wrong},
		{"another container", "sidecar-sleep-slow", killed, []verdict{slow}, wrong},
		{"the program that waits, and not the one it waits for", "npm-none-slow", killed, []verdict{slow}, wrong},
		{"innocent", "java-none-ends", ended, nil, silent},
		{"accused", "java-none-ends", ended, []verdict{slow}, accused},
		{"killed, and should have ended", "java-none-ends", killed, nil, otherwise},
		{"ended, and should have been killed", "java-none-slow", ended, []verdict{slow}, otherwise},
		{"odd", "java-none-slow", ending{Killed: true, Odd: "container main was started 2 times"}, []verdict{slow}, otherwise},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, because := judge(find(t, test.cell), test.ending, test.verdicts); got != test.want {
				t.Errorf("judge = %s (%s), want %s", got, because, test.want)
			}
		})
	}
}

func TestEnded(t *testing.T) {
	deleted := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	seconds := int64(15)
	status := func(name string, code int32, after time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(deleted.Add(after))},
		}}
	}
	running := corev1.ContainerStatus{Name: mainContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	again := status(mainContainer, 0, time.Second)
	again.RestartCount = 1
	for _, test := range []struct {
		name     string
		statuses []corev1.ContainerStatus
		killed   bool
		odd      bool
	}{
		{"killed at the deadline", []corev1.ContainerStatus{status(mainContainer, 137, 15*time.Second)}, true, false},
		{"ended with the code of one that is killed", []corev1.ContainerStatus{status(mainContainer, 137, 3*time.Second)}, false, false},
		{"ended at the deadline by itself", []corev1.ContainerStatus{status(mainContainer, 143, 15*time.Second)}, false, false},
		{"ended before", []corev1.ContainerStatus{status(mainContainer, 1, -time.Minute)}, false, true},
		{"its end is not known", []corev1.ContainerStatus{running}, false, true},
		{"started again", []corev1.ContainerStatus{again}, false, true},
		{"another one was killed", []corev1.ContainerStatus{status(mainContainer, 0, time.Second), status("proxy", 137, 15*time.Second)}, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &seconds}, Status: corev1.PodStatus{ContainerStatuses: test.statuses}}
			e := ended(p, cell{shape: &shape{}}, deleted)
			if e.Killed != test.killed || (e.Odd != "") != test.odd {
				t.Errorf("ended = %+v, want killed %t, odd %t", e, test.killed, test.odd)
			}
		})
	}
}

func TestSum(t *testing.T) {
	table := table{results: []result{{Outcome: right, Remedied: itWorks}, {Outcome: right, Remedied: itWorks}, {Outcome: missed}, {Outcome: silent}}}
	const want = "4 cells: 3 burnt their grace period: 2 told right, 0 told wrong, 1 missed: 67 %; 1 ended in time: 0 accused"
	if got := table.sum(); got != want {
		t.Errorf("sum = %q, want %q", got, want)
	}
	if table.verdict() == nil {
		t.Error("two of three are enough, want 95 %")
	}
	table.results = append(table.results[:2], result{Outcome: silent})
	if err := table.verdict(); err != nil {
		t.Error(err)
	}
	table.results = append(table.results, result{Outcome: accused})
	if table.verdict() == nil {
		t.Error("an innocent one that is accused is no error")
	}
}
