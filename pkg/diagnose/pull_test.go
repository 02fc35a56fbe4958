package diagnose_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// pulls is a pod that is deleted while the image of its container is pulled, of which nothing has come
// for two minutes.
func pulls(change func(p *evidence.Pod)) *evidence.Pod {
	return tornDown("", func(p *evidence.Pod) {
		p.Phase, p.KillFailures = "Pending", nil
		p.Node.Time = p.Time
		p.Containers = []evidence.Container{
			{Name: "main", Kind: evidence.App, Waiting: true},
			{Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateRunning},
		}
		kubelet := task(80, 1, "kubelet", evidence.Sleeping, "futex_do_wait")
		kubelet.Probe.Started = p.Time.Add(-time.Hour)
		p.Node.Kubelet.Process = &kubelet
		begun := p.Time.Add(-2 * time.Minute)
		p.Pulls = []evidence.Pull{{Container: "main", Image: "example.com/web:1", Since: begun}}
		p.Node.Containerd.Downloads = []evidence.Download{{Started: begun.Add(time.Second), Updated: begun.Add(time.Second), Total: 9 << 20}}
		change(p)
	})
}

// runsToo lets another container of the pod run, of which the kubelet has written nothing yet.
func runsToo(p *evidence.Pod) {
	p.Containers = append(p.Containers, evidence.Container{Name: "b", Kind: evidence.App, ID: "b", State: evidence.StateRunning, Waiting: true,
		Task: evidence.ShimTask{Status: "running", PID: 500}})
	first := task(500, 80, "app", evidence.Sleeping, "futex_do_wait")
	first.Container = "b"
	p.Tasks = append(p.Tasks, first)
}

