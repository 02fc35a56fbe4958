package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// encoded is one pod that has a bit of everything that the layout tells apart.
func encoded() *Pod {
	three := 3
	return &Pod{
		Time: time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), Namespace: "n", Name: "p", UID: "u", Finalizers: []string{"a/b", "c"},
		Containers: []Container{{Name: `quo"te\`, ID: "c1"}, {Name: "<&>,:{}[]", Exit: &Exit{Code: 137}}},
		Tasks: []Task{{PID: 1, TID: 2, NSpid: []int{1, 1}, Probe: &Probe{
			Stack: []string{"outer", strings.Repeat("inner", 300)},
			Mount: &Mount{ID: 1, Backing: &Mount{ID: 2, FUSEWaiting: &three}},
		}}},
		Node: Node{
			Name:    "node",
			Kubelet: KubeletService{Process: &Task{PID: 7, NSpid: []int{7}}, Health: "ok", Blocked: []Task{{PID: 7, TID: 8}, {PID: 7, TID: 9}}},
		},
		Missing: map[Source]string{Shims: "late", Mounts: "why"},
	}
}

// What nobody sees, or what moves the text beside it, is escaped, and nothing is lost.
func TestEncodeIsASCII(t *testing.T) {
	want := &Pod{Name: "a\u202eb\u2800\u00e9\U000e0041\x7f\"\\<"}
	var b bytes.Buffer
	if err := Encode(&b, want); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{b.String(), Line(want, 1<<20)} {
		if !strings.Contains(text, `a\u202eb\u2800\u00e9\udb40\udc41\u007f\"\\<`) {
			t.Errorf("the name is not escaped: %s", text)
		}
		got := new(Pod)
		if err := json.Unmarshal([]byte(text), got); err != nil || got.Name != want.Name {
			t.Errorf("the name is %q after %v", got.Name, err)
		}
	}
}

// The fields are in the order of the declaration, those of a map in that of
// their names, and each element of a list has one line however long it is.
func TestEncode(t *testing.T) {
	var b bytes.Buffer
	if err := Encode(&b, encoded()); err != nil {
		t.Fatal(err)
	}
	want := `{
 "time": "2026-03-01T03:00:00Z",
 "namespace": "n",
 "name": "p",
 "uid": "u",
 "runtimeUID": "",
 "phase": "",
 "deletionRequested": "0001-01-01T00:00:00Z",
 "deadline": "0001-01-01T00:00:00Z",
 "gracePeriodSeconds": 0,
 "finalizers": ["a/b", "c"],
 "containers": [
  {"name": "quo\"te\\", "kind": "", "id": "c1", "task": {}},
  {"name": "<&>,:{}[]", "kind": "", "exit": {"code": 137}, "task": {}}
 ],
 "tasks": [
  {"pid": 1, "tid": 2, "nspid": [1, 1], "comm": "", "state": "", "probe": {"stack": ["outer", "` + strings.Repeat("inner", 300) + `"], ` +
		`"mount": {"id": 1, "device": "", "point": "", "type": "", "backing": {"id": 2, "device": "", "point": "", "type": "", "fuseWaiting": 3}}}}
 ],
 "node": {
  "name": "node",
  "containerd": {},
  "kubelet": {
   "process": {"pid": 7, "tid": 0, "nspid": [7], "comm": "", "state": ""},
   "health": "ok",
   "blocked": [
    {"pid": 7, "tid": 8, "comm": "", "state": ""},
    {"pid": 7, "tid": 9, "comm": "", "state": ""}
   ]
  }
 },
 "missing": {
  "mounts": "why",
  "shims": "late"
 }
}
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodeReadsBack(t *testing.T) {
	for _, p := range []*Pod{{}, encoded()} {
		var b bytes.Buffer
		if err := Encode(&b, p); err != nil {
			t.Fatal(err)
		}
		var back Pod
		if err := json.Unmarshal(b.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, &back); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestEncodeReturnsTheErrorOfTheWriter(t *testing.T) {
	if err := Encode(brokenPipe{}, encoded()); err == nil {
		t.Error("no error")
	}
}

// Whatever a name or a message holds, the layout adds white space and no more.
func FuzzLayOut(f *testing.F) {
	for _, s := range []string{"", `"`, `\`, `\"`, "\n", "{[,:]}", "\xff", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		compact, err := json.Marshal(&Pod{Name: s, Finalizers: []string{s}, Tasks: []Task{{Comm: s}, {Comm: s}}, Missing: map[Source]string{Source(s): s}})
		if err != nil {
			t.Fatal(err)
		}
		var back bytes.Buffer
		if err := json.Compact(&back, layOut(compact)); err != nil || !bytes.Equal(back.Bytes(), compact) {
			t.Fatalf("%s became %s (%v)", compact, back.Bytes(), err)
		}
	})
}
