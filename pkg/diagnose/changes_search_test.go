package diagnose_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// How far the search goes.
const (
	poolSize      = 30 // values of a field
	elementsTried = 16 // of a list
	fixturesTried = 12 // of each way to recognise a cause
	pairsTried    = 40 // first changes of two, for each fact and fixture
	wondersTried  = 6  // of these, for what else is not so with them
)

// A field is one of a struct of the evidence.
type field struct {
	of   reflect.Type
	name string
}

// A pool has the values of the fields that occur in fixtures, those that occur most first. Of lists of structs it has the elements.
type pool map[field][]reflect.Value

// occurring counts how often values of fields occur.
type occurring map[field]map[string]*occurrence

type occurrence struct {
	text  string
	value reflect.Value
	times int
}

func (o occurring) add(f field, v reflect.Value) {
	text := jsonOf(v)
	if o[f] == nil {
		o[f] = make(map[string]*occurrence)
	}
	if o[f][text] == nil {
		o[f][text] = &occurrence{text: text, value: clone(v)}
	}
	o[f][text].times++
}

// in counts what is in a value.
func (o occurring) in(f field, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == typeOfTime {
			if v.IsZero() {
				o.add(f, v) // of times only that there are none
			}
			return
		}
		for i := range v.NumField() {
			o.in(field{v.Type(), v.Type().Field(i).Name}, v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			o.add(f, v)
		}
		if !v.IsNil() && structs(v.Type()) {
			o.in(f, v.Elem())
		}
	case reflect.Slice:
		if structs(v.Type()) {
			for i := range v.Len() {
				o.add(f, v.Index(i))
				o.in(f, v.Index(i))
			}
			return
		}
		o.add(f, v)
	case reflect.Map:
	default:
		o.add(f, v)
	}
}

// pool returns the values that occur most, at most n of a field.
func (o occurring) pool(n int) pool {
	p := make(pool)
	for f, values := range o {
		sorted := slices.SortedFunc(maps.Values(values), func(a, b *occurrence) int {
			return cmp.Or(-cmp.Compare(a.times, b.times), cmp.Compare(len(a.text), len(b.text)), cmp.Compare(a.text, b.text))
		})
		for _, v := range sorted[:min(n, len(sorted))] {
			p[f] = append(p[f], v.value)
		}
	}
	return p
}

var typeOfTime = reflect.TypeFor[time.Time]()

// structs reports whether a list, or a pointer, is of structs.
func structs(t reflect.Type) bool { return t.Elem().Kind() == reflect.Struct }

func jsonOf(v reflect.Value) string {
	text, err := evidence.JSON(v.Interface(), "")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// clone returns a copy that shares nothing with the value.
func clone(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch {
	case v.Kind() == reflect.Struct && v.Type() != typeOfTime:
		for i := range v.NumField() {
			out.Field(i).Set(clone(v.Field(i)))
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(clone(v.Elem()))
	case v.Kind() == reflect.Slice && !v.IsNil():
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(clone(v.Index(i)))
		}
	}
	return out
}

// A change is another value of one field. What it costs says how far it is from what a reading may show.
type change struct {
	path string
	at   reflect.Value
	to   reflect.Value
	said reflect.Value // what stands in the row: the element of a list that is added, not valid for one that is removed
	cost int
}

func (c *change) set() set {
	if !c.said.IsValid() {
		return set{c.path, "null"}
	}
	return set{c.path, jsonOf(c.said)}
}

// made makes a change, calls a function, and takes the change back.
func (c *change) made(then func()) {
	old := reflect.New(c.at.Type()).Elem()
	old.Set(c.at)
	c.at.Set(clone(c.to))
	then()
	c.at.Set(old)
}

// What changes cost.
const (
	costsOccurring  = 0  // a value of the fixture's own, or that others have in this field
	costsZero       = 1  // none
	costsComputed   = 1  // a time, or one signal more or less in a set
	costsRemoved    = 4  // an element or what a pointer points to
	costsInvented   = 6  // a number that is in no fixture
	costsAdded      = 8  // an element, or what a pointer points to
	costsIdentity   = 10 // the pod's own time or name
	costsOpen       = 2  // the cause is not ruled out, but open
	costsNotTold    = 3  // the fixture is not about the cause
	costsSecond     = 20 // another change
	costsElsewhere  = 20 // another change in another place
	bytesOfCost     = 60 // so long a value costs one more
	costsBehind     = 1  // each element before it in its list
	costsOtherNamed = 1  // the fixture is not named after the cause
)

// A walk lists the changes of a pod.
type walk struct {
	pod      *evidence.Pod
	own, all pool
	out      []*change
	cost     int
}

// changesOf lists the changes of a pod.
func changesOf(p *evidence.Pod, own, all pool) []*change {
	w := walk{pod: p, own: own, all: all}
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		w.in(field{v.Type(), v.Type().Field(i).Name}, v.Type().Field(i).Name, v.Field(i))
	}
	return w.out
}

