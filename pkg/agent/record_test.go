package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/itchyny/gojq"
	"github.com/santhosh-tekuri/jsonschema/v6"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
	"github.com/nodeagent-io/nodeagent/test/hostile"
)

const recordSchema = "../../docs/verdict-record.schema.json"

// A recordOf is a line of the log.
type recordOf = map[string]any

// recordsIn returns the records of ended verdicts in a log of JSON, and has each follow the schema.
func recordsIn(t *testing.T, log string) []recordOf {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile(recordSchema)
	if err != nil {
		t.Fatal(err)
	}
	var out []recordOf
	for line := range strings.Lines(log) {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if value.(recordOf)["msg"] != "verdict ended" {
			continue
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%v:\n%s", err, line)
		}
		var r recordOf
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// A standing pod is one about which verdicts come to stand and end.
type standingPod struct {
	condition *corev1.PodCondition
	cause     func(after time.Duration, gone bool) string // what is found
	hangs     time.Duration                               // when its reading begins to hang; 0 for never
	budget    int
	deleted   time.Duration // when its object is deleted; 0 for not while the agent runs
	shortened int64         // its grace period by then, in seconds; 0 for the same
	owner     *metav1.OwnerReference
	leftOut   int64
	gone      bool // what ReportGone says
}

// causes returns what is found of a pod: of A until a moment, then of B.
func causes(a string, until time.Duration, b string) func(time.Duration, bool) string {
	return func(after time.Duration, _ bool) string {
		if after < until {
			return a
		}
		return b
	}
}

// logOf runs the agent for a minute and returns its log in JSON and as text. The pod shop/web-0 with the UID a is deleted at the
// begin, with a grace period of ten seconds.
func (s *standingPod) logOf(t *testing.T) (asJSON, asText string) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		var inJSON, inText bytes.Buffer
		b.Log = slog.New(slog.NewMultiHandler(slog.NewJSONHandler(&inJSON, nil), slog.NewTextHandler(&inText, nil)))
		b.Budget = &verdict.Budget{PerMinute: s.budget}
		if s.budget == 0 {
			b.Budget.Allow(verdict.Subject{Namespace: "shop", UID: "a"}, &diagnose.Finding{Cause: "A"}, time.Now())
		}
		b.unlogged.Store(s.leftOut)
		start := time.Now()
		b.Diagnose = func(p *evidence.Pod) (d diagnose.Diagnosis) {
			d.Phase = diagnose.Kill
			if cause := s.cause(time.Since(start), p.Gone); cause != "" {
				d.Findings = []diagnose.Finding{{Cause: cause, Message: "container \"main\" holds it up by " + cause + "."}}
			}
			return d
		}
		report := b.Report
		b.Report = func(ctx context.Context, c *verdict.Case) {
			if c.Outcome() == verdict.Found && !c.HeldBack() {
				c.ConditionWritten(verdict.Condition{Blocked: true, Reason: c.Finding().Cause})
			}
			report(ctx, c)
		}
		b.ReportGone = func(context.Context, *verdict.Case, time.Time, diagnose.Diagnosis) bool { return s.gone }
		b.gather = func(_ context.Context, p *evidence.Pod) {
			if s.hangs > 0 && time.Since(start) >= s.hangs {
				time.Sleep(time.Hour)
			}
			p.Containers = []evidence.Container{{Name: "main", ID: "c"}}
			p.Tasks = []evidence.Task{{PID: 7, TID: 7, Container: "c", State: evidence.Sleeping}}
		}
		pod := terminating("a", start, 10)
		pod.Namespace, pod.Name = "shop", "web-0"
		if s.owner != nil {
			pod.OwnerReferences = []metav1.OwnerReference{*s.owner}
		}
		if s.condition != nil {
			pod.Status.Conditions = []corev1.PodCondition{*s.condition}
		}
		b.set([]*corev1.Pod{pod})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		if s.deleted > 0 {
			time.Sleep(s.deleted - time.Second) // between two rounds
			last := pod
			if s.shortened > 0 {
				last = terminating("a", start, s.shortened)
				last.Namespace, last.Name = pod.Namespace, pod.Name
			}
			b.set(nil, last)
		}
		time.Sleep(time.Minute - time.Since(start))
		cancel()
		<-done
		asJSON, asText = inJSON.String(), inText.String()
		time.Sleep(time.Hour) // what hangs returns
	})
	return asJSON, asText
}

