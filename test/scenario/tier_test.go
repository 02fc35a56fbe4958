package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

// What the sentinels may cost, so that a change is judged in a quarter of an hour on two processors.
const (
	fewestRows = 75
	// mostBeside are those that are no cause's only one.
	mostBeside = 55
	// mostOnVM take six minutes on an emulated processor.
	mostOnVM        = 10
	mostGrace       = 180 // seconds
	fewestInnocents = 20
)

// mayBeLong wait for minutes, but not for more than three.
var mayBeLong = []string{"csi-unpublish-hangs", "sub-path-left"}

// mayBeAlone are what every cluster meets, and so are worth a node of their own.
var mayBeAlone = []string{"containerd-stopped", "kubelet-stopped"}

// notSentinel reports why an incident cannot be a sentinel; "" when it can.
func notSentinel(s bed.Scenario) string {
	switch {
	case s.Long && !slices.Contains(mayBeLong, s.Name), *s.Pod.TerminationGracePeriodSeconds > mostGrace:
		return "takes more than three minutes"
	case s.Alone && !slices.Contains(mayBeAlone, s.Name):
		return "wants a node to itself"
	}
	return ""
}

func TestSentinelsCostLittle(t *testing.T) {
	names, causes, rows, onVM, innocents := map[string]bool{}, map[string]bool{}, 0, 0, 0
	for _, check := range Checks() {
		if check.Tier != bed.Sentinel {
			continue
		}
		rows++
		if check.On != bed.Nothing {
			t.Errorf("check %s is a sentinel, and wants a node to itself", check.Name)
		}
	}
	for _, s := range append(All(), Alone()...) {
		if s.Tier != bed.Sentinel {
			continue
		}
		names[s.Name] = true
		rows++
		if s.OnlyVM() || s.Everywhere || slices.Contains(s.Needs, bed.CgroupV2) {
			onVM++
		}
		if s.Cause == "" {
			innocents++
		} else {
			causes[s.Cause] = true
		}
		if why := notSentinel(s); why != "" {
			t.Errorf("%s is a sentinel, and %s", s.Name, why)
		}
	}
	for i, name := range sentinels {
		if !names[name] || slices.Contains(sentinels[:i], name) {
			t.Errorf("sentinel %s is no scenario, or is there twice", name)
		}
	}
	if most := len(causes) + mostBeside; rows < fewestRows || rows > most {
		t.Errorf("%d sentinels of %d causes, want %d to %d: take out one of a cause that has two, or an innocent one", rows, len(causes), fewestRows, most)
	}
	if onVM > mostOnVM {
		t.Errorf("%d sentinels run on a virtual machine, want at most %d", onVM, mostOnVM)
	}
	if innocents < fewestInnocents {
		t.Errorf("%d sentinels are innocent, want %d", innocents, fewestInnocents)
	}
}

// Each cause, each source of evidence, each kind of node and each way by which a verdict
// goes out has a sentinel. What cannot have one has a fixture, and is told in docs/sentinels.md.
func TestSentinelsCoverAll(t *testing.T) {
	all := append(All(), Alone()...)
	live, kinds, ways := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range all {
		if s.Tier != bed.Sentinel {
			continue
		}
		kinds["a virtual machine"] = kinds["a virtual machine"] || s.OnlyVM()
		kinds["a native node"] = kinds["a native node"] || !s.OnlyVM()
		if s.Cause == "" {
			continue
		}
		live[s.Cause] = true
		switch {
		case s.When == bed.WhenGone:
			ways["an Event about a pod that has gone"] = true
		case s.NoCondition:
			ways["an Event without a condition"] = true
		default: // test/e2e asks for all of them
			ways["an Event, the condition and the metric"] = true
		}
	}
	for _, check := range Checks() {
		if check.Tier == bed.Sentinel && check.Name == "namespace-deleted" {
			ways["an Event on the Node"] = true
		}
	}
	for _, kind := range []string{"a virtual machine", "a native node"} {
		if !kinds[kind] {
			t.Errorf("no sentinel runs on %s", kind)
		}
	}
	for _, way := range []string{
		"an Event, the condition and the metric", "an Event without a condition", "an Event about a pod that has gone", "an Event on the Node",
	} {
		if !ways[way] {
			t.Errorf("no sentinel shows %s", way)
		}
	}
	fixtures := fixtureCauses(t)
	sources, onlyFixture := map[evidence.Source]string{}, map[string][]string{}
	for _, r := range cause.All() {
		if !live[r.Cause] {
			for _, s := range all {
				if s.Cause != r.Cause {
					continue
				}
				why := notSentinel(s)
				if why == "" {
					t.Errorf("%s has no sentinel, and %s could be one: give it Tier: bed.Sentinel", r.Cause, s.Name)
					continue
				}
				onlyFixture[r.Cause] = append(onlyFixture[r.Cause], s.Name+" "+why)
			}
			if !fixtures[r.Cause] {
				t.Errorf("%s has neither a sentinel nor a fixture", r.Cause)
			}
		}
		for _, source := range r.Sources() {
			if live[r.Cause] || sources[source] == "" {
				sources[source] = r.Cause
			}
		}
	}
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		if !live[sources[source]] && onlyFixture[sources[source]] == nil {
			t.Errorf("no sentinel's rule asks for %s", source)
		}
	}
	writeSentinels(t, onlyFixture, sources, live)
}