// place returns which part of the evidence a path is in: an element of a list of the pod, its node, a service of that, or itself.
func place(path string) string {
	if i := strings.Index(path, "]"); i >= 0 {
		return path[:i+1]
	}
	if i := strings.LastIndex(path, "."); i >= 0 {
		return path[:i]
	}
	return "pod"
}

func (w *walk) add(path string, at, to, said reflect.Value, cost int) {
	w.out = append(w.out, &change{path, at, to, said, cost + w.cost})
}

// values returns the values that a field may have, those of the fixture first.
func (w *walk) values(f field) []reflect.Value { return append(slices.Clip(w.own[f]), w.all[f]...) }

func (w *walk) in(f field, path string, v reflect.Value) {
	switch f.name {
	case "Missing", "Lacking":
		return
	case "UID", "RuntimeUID", "Namespace":
		defer func(c int) { w.cost = c }(w.cost)
		w.cost += costsIdentity
	}
	if path == "Time" || path == "Name" {
		defer func(c int) { w.cost = c }(w.cost)
		w.cost += costsIdentity
	}
	switch {
	case v.Type() == typeOfTime:
		w.times(f, path, v)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			w.in(field{v.Type(), name}, path+"."+name, v.Field(i))
		}
	case v.Kind() == reflect.Pointer:
		w.pointer(f, path, v)
	case v.Kind() == reflect.Slice:
		w.list(f, path, v)
	default:
		w.plain(f, path, v)
	}
}

func (w *walk) times(f field, path string, v reflect.Value) {
	now := w.pod.Time
	for i, t := range []time.Time{
		{}, now.Add(-5 * time.Second), now.Add(-time.Second), now, now.Add(-time.Hour), now.Add(-24 * time.Hour), w.pod.Deadline, w.pod.DeletionRequested,
		w.pod.Deadline.Add(-time.Second), w.pod.DeletionRequested.Add(-time.Second), w.pod.DeletionRequested.Add(time.Second), now.Add(-20 * time.Second),
		now.Add(-45 * time.Second), now.Add(-90 * time.Second), now.Add(-6 * time.Minute), w.pod.DeletionRequested.Add(-time.Hour),
	} {
		cost := costsComputed
		switch {
		case i == 0 && len(w.values(f)) == 0:
			cost = costsInvented
		case i > 3:
			cost++
		}
		if to := reflect.ValueOf(t); !t.Equal(v.Interface().(time.Time)) {
			w.add(path, v, to, to, cost)
		}
	}
}

func (w *walk) plain(f field, path string, v reflect.Value) {
	tried := map[any]bool{v.Interface(): true}
	try := func(to reflect.Value, cost int) {
		if !tried[to.Interface()] {
			tried[to.Interface()] = true
			w.add(path, v, to, to, cost)
		}
	}
	for _, to := range w.values(f) {
		cost := costsOccurring
		if to.IsZero() {
			cost = costsZero
		}
		try(to, cost)
	}
	try(reflect.Zero(v.Type()), costsInvented)
	switch {
	case v.Kind() == reflect.Bool:
		try(reflect.ValueOf(true), costsOccurring)
	case v.CanInt():
		for _, n := range []int64{1, v.Int() + 1, max(0, v.Int()-1), 2} {
			try(reflect.ValueOf(n).Convert(v.Type()), costsInvented)
		}
	case v.Type() == reflect.TypeFor[evidence.SignalSet]():
		for _, signal := range []evidence.Signal{evidence.SIGTERM, evidence.SIGKILL, evidence.SIGINT} {
			try(reflect.ValueOf(evidence.SignalSet(v.Uint()^(1<<(signal-1)))), costsComputed)
		}
	case v.CanUint():
		for _, n := range []uint64{1, v.Uint() + 1} {
			try(reflect.ValueOf(n).Convert(v.Type()), costsInvented)
		}
	}
}

func (w *walk) pointer(f field, path string, v reflect.Value) {
	cost := costsOccurring
	if structs(v.Type()) {
		cost = costsAdded
	}
	if !v.IsNil() {
		w.add(path, v, reflect.Zero(v.Type()), reflect.Value{}, costsRemoved)
		if structs(v.Type()) {
			w.in(f, path, v.Elem())
		}
	}
	w.others(f, path, v, cost)
}

