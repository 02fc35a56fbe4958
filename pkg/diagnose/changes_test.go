package diagnose_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

var find = flag.String("find", "", "search for changes of evidence that show what the facts of a cause are for, or of \""+findAll+"\", and write "+
	changesFile+" and "+unguardedFile)

const (
	changesFile   = "testdata/changes.txt"
	unguardedFile = "testdata/unguarded.txt"
	findAll       = "all"
	findAnew      = "go test ./pkg/diagnose -run TestChanges -find CAUSE searches anew, in five minutes"
)

const changesComment = `# What facts are for that no other test needs. Each row changes the evidence of a fixture in which a cause is found.
# Then one fact of the cause rules it out, and without that fact it is still found.
# A row is the cause, the fixture, the path of a field and its new value as JSON, for one field or two, and the line of the fact.
# An element of a list is removed by null, and added by the index behind the last.
# ` + findAnew + `: rows that hold stay as they are.
`

const unguardedComment = `# The facts that no test needs, and for which no change of a fixture was found.
# A line is the cause, the line of the fact, and what the search saw of it.
# ` + findAnew + `.
`

// A row is a line of changesFile.
type row struct {
	cause, fixture string
	sets           []set
	fact           string
}

// A set gives one field of the evidence another value.
type set struct{ path, value string }

func (r *row) String() string {
	cells := []string{r.cause, r.fixture}
	for _, s := range r.sets {
		cells = append(cells, s.path, s.value)
	}
	return strings.Join(append(cells, r.fact), "\t")
}

// parseRow reads what String writes.
func parseRow(line string) (*row, error) {
	cells := strings.Split(line, "\t")
	n := len(cells)
	if n < 5 || n%2 == 0 {
		return nil, fmt.Errorf("a row with %d cells: %s", n, line)
	}
	r := &row{cause: cells[0], fixture: cells[1], fact: cells[n-1]}
	for i := 2; i < n-1; i += 2 {
		r.sets = append(r.sets, set{cells[i], cells[i+1]})
	}
	return r, nil
}