const m = time.Minute

// standingPods are pods, each with what is to be logged of its verdicts.
func standingPods() map[string]struct {
	pod  standingPod
	want []recordOf
} {
	at := func(d time.Duration) string { // as time begins in a bubble
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(time.RFC3339)
	}
	const s = time.Second
	// record returns one with what is the same in most, and these keys and values.
	record := func(changes ...any) recordOf {
		r := recordOf{"level": "INFO", "msg": "verdict ended", "namespace": "shop", "pod": "web-0", "uid": "a", "node": "n", "cause": "A", "phase": "Kill",
			"workload": "web-0", "workloadType": "barepod", "deletionRequested": at(0), "deadline": at(10 * s), "reported": true, "heldBack": false, "message": "container \"main\" holds it up by A."}
		for i := 0; i < len(changes); i += 2 {
			key := changes[i].(string)
			if r[key] = changes[i+1]; changes[i+1] == nil {
				delete(r, key)
			}
		}
		return r
	}
	isController := true
	told := func(since time.Duration) *corev1.PodCondition {
		return &corev1.PodCondition{Type: verdict.ConditionType, Status: corev1.ConditionTrue, Reason: "A", Message: "Cause: Stuck.",
			LastTransitionTime: metav1.NewTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(since))}
	}
	whenGone := func(_ time.Duration, gone bool) string {
		if gone {
			return "A"
		}
		return ""
	}
	return map[string]struct {
		pod  standingPod
		want []recordOf
	}{
		"none":   {standingPod{cause: causes("", m, ""), budget: 20, deleted: 20 * s}, nil},
		"stands": {standingPod{cause: causes("A", m, "A"), budget: 20}, nil},
		// The first look without it is at 20 s.
		"withdrawn": {standingPod{cause: causes("A", 20*s, ""), budget: 20, deleted: 50 * s},
			[]recordOf{record("ending", "withdrawn", "since", at(0), "ended", at(36*s), "durationSeconds", 36.0, "lateSeconds", 26.0)}},
		"replaced": {standingPod{cause: causes("A", 20*s, "B"), budget: 20},
			[]recordOf{record("ending", "replaced", "nextCause", "B", "since", at(0), "ended", at(20*s), "durationSeconds", 20.0, "lateSeconds", 10.0)}},
		"replaced, and deleted": {standingPod{cause: causes("A", 6*s, "B"), budget: 20, deleted: 30 * s}, []recordOf{
			record("ending", "replaced", "nextCause", "B", "since", at(0), "ended", at(6*s), "durationSeconds", 6.0, "lateSeconds", 0.0),
			record("cause", "B", "ending", "deleted", "since", at(6*s), "ended", at(30*s), "durationSeconds", 24.0, "lateSeconds", 20.0,
				"message", "container \"main\" holds it up by B.")}},
		"deleted": {standingPod{cause: causes("A", m, ""), budget: 20, deleted: 30 * s, leftOut: 3,
			owner: &metav1.OwnerReference{Kind: "ReplicaSet", Name: "web-5d9", UID: "r", Controller: &isController}},
			[]recordOf{record("ending", "deleted", "since", at(0), "ended", at(30*s), "durationSeconds", 30.0, "lateSeconds", 20.0,
				"workload", "web-5d9", "workloadType", "replicaset", "leftOut", 3.0)}},
		"deleted with a shorter grace period": {standingPod{cause: causes("A", m, ""), budget: 20, deleted: 8 * s, shortened: 1},
			[]recordOf{record("ending", "deleted", "since", at(0), "ended", at(8*s), "durationSeconds", 8.0, "deadline", at(1*s), "lateSeconds", 7.0)}},
		"deleted inside its grace period, held back": {standingPod{cause: causes("A", m, ""), deleted: 8 * s},
			[]recordOf{record("ending", "deleted", "since", at(0), "ended", at(8*s), "durationSeconds", 8.0, "lateSeconds", 0.0, "reported", false, "heldBack", true)}},
		"deleted while its reading hangs": {standingPod{cause: causes("A", m, ""), budget: 20, hangs: 20 * s, deleted: 50 * s},
			[]recordOf{record("ending", "deleted", "since", at(0), "ended", at(50*s), "durationSeconds", 50.0, "lateSeconds", 40.0)}},
		"of an earlier run": {standingPod{cause: causes("", m, ""), condition: told(-time.Hour), budget: 20, deleted: 8 * s},
			[]recordOf{record("ending", "deleted", "since", at(-time.Hour), "ended", at(8*s), "durationSeconds", 3608.0, "lateSeconds", 0.0, "message", nil,
				"deletionRequested", at(-time.Hour))}},
		"of an earlier run, found again": {standingPod{cause: causes("A", m, ""), condition: told(2 * s), budget: 20, deleted: 8 * s},
			[]recordOf{record("ending", "deleted", "since", at(0), "ended", at(8*s), "durationSeconds", 8.0, "lateSeconds", 0.0)}},
		"of an earlier run, replaced": {standingPod{cause: causes("B", m, ""), condition: told(0), budget: 20},
			[]recordOf{record("ending", "replaced", "nextCause", "B", "since", at(0), "ended", at(0), "durationSeconds", 0.0, "lateSeconds", 0.0, "message", nil,
				"phase", "Unknown")}},
		"of an earlier run, without a time": {standingPod{cause: causes("", m, ""), budget: 20, deleted: 8 * s,
			condition: &corev1.PodCondition{Type: verdict.ConditionType, Status: corev1.ConditionTrue, Reason: "A"}},
			[]recordOf{record("ending", "deleted", "ended", at(8*s), "lateSeconds", 0.0, "message", nil)}},
		"already deleted": {standingPod{cause: whenGone, budget: 20, deleted: 12 * s, gone: true},
			[]recordOf{record("ending", "alreadyDeleted", "ended", at(12*s), "lateSeconds", 2.0)}},
		"already deleted, not written": {standingPod{cause: whenGone, budget: 20, deleted: 12 * s},
			[]recordOf{record("ending", "alreadyDeleted", "ended", at(12*s), "lateSeconds", 2.0, "reported", false)}},
		"already deleted, held back": {standingPod{cause: whenGone, deleted: 12 * s, gone: true},
			[]recordOf{record("ending", "alreadyDeleted", "ended", at(12*s), "lateSeconds", 2.0, "reported", false, "heldBack", true)}},
	}
}

