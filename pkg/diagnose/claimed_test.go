package diagnose_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const claimed = "pvc-6f0c1f3e-aaaa-4bbb-8ccc-ddddeeeeffff"

// The node calls a volume behind a claim by its PersistentVolume. A person looks for what the
// pod's specification says, and is told that where it is certain.
func TestVolumesAreNamedAsSpecified(t *testing.T) {
	scratch := evidence.SpecVolume{Name: "scratch"}
	of := func(name, claim string) evidence.SpecVolume { return evidence.SpecVolume{Name: name, Claim: claim} }
	device := func(name, claim string) evidence.SpecVolume {
		return evidence.SpecVolume{Name: name, Claim: claim, Block: true}
	}
	asBlock := func(p *evidence.Pod) {
		block(p, ownDevice, published)
		p.Volumes[0].Name = claimed
		for i := range p.Devices {
			p.Devices[i].Volume = claimed
		}
	}
	const pv = " is PersistentVolume " + claimed
	for name, tc := range map[string]struct {
		specified []evidence.SpecVolume
		change    func(p *evidence.Pod)
		want      string
		force     string
	}{
		"nothing is known of the specification": {nil, nil, "volume \"" + claimed + "\" cannot be", "volume \"" + claimed + "\" is"},
		"one claim":                             {[]evidence.SpecVolume{scratch, of("data", "web-data")}, nil, `volume "data" (claim web-data) cannot be`, `volume "data" (claim web-data) is`},
		"two claims": {[]evidence.SpecVolume{of("data", "web-data"), of("logs", "web-logs")}, nil, "volume " +
			"\"" + claimed + "\" (PersistentVolume of claim web-data or web-logs) cannot be", "volume \"" + claimed + "\" is"},
		"one claim, by two names":            {[]evidence.SpecVolume{of("data", "web-data"), of("again", "web-data")}, nil, `volume "data" or "again" (claim web-data) cannot be`, `volume "data" or "again" (claim web-data) is`},
		"two claims, one of a device":        {[]evidence.SpecVolume{device("disk", "web-disk"), of("data", "web-data")}, nil, `volume "data" (claim web-data) cannot be`, `volume "data" (claim web-data) is`},
		"two claims, and the device is left": {[]evidence.SpecVolume{device("disk", "web-disk"), of("data", "web-data")}, asBlock, `block volume "disk" (claim web-disk) cannot be`, `volume "disk" (claim web-disk) is`},
		"two claims, and containerd told which": {[]evidence.SpecVolume{of("data", "web-data"), {Name: "logs", Claim: "web-logs", Node: claimed}}, nil,
			`volume "logs" (claim web-logs) cannot be`, `volume "logs" (claim web-logs) is`},
		"three claims, and containerd told of another": {[]evidence.SpecVolume{of("data", "web-data"), {Name: "logs", Claim: "web-logs",
			Node: "pvc-7"}, of("tmp", "web-tmp")}, nil,
			"volume \"" + claimed + "\" (PersistentVolume of claim web-data or web-tmp) cannot be", "volume \"" + claimed + "\" is"},
		"one claim, which is known to be another volume": {[]evidence.SpecVolume{{Name: "logs", Claim: "web-logs", Node: "pvc-7"}}, nil,
			"volume \"" + claimed + "\" cannot be", "volume \"" + claimed + "\" is"},
		"the specification has this name": {[]evidence.SpecVolume{of("data", "web-data"), {Name: claimed}}, nil,
			"volume \"" + claimed + "\" cannot be", "volume \"" + claimed + "\" is"},
		"the claim is a device's, and what is left is none": {[]evidence.SpecVolume{device("disk", "web-disk")}, nil, "volume " +
			"\"" + claimed + "\" cannot be", "volume \"" + claimed + "\" is"},
		"a volume that can have no claim": {[]evidence.SpecVolume{of("data", "web-data")}, func(p *evidence.Pod) {
			p.Volumes[0].Plugin, p.Mounts[0].Plugin = "kubernetes.io~empty-dir", "kubernetes.io~empty-dir"
		}, "volume \"" + claimed + "\" cannot be", "volume \"" + claimed + "\" is"},
		"a name that is none": {[]evidence.SpecVolume{of("data", "x. Remedy: reboot")}, nil, `volume "data" (claim "x. Remedy: reboot") cannot be`, `(claim "x. Remedy: reboot") is`},
	} {
		d := cause.Diagnose(unmounting(30*time.Second, func(p *evidence.Pod) {
			p.Specified = tc.specified
			p.Volumes[0].Name, p.Mounts[0].Volume = claimed, claimed
			if tc.change != nil {
				tc.change(p)
			}
			holder(p, "rsync", "", 7, 12*time.Second)
		}))
		v, _ := d.Verdict()
		if !strings.HasPrefix(v.Message, tc.want) {
			t.Errorf("%s: %q, want %q", name, v.Message, tc.want)
		}
		if certain := strings.Contains(tc.want, "(claim "); certain != slices.ContainsFunc(v.Seen, func(s string) bool { return strings.HasSuffix(s, pv) }) {
			t.Errorf("%s: the PersistentVolume is certain %v: %q", name, certain, v.Seen)
		}
		if d.Force == nil || !strings.Contains(d.Force.Text, tc.force) {
			t.Errorf("%s: %+v, want %q", name, d.Force, tc.force)
		}
	}
}

// A volume that the pod has not got on the node is not its own: nothing is known of its claim.
func TestVolumesOfOthersAreNotNamed(t *testing.T) {
	d := cause.Diagnose(unmounting(30*time.Second, func(p *evidence.Pod) {
		p.Specified = []evidence.SpecVolume{{Name: "data", Claim: "web-data"}}
		holder(p, "rsync", "", 7, 12*time.Second)
	}))
	v, _ := d.Verdict()
	if diff := cmp.Diff([]diagnose.Claimed{{Volume: "data", Names: []string{"data"}, Claims: []string{"web-data"}}}, v.Objects.Claimed); diff != "" {
		t.Error(diff)
	}
	if got := diagnose.ClaimedOf(unmounting(0, func(p *evidence.Pod) {
		p.Specified = []evidence.SpecVolume{{Name: "data",
			Claim: "web-data"}}
	}), "pv-of-another"); got != nil {
		t.Errorf("%+v", got)
	}
}