func TestImagePull(t *testing.T) {
	const hangs = "ImagePullHanging: "
	open := func(ingests, blobs int) func(*evidence.Pod) {
		return func(p *evidence.Pod) {
			p.Node.Containerd.Content = &evidence.OpenContent{Ingests: ingests, Blobs: blobs}
		}
	}
	kubelet := func(p *evidence.Pod) *evidence.Task { return p.Node.Kubelet.Process }
	download := func(p *evidence.Pod) *evidence.Download { return &p.Node.Containerd.Downloads[0] }
	for name, test := range map[string]struct {
		change func(p *evidence.Pod)
		want   string // of the message; "" is no such finding
	}{
		"nothing comes":          {func(*evidence.Pod) {}, hangs + `the deletion waits for the pull of image "example.com/web:1" (container main); no image data arrived since`},
		"it waits for its turn":  {func(p *evidence.Pod) { download(p).Started = p.Time.Add(-4 * time.Minute) }, hangs + "This pull probably waits for its turn"},
		"a name that breaks out": {func(p *evidence.Pod) { p.Pulls[0].Image = "a\" ; reboot #\n" }, hangs + `the pull of image "a`},
		"the image is not known": {func(p *evidence.Pod) { p.Pulls[0].Image = "" }, hangs + "the pull of an image (container main); no image data arrived since"},
		"the last of two": {func(p *evidence.Pod) {
			p.Pulls = append([]evidence.Pull{{Container: "first", Since: p.Time.Add(-time.Hour)}}, p.Pulls...)
		}, hangs + "(container main)"},
		"an init container has ended": {func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "first", Kind: evidence.Init, ID: "1", State: evidence.StateExited, Exit: &evidence.Exit{}})
		}, hangs},
		"something has just come": {func(p *evidence.Pod) { download(p).Updated = p.Time.Add(-80 * time.Second) }, ""},
		"another download moves": {func(p *evidence.Pod) {
			p.Node.Containerd.Downloads = append(p.Node.Containerd.Downloads, evidence.Download{Updated: p.Time.Add(-time.Second)})
		}, ""},
		"all has come":          {func(p *evidence.Pod) { download(p).Offset = download(p).Total }, ""},
		"nothing is downloaded": {func(p *evidence.Pod) { p.Node.Containerd.Downloads = nil }, ""},
		"it began long before, and nothing came": {func(p *evidence.Pod) {
			download(p).Started, download(p).Updated = p.Time.Add(-time.Hour), p.Time.Add(-time.Hour)
		}, hangs + "This pull probably waits for its turn"},
		"a containerd started anew may have left it": {func(p *evidence.Pod) {
			download(p).Started, download(p).Updated = p.Time.Add(-time.Hour), p.Time.Add(-time.Hour)
			p.Node.Containerd.ConnectedSince = p.Time.Add(-30 * time.Minute)
		}, ""},
		"other Events than those about failures are not known": {func(p *evidence.Pod) { p.Lack(evidence.Events, "forbidden") }, hangs},
		"the download was given up": {func(p *evidence.Pod) {
			download(p).Updated, download(p).Offset = p.Pulls[0].Since.Add(-6*time.Minute), 1<<20
		}, ""},
		"the pull has just begun":      {func(p *evidence.Pod) { p.Pulls[0].Since = p.Time.Add(-80 * time.Second) }, ""},
		"nobody tells of a pull":       {func(p *evidence.Pod) { p.Pulls = nil }, ""},
		"the Events are not known":     {func(p *evidence.Pod) { p.Lack(evidence.Pulls, "forbidden") }, ""},
		"the kubelet was started anew": {func(p *evidence.Pod) { kubelet(p).Probe.Started = p.Time.Add(-time.Minute) }, ""},
		"the kubelet is not known":     {func(p *evidence.Pod) { p.Node.Kubelet.Process = nil }, ""},
		"its age is not known":         {func(p *evidence.Pod) { kubelet(p).Probe = nil }, ""},
		"the kubelet is not heard": {func(p *evidence.Pod) {
			p.Node.Ready = &evidence.NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown"}
		}, ""},
		"the image was pulled, and the container is created": {func(p *evidence.Pod) { p.Containers[0].ID, p.Containers[0].State = "1", evidence.StateCreated }, ""},
		"it waits to try again":                              {func(p *evidence.Pod) { p.Containers[0].BackedOff = true }, ""},
		"its sandbox has ended":                              {func(p *evidence.Pod) { p.Containers[1].State = evidence.StateExited }, ""},
		"its network is taken down":                          {func(p *evidence.Pod) { plugin(p, time.Second) }, ""},
		"a container before it runs":                         {runsToo, hangs + "(container main)"},
		"an init container runs": {func(p *evidence.Pod) {
			p.Containers = append(p.Containers, evidence.Container{Name: "b", Kind: evidence.Init, ID: "b", State: evidence.StateRunning})
		}, ""},
		"of a volume":                            {func(p *evidence.Pod) { p.Pulls[0].Container = "" }, hangs + `the deletion waits for the pull of image "example.com/web:1" (a volume); no image data arrived since`},
		"of a volume, and the image not known":   {func(p *evidence.Pod) { p.Pulls[0] = evidence.Pull{Since: p.Pulls[0].Since} }, hangs + `the deletion waits for the pull of an image (a volume); no image data arrived since`},
		"of a volume, and no container waits":    {func(p *evidence.Pod) { p.Pulls[0].Container, p.Containers[0].BackedOff = "", true }, ""},
		"its file is open":                       {open(1, 0), hangs},
		"an ended pull has left it":              {open(0, 0), ""},
		"an image is unpacked, maybe this pod's": {open(1, 1), ""},
		"containerd was started anew, and it is under way": {func(p *evidence.Pod) {
			download(p).Started, download(p).Updated = p.Time.Add(-time.Hour), p.Time.Add(-time.Hour)
			p.Node.Containerd.ConnectedSince = p.Time.Add(-30 * time.Minute)
			open(1, 0)(p)
		}, hangs + "This pull probably waits for its turn"},
		"all had come six minutes ago": {func(p *evidence.Pod) {
			p.Pulls[0].Since = p.Time.Add(-8 * time.Minute)
			d := download(p)
			d.Started, d.Updated, d.Offset = p.Time.Add(-7*time.Minute), p.Time.Add(-6*time.Minute), d.Total
		}, ""},
		"the one under way is complete": {func(p *evidence.Pod) {
			p.Node.Containerd.Downloads = append(p.Node.Containerd.Downloads, *download(p))
			download(p).Updated, download(p).Offset = p.Time.Add(-6*time.Minute), download(p).Total
			open(1, 0)(p)
		}, ""},
		"containerd waits for a disk": {func(p *evidence.Pod) {
			b := task(90, 1, "containerd", evidence.Uninterruptible, "folio_wait_bit_common")
			b.Owner = "containerd"
			p.Node.Blocked = []evidence.Task{b}
		}, ""},
		"the clock was set a minute ago":     {func(p *evidence.Pod) { p.Node.ClockSet = p.Time.Add(-time.Minute) }, ""},
		"the clock was set before all of it": {func(p *evidence.Pod) { p.Node.ClockSet = p.Time.Add(-time.Hour) }, hangs},
		"one beside it is from another clock": {func(p *evidence.Pod) {
			p.Node.Containerd.Downloads = append([]evidence.Download{{Updated: p.Time.Add(time.Hour)}}, p.Node.Containerd.Downloads...)
		}, hangs},
		"of another container":      {func(p *evidence.Pod) { p.Pulls[0].Container = "b" }, ""},
		"a static pod":              {func(p *evidence.Pod) { p.Mirror = true }, ""},
		"a disk may be slow":        {func(p *evidence.Pod) { p.Node.Pressure.StarvedUntil = p.Time }, ""},
		"the pressure is not known": {func(p *evidence.Pod) { p.Node.Pressure = nil }, ""},
	} {
		d := cause.Diagnose(pulls(test.change))
		got := ""
		for _, f := range d.Findings {
			if f.Cause == "ImagePullHanging" {
				got = f.Cause + ": " + strings.Join(append([]string{f.Message}, f.Seen...), "\n")
			}
			if strings.Contains(f.Remedy+f.Danger+f.First+f.Avoid, "reboot") {
				t.Errorf("%s: the image's name stands in %s", name, f.Remedy)
			}
		}
		if test.want == "" && got != "" || !strings.Contains(got, strings.TrimPrefix(test.want, hangs)) || test.want != "" && got == "" ||
			got != "" && !strings.Contains(got, "reported the start of the pull in an Event at ") {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
}

// While a download moves nothing is told, however late the pod is; when none does, and it is not known
// that one hangs, Unknown comes late.
func TestImagePullMoves(t *testing.T) {
	moves := func(p *evidence.Pod) { p.Node.Containerd.Downloads[0].Updated = p.Time.Add(-time.Second) }
	unpacks := func(p *evidence.Pod) { p.Node.Containerd.Downloads = nil }
	for name, test := range map[string]struct {
		change func(p *evidence.Pod)
		late   time.Duration
		want   string
	}{
		"a download moves":                                      {moves, time.Hour, ""},
		"nothing is downloaded":                                 {unpacks, 4 * time.Minute, ""},
		"nothing is downloaded for long":                        {unpacks, 6 * time.Minute, "Unknown"},
		"a download moves for a container beside one that runs": {func(p *evidence.Pod) { runsToo(p); moves(p) }, time.Hour, ""},
		"a download moves for a volume":                         {func(p *evidence.Pod) { p.Pulls[0].Container = ""; moves(p) }, time.Hour, ""},
		"a download of the future": {func(p *evidence.Pod) {
			p.Node.Containerd.Downloads[0].Updated = p.Time.Add(time.Hour)
		}, 6 * time.Minute, "Unknown"},
		"one CNI plugin after the other": {func(p *evidence.Pod) {
			*p = *setUp(20*time.Second, func(*evidence.Pod) {})
		}, 4 * time.Minute, ""},
		"nobody tells of a pull": {func(p *evidence.Pod) { p.Pulls = nil }, 4 * time.Minute, "Unknown"},
	} {
		p := pulls(test.change)
		p.Deadline = p.Time.Add(-test.late)
		p.DeletionRequested, p.UnchangedSince = p.Deadline.Add(-3*time.Second), p.Deadline
		d := cause.Diagnose(p)
		if f, _ := d.Verdict(); f.Cause != test.want {
			t.Errorf("%s: %q, not %q", name, f.Cause, test.want)
		}
	}
}

// One request of many that fails does not bring up Unknown: it waits for a minute of such readings.
func TestUnknownWaitsForASource(t *testing.T) {
	last := pulls(func(p *evidence.Pod) { p.Deadline = p.Time.Add(-4 * time.Minute) })
	last.DeletionRequested, last.UnchangedSince = last.Deadline.Add(-3*time.Second), last.Deadline
	for by := 10 * time.Second; by <= 90*time.Second; by += 10 * time.Second {
		p := after(last, by)
		p.Missing = nil
		p.SetPulls(nil, errors.New("context deadline exceeded"))
		p.Lacking = []evidence.Lacking{{Source: evidence.Pulls, Since: last.Time.Add(10 * time.Second)}}
		want := ""
		if by >= 70*time.Second {
			want = "Unknown"
		}
		d := cause.Diagnose(p)
		if f, _ := d.Verdict(); f.Cause != want {
			t.Errorf("after %s: %q, not %q", by, f.Cause, want)
		}
	}
}