const sentinelsFile = "../../docs/sentinels.md"

// writeSentinels compares docs/sentinels.md, and writes it with -update.
func writeSentinels(t *testing.T, onlyFixture map[string][]string, sources map[evidence.Source]string, live map[string]bool) {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# What make test leaves to fixtures

` + "`make test`" + ` breaks a real pod once for each cause, but for those in this table: their incidents take more than three minutes by
their nature, or want a node to themselves. There the evidence that an earlier run has captured goes through all rules (pkg/diagnose/testdata), and
` + "`make matrix`" + ` breaks the pods.

Written by ` + "`go test ./test/scenario -update`" + `.

| cause | its incidents |
| --- | --- |
`)
	for _, c := range slices.Sorted(maps.Keys(onlyFixture)) {
		fmt.Fprintf(&b, "| [%s](reasons/%s.md) | %s |\n", c, c, strings.Join(onlyFixture[c], "; "))
	}
	var unread []string
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		if !live[sources[source]] {
			unread = append(unread, fmt.Sprintf("`%s`", source))
		}
	}
	if len(unread) > 0 {
		fmt.Fprintf(&b, "\nOf the sources of evidence only their rules ask for %s.\n", strings.Join(unread, ", "))
	}
	if *update {
		if err := os.WriteFile(sentinelsFile, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(sentinelsFile)
	if err != nil || !bytes.Equal(page, []byte(b.String())) {
		t.Errorf("docs/sentinels.md is not what the scenarios say (%v); write it with: go test ./test/scenario -update", err)
	}
}

// goneAtOnce end within a second of their signal, before anything of them can be captured. Those that say how they end
// do so within seconds, and are no evidence.
var goneAtOnce = []string{"java-handles-term"}

// Whoever has been accused wrongly may be so again: each innocent is a sentinel, or its
// evidence goes through all rules.
func TestEveryInnocentIsAskedAbout(t *testing.T) {
	captured := fixtureNames(t)
	for _, s := range append(All(), Alone()...) {
		if s.Cause == "" && s.Ends == nil && s.Tier != bed.Sentinel && !captured[s.Name] && !slices.Contains(goneAtOnce, s.Name) {
			t.Errorf("%s is no sentinel and has no fixture; make scenario NAME=%[1]s, then make fixture NAME=%[1]s AS=healthy_...", s.Name)
		}
	}
}

// A taken is what the tests here ask of a fixture.
type taken struct {
	scenario string
	causes   []string
}

func fixtures(t *testing.T) []taken {
	t.Helper()
	files, err := filepath.Glob(testdata + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	var out []taken
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p struct{ Name string }
		var d struct{ Findings []struct{ Cause string } }
		for _, f := range a.Files {
			into := any(&p)
			if f.Name == "diagnosis.json" {
				into = &d
			}
			if err := json.Unmarshal(f.Data, into); err != nil {
				t.Fatalf("%s: %s: %v", file, f.Name, err)
			}
		}
		one := taken{scenario: p.Name}
		for _, f := range d.Findings {
			one.causes = append(one.causes, f.Cause)
		}
		out = append(out, one)
	}
	return out
}

func fixtureCauses(t *testing.T) map[string]bool {
	out := map[string]bool{}
	for _, f := range fixtures(t) {
		if len(f.causes) > 0 {
			out[f.causes[0]] = true
		}
	}
	return out
}

// fixtureNames returns the scenarios from which fixtures were taken. A pod of a StatefulSet or of
// a file has its scenario's name, and a number or its node behind it.
func fixtureNames(t *testing.T) map[string]bool {
	out := map[string]bool{}
	for _, f := range fixtures(t) {
		name := f.scenario
		out[name] = true
		out[strings.TrimSuffix(name, bed.SetSuffix)] = true
		if i := strings.LastIndex(name, "-"); i > 0 {
			out[name[:i]] = true
		}
	}
	return out
}
