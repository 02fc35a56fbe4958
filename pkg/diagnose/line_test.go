package diagnose_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// What the log keeps of a pod is bounded, and shows what the whole evidence shows: what
// was left out is unknown, and accuses nobody.
func TestLine(t *testing.T) {
	for _, f := range fixtures(t) {
		want := cause.Diagnose(f.evidence)
		verdict, _ := want.Verdict()
		before, _ := json.Marshal(f.evidence)
		for _, limit := range []int{15 << 10, 6 << 10, 3 << 10} {
			text := evidence.Line(f.evidence, limit)
			if text == "" || len(strconv.Quote(text)) > limit || strings.Contains(text, "\n") {
				t.Fatalf("%s: %d bytes within %d", f.name, len(text), limit)
			}
			var p evidence.Pod
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
			got := cause.Diagnose(&p)
			v, found := got.Verdict()
			if whole := len(p.Missing) == len(f.evidence.Missing); whole && p.Before != nil == (f.evidence.Before != nil) && v.Cause != verdict.Cause {
				t.Errorf("%s within %d: %q, want %q", f.name, limit, v.Cause, verdict.Cause)
			}
			if found && v.Cause != verdict.Cause && v.Cause != "Unknown" {
				t.Errorf("%s within %d: %q, want %q or nothing", f.name, limit, v.Cause, verdict.Cause)
			}
			if got.Force != nil && got.Force.Answer == "yes" && want.Force.Answer != "yes" {
				t.Errorf("%s within %d: a force delete becomes safe", f.name, limit)
			}
		}
		if after, _ := json.Marshal(f.evidence); string(after) != string(before) {
			t.Errorf("%s: the evidence has changed", f.name)
		}
	}
	huge := &evidence.Pod{UID: "u", Missing: map[evidence.Source]string{}}
	for i := range 8000 {
		huge.Tasks = append(huge.Tasks, evidence.Task{PID: 1, TID: i, Comm: fmt.Sprintf("%q\x00\x7f", strings.Repeat("\"", 15))})
	}
	if text := evidence.Line(huge, 15<<10); text == "" || len(strconv.Quote(text)) > 15<<10 || len(huge.Missing) > 0 {
		t.Errorf("of 8000 threads: %d bytes", len(text))
	}
	if text := evidence.Line(huge, 100); text != "" {
		t.Errorf("%d bytes within 100", len(text))
	}
}