// linesOf returns the lines of a file without its comment.
func linesOf(path string) (lines []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// rowsOf returns the rows of changesFile.
func rowsOf() (rows []*row, err error) {
	lines, err := linesOf(changesFile)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		r, err := parseRow(line)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// evidenceOf reads the evidence of a fixture, to be changed.
func evidenceOf(fixture string) (*evidence.Pod, error) {
	a, err := txtar.ParseFile("testdata/" + fixture + ".txtar")
	if err != nil {
		return nil, err
	}
	for _, file := range a.Files {
		if file.Name == "evidence.json" {
			p := new(evidence.Pod)
			return p, json.Unmarshal(file.Data, p)
		}
	}
	return nil, fmt.Errorf("the fixture %s has no evidence", fixture)
}

// apply gives a field of the evidence its new value.
func (s *set) apply(p *evidence.Pod) error {
	v := reflect.ValueOf(p).Elem()
	steps := strings.Split(s.path, ".")
	for n, step := range steps {
		name, index, listed := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		if v = named(v, name); !v.IsValid() {
			return fmt.Errorf("the evidence has no field %s", s.path)
		}
		if !listed {
			continue
		}
		i, err := strconv.Atoi(index)
		if err != nil || v.Kind() != reflect.Slice || i < 0 || i > v.Len() {
			return fmt.Errorf("the evidence has no element %s", s.path)
		}
		if n == len(steps)-1 && s.value == "null" && i < v.Len() {
			v.Set(shorter(v, i))
			return nil
		}
		if i == v.Len() {
			v.Set(reflect.Append(v.Slice3(0, i, i), reflect.Zero(v.Type().Elem())))
		}
		v = v.Index(i)
	}
	fresh := reflect.New(v.Type())
	if err := json.Unmarshal([]byte(s.value), fresh.Interface()); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	v.Set(fresh.Elem())
	return nil
}

// named returns a field of a struct, or of what a pointer points to; the zero Value where there is none.
func named(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

// shorter returns a copy of a list without one of its elements.
func shorter(list reflect.Value, i int) reflect.Value {
	out := reflect.MakeSlice(list.Type(), 0, list.Len())
	return reflect.AppendSlice(reflect.AppendSlice(out, list.Slice(0, i)), list.Slice(i+1, list.Len()))
}

// errStale is the error of a row that shows nothing any more.
var errStale = errors.New("the row does not hold")

// holds returns why a row does not hold, and the changed evidence.
func (r *row) holds(guarded map[string]*diagnose.Guarded) (*evidence.Pod, error) {
	g := guarded[r.cause]
	if g == nil {
		return nil, fmt.Errorf("%w: there is no cause %s", errStale, r.cause)
	}
	i := slices.Index(g.Facts(), r.fact)
	if i < 0 {
		return nil, fmt.Errorf("%w: %s has no fact %q", errStale, r.cause, r.fact)
	}
	p, err := evidenceOf(r.fixture)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	was := g.Found(fact.See(p))
	if len(was) == 0 {
		return nil, fmt.Errorf("%w: %s is not found in %s", errStale, r.cause, r.fixture)
	}
	for _, s := range r.sets {
		if err := s.apply(p); err != nil {
			return nil, fmt.Errorf("%w: %w", errStale, err)
		}
	}
	v := fact.See(p)
	if len(g.Needed(was, v, []int{i})) == 0 {
		return nil, fmt.Errorf("%w: %s is found in the changed %s, or is not without the fact %q", errStale, r.cause, r.fixture, r.fact)
	}
	return p, nil
}

// Each row shows what its fact is for. What rules look at here is guarded as in any test.
func TestChanges(t *testing.T) {
	if wrapped == nil {
		t.Skip("the rules are not wrapped with -short and with the race detector")
	}
	rows, err := rowsOf()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(rows, compareRows) {
		t.Errorf("%s is not sorted by causes and facts", changesFile)
	}
	for _, r := range rows {
		p, err := r.holds(wrapped)
		if err != nil {
			t.Errorf("%v: %s; or remove the row", err, findAnew)
			continue
		}
		wrapped[r.cause].Look(fact.See(p))
	}
	t.Logf("%d rows", len(rows))
}

func compareRows(a, b *row) int {
	return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.fact, b.fact))
}

// A row of which anything is not there any more says so.
func TestStaleChanges(t *testing.T) {
	if wrapped == nil {
		t.Skip("the rules are not wrapped with -short and with the race detector")
	}
	const fixture, fact = "cni_del_hanging", "It has not exited."
	for line, want := range map[string]string{
		"CNIDelHanging\t" + fixture + "\tPlugins[0].State\t\"S\"\t" + fact:   "is not without the fact",
		"CNIDelHanging\t" + fixture + "\tPlugins[0].Stat\t\"Z\"\t" + fact:    "no field Plugins[0].Stat",
		"CNIDelHanging\t" + fixture + "\tPlugins[99].State\t\"Z\"\t" + fact:  "no element Plugins[99].State",
		"CNIDelHanging\t" + fixture + "\tPlugins.State\t\"Z\"\t" + fact:      "no field Plugins.State",
		"CNIDelHanging\t" + fixture + "\tRefusal.Nobody\t\"Z\"\t" + fact:     "no field Refusal.Nobody",
		"CNIDelHanging\t" + fixture + "\tPlugins[0].State\t1\t" + fact:       "cannot unmarshal",
		"CNIDelHanging\t" + fixture + "\tPlugins[0].State\t\"Z\"\tIt works.": "has no fact",
		"CNIDelHanging\tno_such\tPlugins[0].State\t\"Z\"\t" + fact:           "no such file",
		"CNIDelHanging\tshim_dead\tPlugins[0].State\t\"Z\"\t" + fact:         "is not found in shim_dead",
		"NoSuchCause\t" + fixture + "\tPlugins[0].State\t\"Z\"\t" + fact:     "no cause NoSuchCause",
	} {
		r, err := parseRow(line)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.holds(wrapped); err == nil || !errors.Is(err, errStale) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	r, err := parseRow("CNIDelHanging\t" + fixture + "\tPlugins[0].State\t\"Z\"\t" + fact)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.holds(wrapped); err != nil {
		t.Error(err)
	}
	if _, err := parseRow("CNIDelHanging\t" + fixture + "\tPlugins[0].State\t\"Z\""); err == nil {
		t.Error("a row without a fact is read")
	}
}
