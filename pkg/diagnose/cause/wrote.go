package cause

import (
	"embed"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

// wordings has a file for this version, current.txt (go test ./pkg/diagnose -update writes it), and one for each of the last
// two releases: of a wording a line, with the cause or "*", which part of the message it is of, and a regular expression between tabs.
//
//go:embed wordings/*.txt
var wordings embed.FS

// Parts of a message that have a wording.
const (
	partFix   = "Fix"
	partAvoid = "Avoid"
	partForce = "Force delete"
	anyCause  = "*"
)

// Wordings returns the lines of current.txt.
func Wordings() []string {
	var out []string
	add := func(cause, part string, all []string) {
		for _, p := range all {
			out = append(out, strings.Join([]string{cause, part, p}, "\t"))
		}
	}
	for _, r := range All() {
		w := r.Doc.Wording()
		add(r.Cause, partFix, w.Remedies)
		add(r.Cause, partAvoid, w.Dangers)
	}
	add(anyCause, partForce, []string{diagnose.YesWording()})
	return out
}

// written are the wordings by cause and part, compiled when they are asked for.
var written = sync.OnceValue(func() map[[2]string][]func() *regexp.Regexp {
	out := make(map[[2]string][]func() *regexp.Regexp)
	files, _ := wordings.ReadDir("wordings")
	for _, f := range files {
		text, _ := wordings.ReadFile("wordings/" + f.Name())
		for line := range strings.Lines(string(text)) {
			if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3); len(parts) == 3 {
				key := [2]string{parts[0], parts[1]}
				out[key] = append(out[key], sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(parts[2]) }))
			}
		}
	}
	return out
})

// A Subject is the pod that advice is about.
type Subject struct {
	Namespace, Name, Node string
	// UIDs are those by which the API, and the node, know it, and Containers the IDs of its containers.
	UIDs, Containers []string
}

// Own adds a container of the pod, by its ID as the API has it, with the name of the runtime: "containerd://…".
func (of *Subject) Own(container string) {
	if _, id, ok := strings.Cut(container, "://"); ok {
		of.Containers = append(of.Containers, id)
	}
}

// Wrote reports whether the advice about a cause of a pod may be of an agent of this version, or of one of the last two releases: a part
// that is not empty has one of its texts, and in its commands stand only this pod and its node, and one process where one is meant.
// Of force, which answers whether a force delete is safe, only a yes does harm. Anybody who may patch the status of pods may write a
// condition.
func Wrote(cause, fix, avoid, force string, of Subject) bool {
	is := func(cause, part, text string) bool {
		return text == "" || slices.ContainsFunc(written()[[2]string{cause, part}], func(p func() *regexp.Regexp) bool { return of.fits(p(), text) })
	}
	return is(cause, partFix, fix) && is(cause, partAvoid, avoid) &&
		(!strings.HasPrefix(force, string(diagnose.ForceYes)) || is(anyCause, partForce, force))
}

// fits reports whether a text matches, and what it names in commands is the subject.
func (of *Subject) fits(p *regexp.Regexp, text string) bool {
	said, ok := names(p, text)
	if !ok {
		return false
	}
	among := func(name string, own ...string) bool { return name == "" || slices.Contains(own, name) }
	mount := said["hostmount"]
	return among(said["podnamespace"], of.Namespace) && among(said["podname"], of.Name) && among(said["node"], of.Node) &&
		among(said["poduid"], of.UIDs...) && among(said["containerid"], of.Containers...) && among(podOf(said["cgroup"]), of.UIDs...) &&
		// Other pods' volumes may hold up the kubelet, and are looked at; what is unmounted is the pod's own.
		(mount == "" || !strings.Contains(text, "umount "+mount) || slices.Contains(of.UIDs, podOf(mount)))
}

// names returns what the named groups of a wording match in a text, by their names up to "_"; ok is false where the text does not match, or two
// groups of one name differ.
func names(p *regexp.Regexp, text string) (said map[string]string, ok bool) {
	match := p.FindStringSubmatch(text)
	if match == nil {
		return nil, false
	}
	said = make(map[string]string)
	for i, name := range p.SubexpNames() {
		if name == "" || match[i] == "" {
			continue
		}
		name, _, _ = strings.Cut(name, "_")
		if before, again := said[name]; again && before != match[i] {
			return nil, false
		}
		said[name] = match[i]
	}
	return said, true
}

// podOf returns the UID of the pod whose directory or control group a path is in, "" for none.
func podOf(path string) string {
	m := inPod.FindStringSubmatch(path)
	if m == nil {
		return ""
	}
	return strings.ReplaceAll(m[1], "_", "-")
}

// inPod is how a pod's directory, and its control group with both drivers, is called.
var inPod = regexp.MustCompile(`(?:/pods/|pod)([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:/|\.slice|$)`)