// others adds the values that a pointer or a list does not have.
func (w *walk) others(f field, path string, v reflect.Value, cost int) {
	for _, to := range w.values(f) {
		if !reflect.DeepEqual(to.Interface(), v.Interface()) {
			w.add(path, v, to, to, cost)
		}
	}
}

func (w *walk) list(f field, path string, v reflect.Value) {
	if v.Len() > 0 {
		w.add(path, v, reflect.Zero(v.Type()), reflect.Value{}, costsRemoved)
	}
	cost := w.cost
	defer func() { w.cost = cost }()
	for i := range min(v.Len(), elementsTried) {
		w.cost = cost + i*costsBehind
		at := fmt.Sprintf("%s[%d]", path, i)
		if v.Len() > 1 {
			w.add(at, v, shorter(v, i), reflect.Value{}, costsRemoved)
		}
		if structs(v.Type()) {
			w.in(f, at, v.Index(i))
		}
	}
	w.cost = cost
	if !structs(v.Type()) {
		w.others(f, path, v, costsOccurring)
		return
	}
	for _, to := range w.values(f) {
		longer := reflect.Append(v.Slice3(0, v.Len(), v.Len()), to)
		w.add(fmt.Sprintf("%s[%d]", path, v.Len()), v, longer, to, costsAdded)
	}
}

// A quarry is a way to recognise a cause in a fixture in which it is found so.
type quarry struct {
	*diagnose.Guarded
	cause string
	was   []diagnose.Finding
	facts []int // those for which a change is searched
	cost  int
	rank  int // among the fixtures in which it is found so
}

// A ground is a fixture with what is searched in it.
type ground struct {
	fixture string
	pod     *evidence.Pod
	own     pool
	quarry  []*quarry
}

// A goal is a fact for which a change is searched.
type goal struct {
	cause string
	fact  int
}

// A hunt searches changes.
type hunt struct {
	guarded map[string]*diagnose.Guarded
	grounds []*ground
	all     pool

	mu   sync.Mutex
	best map[goal]*row
	cost map[goal]int
	// with are, of each fact that some change makes not so, those that were not so either with each of these changes.
	with map[goal]map[int]bool
	// tried are the facts that are asked in a fixture in which the cause is found.
	tried map[goal]bool
}

// newHunt reads the fixtures, and looks in which of them causes are found.
func newHunt(guarded map[string]*diagnose.Guarded, goals map[goal]bool) (*hunt, error) {
	h := &hunt{guarded: guarded, best: make(map[goal]*row), cost: make(map[goal]int),
		with: make(map[goal]map[int]bool), tried: make(map[goal]bool)}
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		return nil, err
	}
	all := make(occurring)
	for _, path := range paths {
		g := &ground{fixture: strings.TrimSuffix(filepath.Base(path), ".txtar")}
		if g.pod, err = evidenceOf(g.fixture); err != nil {
			return nil, err
		}
		own := make(occurring)
		own.in(field{}, reflect.ValueOf(g.pod).Elem())
		all.in(field{}, reflect.ValueOf(g.pod).Elem())
		g.own = own.pool(poolSize / 2)
		h.grounds = append(h.grounds, g)
	}
	h.all = all.pool(poolSize)
	for _, r := range cause.All() {
		h.settle(r.Cause, goals)
	}
	return h, nil
}

// settle adds a cause to those fixtures that are best for it.
func (h *hunt) settle(cause string, goals map[goal]bool) {
	type place struct {
		*ground
		cost int
	}
	g, places := h.guarded[cause], make(map[int][]place)
	for _, in := range h.grounds {
		for _, first := range g.FoundBy(fact.See(in.pod)) {
			places[first] = append(places[first], place{in, told(in, cause)})
		}
	}
	for first, in := range places {
		_, last, _ := g.WayOf(first)
		slices.SortStableFunc(in, func(a, b place) int { return a.cost - b.cost })
		for rank, at := range in[:min(len(in), fixturesTried)] {
			q := &quarry{Guarded: g, cause: cause, was: g.Found(fact.See(at.pod)), cost: at.cost, rank: rank}
			for i := first; i <= last; i++ {
				if goals[goal{cause, i}] {
					q.facts, h.tried[goal{cause, i}] = append(q.facts, i), true
				}
			}
			if len(q.facts) > 0 {
				at.quarry = append(at.quarry, q)
			}
		}
	}
}