// Each verdict that ends has one record, which follows the schema. All that the schema has occurs.
func TestEndedVerdictsAreRecorded(t *testing.T) {
	keys := map[string]bool{}
	for name, tc := range standingPods() {
		t.Run(name, func(t *testing.T) {
			log, _ := tc.pod.logOf(t)
			got := recordsIn(t, log)
			for _, r := range got {
				for key := range r {
					keys[key] = true
				}
				delete(r, "time") // the schema has it
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	b, err := os.ReadFile(recordSchema)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(schema.Properties)), slices.Sorted(maps.Keys(keys))); diff != "" {
		t.Errorf("keys of the schema, and those that are logged (-schema +logged):\n%s", diff)
	}
}

// The page about the log has all that a record can have.
func TestPageOfTheLog(t *testing.T) {
	b, err := os.ReadFile(recordSchema)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/log.md")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct{ Enum []string }
	}
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	for key, p := range schema.Properties {
		for _, name := range append(p.Enum, key) {
			if !strings.Contains(string(page), "`"+name+"`") && name != "time" && name != "level" {
				t.Errorf("%s is not in the page", name)
			}
		}
	}
	_, example, _ := strings.Cut(string(page), "```\ntime=")
	example, _, _ = strings.Cut(example, "```")
	tc := standingPods()["deleted"]
	tc.pod.leftOut = 0
	_, log := tc.pod.logOf(t)
	lines := slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool { return !strings.Contains(line, `msg="verdict ended"`) })
	if diff := cmp.Diff(textKeys("time="+example), textKeys(lines[0])); diff != "" {
		t.Errorf("the example's keys, and those of a line (-example +line):\n%s", diff)
	}
}

