package cri

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestParseProgram(t *testing.T) {
	for spec, want := range map[string]string{
		`{"process":{"args":["/bin/sh","-c","echo $TOKEN"],"env":["TOKEN=x"]}}`: "sh",
		`{"process":{"args":["nginx"]}}`:                                        "nginx",
		`{"process":{"args":[""]}}`:                                             "",
		`{"process":{"args":[]}}`:                                               "",
		`{"process":null}`:                                                      "",
		`{}`:                                                                    "",
		`not json`:                                                              "",
		``:                                                                      "",
		fmt.Sprintf(`{"process":{"args":["%0300d"]}}`, 0): "",
	} {
		if got := parseProgram([]byte(spec)); got != want {
			t.Errorf("parseProgram(%.60s) = %q, want %q", spec, got, want)
		}
	}
}

func FuzzParseProgram(f *testing.F) {
	f.Add([]byte(`{"process":{"args":["/bin/sh","-c"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := parseProgram(b); len(got) > 255 {
			t.Errorf("%d bytes", len(got))
		}
	})
}

func TestParseImageStopSignal(t *testing.T) {
	for config, want := range map[string]evidence.Signal{
		`{"config":{"StopSignal":"SIGQUIT"}}`: evidence.SIGQUIT,
		`{"config":{"StopSignal":"quit"}}`:    evidence.SIGQUIT,
		`{"config":{"StopSignal":"37"}}`:      37,
		`{"config":{"StopSignal":"RTMIN+3"}}`: 37,
		`{"config":{"StopSignal":"gently"}}`:  0,
		`{"config":{}}`:                       evidence.SIGTERM,
		`{}`:                                  evidence.SIGTERM,
	} {
		if got, err := parseImageStopSignal([]byte(config)); err != nil || got != want {
			t.Errorf("parseImageStopSignal(%s) = %v, %v, want %v", config, got, err, want)
		}
	}
	if _, err := parseImageStopSignal([]byte("not json")); err == nil {
		t.Error("no error for what is no configuration")
	}
}

// Each signal that the CRI names is one.
func TestParseCRISignal(t *testing.T) {
	for n, name := range runtimeapi.Signal_name {
		sig := runtimeapi.Signal(n)
		if got := parseCRISignal(sig); got == 0 && sig != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
			t.Errorf("%s is not understood", name)
		}
	}
	for sig, want := range map[runtimeapi.Signal]evidence.Signal{
		runtimeapi.Signal_SIGNAL_SIGTERM:        evidence.SIGTERM,
		runtimeapi.Signal_SIGNAL_SIGIOT:         6,
		runtimeapi.Signal_SIGNAL_SIGRTMIN:       34,
		runtimeapi.Signal_SIGNAL_SIGRTMINPLUS15: 49,
		runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS1: 63,
		runtimeapi.Signal_SIGNAL_SIGRTMAX:       64,
		runtimeapi.Signal(999):                  0,
	} {
		if got := parseCRISignal(sig); got != want {
			t.Errorf("parseCRISignal(%s) = %d, want %d", sig, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	at := func(name, id string, created int64, state evidence.ContainerState) listed {
		return listed{name: name, id: id, created: created, state: state}
	}
	got := choose([]listed{
		at("a", "a0", 1, evidence.StateRunning),
		at("a", "a2", 3, evidence.StateExited),
		at("a", "a1", 2, evidence.StateExited),
		at("b", "b0", 1, evidence.StateExited),
		at("c", "c1", 5, evidence.StateRunning),
		at("c", "c0", 4, evidence.StateUnknown),
	})
	var ids []string
	for _, l := range got {
		ids = append(ids, l.id)
	}
	if diff := cmp.Diff([]string{"c1", "c0", "a2", "a0", "b0"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestSilencesAreForgotten(t *testing.T) {
	var s silences
	s.unanswered("pod", "gone", noon)
	s.unanswered("pod", "here", noon)
	s.unanswered("other", "there", noon)
	s.keep("pod", []string{"here"}, noon)
	if _, ok := s.m["gone"]; ok || len(s.m) != 2 {
		t.Errorf("%v", s.m)
	}
	later := noon.Add(forgotten + time.Second)
	s.due("here", later)
	s.keep("pod", []string{"here"}, later)
	if _, ok := s.m["here"]; !ok || len(s.m) != 1 {
		t.Errorf("%v", s.m)
	}
}

func TestMemoriesAreBounded(t *testing.T) {
	var (
		s      silences
		recs   records
		images stopSignals
	)
	for i := range 3 * most {
		id := fmt.Sprint(i)
		s.unanswered("pod", id, noon.Add(time.Duration(i)))
		recs.put(id, record{})
		images.put(id, evidence.SIGTERM)
	}
	if len(s.m) > most || len(recs.m) > most || len(images.m) > most {
		t.Errorf("%d, %d, %d entries", len(s.m), len(recs.m), len(images.m))
	}
	if _, ok := s.m[fmt.Sprint(3*most-1)]; !ok {
		t.Error("the newest silence was dropped")
	}
}