// told returns what it costs to take a fixture for a cause.
func told(in *ground, name string) (cost int) {
	d := cause.Diagnose(in.pod)
	if v, ok := d.Verdict(); !ok || v.Cause != name {
		cost += costsNotTold
	}
	if !strings.HasPrefix(strings.ReplaceAll(in.fixture, "_", ""), strings.ToLower(name)) {
		cost += costsOtherNamed
	}
	return cost
}

// each runs a search in all fixtures, in two at a time.
func (h *hunt) each(search func(*ground)) {
	var wg sync.WaitGroup
	at := make(chan *ground)
	for range 2 {
		wg.Go(func() {
			for g := range at {
				search(g)
			}
		})
	}
	for _, g := range h.grounds {
		if len(g.quarry) > 0 {
			at <- g
		}
	}
	close(at)
	wg.Wait()
}

// try makes some changes of a fixture, and notes for which facts they are.
func (h *hunt) try(in *ground, qs []*quarry, before []*change, c *change, cost int) {
	c.made(func() {
		defer func() { _ = recover() }() // no reading shows such evidence
		p := fact.See(in.pod)
		for _, q := range qs {
			for _, i := range q.Needed(q.was, p, q.facts) {
				cost := cost + q.cost + c.cost
				if !q.RulesOut(p) {
					cost += costsOpen
				}
				h.note(goal{q.cause, i}, in, append(slices.Clip(before), c), cost)
			}
		}
	})
}