// textKeys returns the keys of a line of text, in order.
func textKeys(line string) []string {
	var keys []string
	for _, m := range regexp.MustCompile(`(\w+)=(?:"(?:[^"\\]|\\.)*"|\S+)`).FindAllStringSubmatch(line, -1) {
		keys = append(keys, m[1])
	}
	return keys
}

// However many verdicts end at a time, there are not more records than have room, and the next one says how many were left out.
func TestRecordsAreBounded(t *testing.T) {
	b := newBench()
	var log bytes.Buffer
	b.Log = slog.New(slog.NewJSONHandler(&log, nil))
	b.ends.PerMinute = endsPerMinute
	now := time.Now()
	ended := func(uid string, at time.Time) {
		e := &evidence.Pod{Time: at, Deadline: at, DeletionRequested: at}
		e.Node.Name = "n"
		b.logEnd(&end{verdict: verdict.Standing{Namespace: "shop", Name: uid, UID: uid, Workload: verdict.Workload{Name: uid, Type: "barepod"}, Cause: "A"},
			subject: verdict.Subject{UID: uid}, reading: e, at: at, how: endDeleted})
	}
	const many, workloads = 2000, 200
	for i := range many {
		ended(fmt.Sprint(i), now)
	}
	if n := len(recordsIn(t, log.String())); n < endsPerMinute || n > endsPerMinute+workloads {
		t.Errorf("%d records of %d verdicts that ended at a time", n, many)
	}
	n := len(recordsIn(t, log.String()))
	log.Reset()
	ended("later", now.Add(time.Minute))
	if got := recordsIn(t, log.String()); len(got) != 1 || got[0]["leftOut"] != float64(many-n) {
		t.Errorf("%d were left out, and the next record is %v", many-n, got)
	}
	log.Reset()
	ended("later still", now.Add(time.Minute))
	if got := recordsIn(t, log.String()); len(got) != 1 || got[0]["leftOut"] != nil {
		t.Errorf("none was left out, and the next record is %v", got)
	}
}

// Of a pod of which two causes take turns there are a few records, and the last one is among them.
func TestRecordsOfAFlappingPod(t *testing.T) {
	turns := standingPod{budget: 20, deleted: 58 * time.Second, cause: func(after time.Duration, gone bool) string {
		if gone || int(after.Seconds())%4 < 2 {
			return "A"
		}
		return "B"
	}}
	log, _ := turns.logOf(t)
	got := recordsIn(t, log)
	if len(got) != endsOfPod+1 || got[endsOfPod]["ending"] != "deleted" || got[endsOfPod]["leftOut"] == nil {
		t.Errorf("%d records, the last one is %v", len(got), got[len(got)-1])
	}
}

// Whoever may create pods has a share in the message. A record is shorter than the lines that are cut.
func TestRecordsOfHostilePods(t *testing.T) {
	for what, text := range hostile.Texts() {
		b := newBench()
		var log bytes.Buffer
		b.Log = slog.New(slog.NewJSONHandler(&log, nil))
		b.ends.PerMinute = endsPerMinute
		long := strings.Repeat(text, 1+maxRecord/len(text))
		e := &evidence.Pod{Time: time.Now()}
		e.Node.Name = "n"
		b.logEnd(&end{verdict: verdict.Standing{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253), UID: "a",
			Workload: verdict.Workload{Name: strings.Repeat("w", 253), Type: strings.Repeat("t", 63)}, Cause: "A", Message: long},
			subject: verdict.Subject{UID: "a"}, reading: e, at: e.Time, how: endDeleted})
		if got := recordsIn(t, log.String()); len(got) != 1 || log.Len() > maxRecord || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: %d records, %d bytes", what, len(got), log.Len())
		}
	}
}

// The commands of docs/log.md find the records in real lines.
func TestQueriesOfTheLog(t *testing.T) {
	var inJSON, inText strings.Builder
	want := 0
	for _, tc := range standingPods() {
		asJSON, asText := tc.pod.logOf(t)
		inJSON.WriteString(asJSON)
		inText.WriteString(asText)
		want += len(tc.want)
	}
	// What another pod says in its message is no record of this one.
	forged := map[string]*bytes.Buffer{"jq": {}, "grep": {}}
	evil := slog.New(slog.NewMultiHandler(slog.NewJSONHandler(forged["jq"], nil), slog.NewTextHandler(forged["grep"], nil)))
	evil.Info("verdict ended", "namespace", "shop", "pod", "evil", "message",
		`} msg="verdict ended" namespace=shop pod=web-0 {"msg":"verdict ended","namespace":"shop","pod":"web-0"}`, "lateSeconds", 0)
	// Two other pods have as many.
	others := strings.NewReplacer(`"web-0"`, `"web-00"`, "pod=web-0 ", "pod=web-00 ")
	another := strings.NewReplacer(`"shop"`, `"shop-2"`, "namespace=shop ", "namespace=shop-2 ")
	input := map[string]string{}
	for program, log := range map[string]string{"jq": inJSON.String(), "grep": inText.String()} {
		input[program] = "a panic is neither JSON nor text of slog\n" + log + others.Replace(log) + another.Replace(log) + forged[program].String()
	}
	page, err := os.ReadFile("../../docs/log.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for _, block := range strings.Split(string(page), "```sh\n")[1:] {
		command, _, _ := strings.Cut(block, "\n```")
		_, filter, found := strings.Cut(command, " --since=12h |\n  ")
		if !found {
			continue
		}
		program, arguments, _ := strings.Cut(filter, " ")
		lines := []string{}
		switch program {
		case "jq":
			lines = runJQ(t, arguments, input[program])
		case "grep":
			lines = runShell(t, filter, input[program])
		}
		ran[program]++
		if strings.Contains(filter, "web-0") {
			if len(lines) != want {
				t.Errorf("%s\nfinds %d records of %d", filter, len(lines), want)
			}
			continue
		}
		for _, line := range lines {
			if fields := strings.Split(line, "\t"); len(fields) != 5 || fields[3] == "0" {
				t.Errorf("%s\nwrites %q", filter, line)
			}
		}
		if late := 3 * lateOnes(t, inJSON.String()); len(lines) != late {
			t.Errorf("%s\nfinds %d records of %d", filter, len(lines), late)
		}
	}
	if diff := cmp.Diff(map[string]int{"jq": 2, "grep": 1}, ran); diff != "" {
		t.Errorf("commands that were run (-want +got):\n%s", diff)
	}
}

// lateOnes counts the records of pods that were late when the verdict ended.
func lateOnes(t *testing.T, log string) int {
	n := 0
	for _, r := range recordsIn(t, log) {
		if r["lateSeconds"] != 0.0 {
			n++
		}
	}
	return n
}

// runShell returns the lines that a filter writes.
func runShell(t *testing.T, filter, input string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", filter)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", filter, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// runJQ returns what jq writes with these arguments: -R, and maybe -r and -c, and a program in single quotes.
func runJQ(t *testing.T, arguments, input string) []string {
	t.Helper()
	options, program, _ := strings.Cut(arguments, "'")
	if program = strings.TrimSuffix(program, "'"); !strings.Contains(options, "R") {
		t.Fatalf("jq %s fails at the first line that is no JSON", arguments)
	}
	query, err := gojq.Parse(program)
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	var out []string
	for line := range strings.Lines(input) {
		results := query.RunWithContext(t.Context(), strings.TrimSuffix(line, "\n"))
		for v, ok := results.Next(); ok; v, ok = results.Next() {
			if err, is := v.(error); is {
				t.Fatalf("%s: %v", program, err)
			}
			text, is := v.(string)
			if !is {
				b, err := gojq.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				text = string(b)
			}
			out = append(out, text)
		}
	}
	return out
}