// note keeps the changes that cost least, the first by their row of several.
func (h *hunt) note(to goal, in *ground, changes []*change, cost int) {
	r := &row{cause: to.cause, fixture: in.fixture, fact: h.guarded[to.cause].Facts()[to.fact]}
	for _, c := range changes {
		s := c.set()
		cost += len(s.value) / bytesOfCost
		r.sets = append(r.sets, s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.best[to]; old == nil || cost < h.cost[to] || cost == h.cost[to] && r.String() < old.String() {
		h.best[to], h.cost[to] = r, cost
	}
}

// wonders reports whether no change was found for a fact yet, and another fact has not been so whenever it was not.
func (h *hunt) wonders(to goal) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.best[to] == nil && slices.Contains(slices.Collect(maps.Values(h.with[to])), true)
}

// singles tries each change of a fixture.
func (h *hunt) singles(in *ground) {
	for _, c := range changesOf(in.pod, in.own, h.all) {
		h.try(in, in.quarry, nil, c, 0)
	}
}

// pairs tries two changes: a first one after which the fact is not so any more, and a second one in the same place, or one that matters by itself.
func (h *hunt) pairs(in *ground) {
	changes := changesOf(in.pod, in.own, h.all)
	for _, q := range in.quarry {
		was, candidates := q.Yes(fact.See(in.pod))
		breaks, matters := make(map[int][]*change), make(map[string]bool)
		for _, c := range changes {
			c.made(func() {
				defer func() { _ = recover() }()
				yes, n := q.Yes(fact.See(in.pod))
				if slices.Equal(yes, was) {
					return
				}
				matters[c.path] = true
				for _, i := range q.facts {
					if yes[i] < was[i] && n >= candidates {
						breaks[i] = append(breaks[i], c)
						h.together(goal{q.cause, i}, was, yes)
					}
				}
			})
		}
		for _, i := range q.facts {
			h.second(in, q, i, breaks[i], matters)
		}
	}
}

// second tries the second ones of two changes for a fact.
func (h *hunt) second(in *ground, q *quarry, i int, breaks []*change, matters map[string]bool) {
	slices.SortStableFunc(breaks, func(a, b *change) int { return cmp.Compare(a.cost, b.cost) })
	was, candidates := q.Yes(fact.See(in.pod))
	only := *q
	only.facts = []int{i}
	for n, a := range spread(breaks) {
		a.made(func() {
			for _, b := range changesOf(in.pod, in.own, h.all) {
				cost := a.cost + costsSecond
				switch {
				case b.path == a.path:
					continue
				case place(b.path) == place(a.path):
				case matters[b.path]:
					cost += costsElsewhere
				default:
					continue
				}
				h.try(in, []*quarry{&only}, []*change{a}, b, cost)
				if n < wondersTried && h.wonders(goal{q.cause, i}) {
					b.made(func() {
						defer func() { _ = recover() }()
						if yes, left := q.Yes(fact.See(in.pod)); yes[i] < was[i] && left >= candidates {
							h.together(goal{q.cause, i}, was, yes)
						}
					})
				}
			}
		})
	}
}

// together notes which facts are not so after a change that makes one not so.
func (h *hunt) together(to goal, was, yes []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	with := h.with[to]
	if with == nil {
		with = make(map[int]bool)
		for i := range yes {
			with[i] = i != to.fact
		}
		h.with[to] = with
	}
	for i := range yes {
		with[i] = with[i] && yes[i] < was[i]
	}
}

// why returns what the search has seen of a fact for which it has found no change.
func (h *hunt) why(to goal) string {
	first, last, waits := h.guarded[to.cause].WayOf(to.fact)
	if waits {
		return "this way only waits, and finds nothing"
	}
	if !h.tried[to] {
		return "no fixture shows the cause in this way"
	}
	if h.with[to] == nil {
		return "no change of one field makes it not so and leaves what it is about"
	}
	var others []string
	for i, says := range h.guarded[to.cause].Facts() {
		if h.with[to][i] && first <= i && i <= last {
			others = append(others, says)
		}
	}
	if len(others) == 0 {
		return "each change that makes it not so makes another fact not so, but not the same"
	}
	return "whenever it is not so, neither is: " + strings.Join(others, " / ")
}

// spread returns the changes to begin with: three of each path at most.
func spread(changes []*change) (out []*change) {
	times := make(map[string]int)
	for _, c := range changes {
		if times[c.path]++; times[c.path] <= 3 && len(out) < pairsTried {
			out = append(out, c)
		}
	}
	return out
}

// drop removes the facts for which a change is known, and the fixtures that are not looked at any more: of each way those behind the first n.
func (h *hunt) drop(n int) {
	for _, in := range h.grounds {
		in.quarry = slices.DeleteFunc(in.quarry, func(q *quarry) bool {
			q.facts = slices.DeleteFunc(q.facts, func(i int) bool { return h.best[goal{q.cause, i}] != nil })
			return len(q.facts) == 0 || q.rank >= n
		})
	}
}

// search searches changes for all facts that no other test guards and that have no row, and writes both files.
func search(guarded map[string]*diagnose.Guarded, of string) error {
	if of != findAll && guarded[of] == nil {
		return fmt.Errorf("-find: no cause is called %q", of)
	}
	known, err := linesOf(unguardedFile)
	if err != nil {
		return err
	}
	begun := time.Now() //nolint:forbidigo // it says how long it took
	rows, err := rowsOf()
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r *row) bool {
		_, err := r.holds(guarded)
		return err != nil
	})
	kept := len(rows)
	goals := make(map[goal]bool)
	for name, g := range guarded {
		if of != findAll && of != name {
			continue
		}
		facts := g.Facts()
		for i := range g.Left {
			if !slices.ContainsFunc(rows, func(r *row) bool { return r.cause == name && r.fact == facts[i] }) {
				goals[goal{name, i}] = true
			}
		}
	}
	h, err := newHunt(guarded, goals)
	if err != nil {
		return err
	}
	for _, round := range []struct {
		fixtures int
		search   func(*ground)
	}{{fixturesTried, h.singles}, {3, h.pairs}} {
		h.drop(round.fixtures)
		h.each(round.search)
		fmt.Printf("%d of %d facts have a change after %s\n", len(h.best), len(goals), time.Since(begun).Round(time.Second))
	}
	left := slices.DeleteFunc(known, func(line string) bool { return of == findAll || strings.HasPrefix(line, of+"\t") })
	for to := range goals {
		r := h.best[to]
		if r == nil {
			left = append(left, to.cause+"\t"+guarded[to.cause].Facts()[to.fact]+"\t"+h.why(to))
			continue
		}
		if _, err := r.holds(guarded); err != nil {
			return fmt.Errorf("of a row that was just found: %w\n%s", err, r)
		}
		rows = append(rows, r)
	}
	fmt.Printf("%d rows kept, %d found, %d facts left\n", kept, len(rows)-kept, len(left))
	return write(rows, left)
}

func write(rows []*row, left []string) error {
	slices.SortFunc(rows, compareRows)
	slices.Sort(left)
	var text strings.Builder
	for _, r := range rows {
		text.WriteString(r.String() + "\n")
	}
	if err := os.WriteFile(changesFile, []byte(changesComment+text.String()), 0o644); err != nil {
		return err
	}
	text.Reset()
	for _, line := range left {
		text.WriteString(line + "\n")
	}
	return os.WriteFile(unguardedFile, []byte(unguardedComment+text.String()), 0o644)
}
