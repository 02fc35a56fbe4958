package kubelet

import (
	"fmt"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// another is the variant of ImagePullHanging in which the stalled download had begun before the pod's pull.
const another = "Another"

// forVolume is the variant of ImagePullHanging in which the image is for a volume.
const forVolume = "ForVolume"

// eventsExact is how exact the times of the kubelet's Events are.
const eventsExact = time.Second

// ImagePullHanging is an image pull that does not move. The pod was deleted during the pull, and the kubelet completes the pull before it turns to
// the deletion.
//
// The worker of kubelet 1.36 waits whether images are pulled side by side or one after the other (serializeImagePulls).
// In the second case it also waits for pulls of other pods, for which containerd may not have been asked yet. While a
// download of the node moves, neither this cause nor Unknown is reported: images take minutes. A download in
// containerd's list proves nothing, because one that a pull has left behind stays for long. The files that containerd
// has open decide.
var ImagePullHanging = &diagnose.Rule{
	Cause:  "ImagePullHanging",
	Phases: []diagnose.Phase{diagnose.Startup},
	Doc: diagnose.Doc{
		Layer:   "kubelet",
		Title:   "an image pull is stalled",
		Who:     diagnose.ByNode,
		Message: "{what}; no image data arrived since {until}",
		Phrases: map[string][]diagnose.Choice{
			"curl": {{Text: "curl -m5 -I https://{registry}/v2/"}, {Text: "curl -m5 -I https://REGISTRY/v2/"}},
			"what": {
				{Variant: forVolume, Text: "the deletion waits for the pull of image {image} (a volume)"},
				{Variant: forVolume, Text: "the deletion waits for the pull of an image (a volume)"},
				{Text: "the deletion waits for the pull of image {image} (container {container})"},
				{Text: "the deletion waits for the pull of an image (container {container})"},
			},
			"whose": {
				{Variant: another, Text: "The stalled download began before this pull. This pull probably waits for its turn, waits for " +
					"another pod's pull of the image, or resumes an earlier try"},
				{Text: "Which image the stalled download is for is not known"},
			},
		},
		Seen: []string{
			"The kubelet reported the start of the pull in an Event at {since}, and has reported nothing about it since",
			"containerd has an unfinished download, and has stored no data of any image since {until}",
			"{whose}",
		},
		First: "on the node: {curl}. If it prints HTTP 200 to 499: wait 5 minutes, then follow Fix. If not: ask the registry or network team",
		Avoid: "rm in /var/lib/containerd (other pods' images)",
		Meaning: "The kubelet completes the start of a container before it turns to the deletion, and the pull of its image is part of " +
			"that. The deletion does not cancel it. " +
			"With serializeImagePulls, which is the default, the kubelet pulls one image after the other. A pod then also waits for " +
			"the pulls of other pods before it.\n\n" +
			"containerd gives up a pull that got data and then nothing more for five minutes (image_pull_progress_timeout). The pod " +
			"then terminates. " +
			"containerd 2.4 does not give up a pull without even the first MiB of a layer, unless use_local_image_pull is set. Such " +
			"a pull may hang without end.",
		Remedy: "On the node: {curl} shows whether the registry responds (HTTP 401 is fine). Do the same for a mirror. " +
			"Check its load, a proxy or mirror in between, and the node's network. The kubelet stops the pod when the pull ends or fails; " +
			"the pull has no time limit of the kubelet's own. " +
			"journalctl -u containerd shows which images containerd gives up. " +
			"If the registry cannot be repaired, on the node: systemctl restart kubelet, which ends no container. The restarted kubelet stops the pod. " +
			"For the future: serializeImagePulls: false in the kubelet's configuration keeps one pull from holding up the others.",
		Danger: "Do not remove anything below /var/lib/containerd: it holds the images of all pods. " +
			"A force delete does not end the pull, and the kubelet may still create the container afterwards.",
	},
	By: diagnose.By[pulling]{
		From: []evidence.Source{evidence.Pulls},
		Of:   lastPull,
		Facts: []diagnose.Fact[pulling]{
			{Says: "The kubelet has reported the pull in an Event. Since then it has reported nothing about that container, nor that it stops a container."},
			{
				Says: "The kubelet has run since then, and reaches the API server. The pod's sandbox runs, the container is not created yet, " +
					"and nothing else of the start is in progress. Containers before it may run.",
				Pod:  diagnose.IfPod(awaitsPull),
				From: []evidence.Source{evidence.Processes, evidence.Containers}, Partly: []evidence.Source{evidence.Kubelet, evidence.NodeObject},
			},
			{Says: "The pull has lasted for " + fact.Download.String() + ".", Is: pullLasts},
			{Says: "The node's clock was not set in that time: what is new may look old then.", Is: clockKept},
			{Says: "No thread of containerd is blocked, as by a disk.", Is: writesFreely, From: []evidence.Source{evidence.Processes}},
			{Says: "No download has become complete in the last five minutes: it may still be written to the disk.", Is: allWritten},
			{
				Says: "containerd has an incomplete download, or has had data of a complete one lately.",
				Is:   diagnose.If(downloads), Partly: []evidence.Source{evidence.Containerd},
			},
			{Says: "containerd has stored nothing of any image for " + fact.Download.String() + ".", Is: still},
			{Says: "containerd stores a MiB at a time, so a download of less than 12 KiB in a second looks the same."},
			{Says: "containerd has the file of an incomplete download open (ingest in its content store): its pull has not ended.", Is: fileOpen},
			{Says: "containerd has no part of an image open (blobs), as it would to unpack one, perhaps the pod's.", Is: unpacksNone},
			{
				Says: "If containerd's open files cannot be read: the download has no data, or moved less than five minutes before the pull began, or since.",
				Is:   notGivenUp,
			},
			{
				Says: "If they cannot be read: the download has data, or is no older than the pull, or no older than nodeagent's connection to containerd.",
				Is:   notLeft,
			},
			{Says: "It is inferred. Events can be written by others. Which download is for which image is not known: the pod may wait for " +
				"something else, such as the kubelet's credential provider, while another image's download hangs."},
			{Says: "Not found: a pull that hangs before its first download (the registry does not send the manifest) or beside a download that " +
				"moves, and a pull for a container that has run before."},
		},
		Tell: diagnose.Each(tellPull),
	},
}

// A pulling is a pull that the kubelet has told of, and the incomplete download of containerd that was updated last, nil for none. Complete is how
// many downloads are complete, and completed when the last of them was updated.
type pulling struct {
	pull      *evidence.Pull
	last      *evidence.Download
	complete  int
	completed time.Time
}

// Named says what is pulled.
func (t pulling) Named(*fact.View) string {
	return fmt.Sprintf("the pull of image %.80q", t.pull.Image)
}

// lastPull returns the last pull of the pod that the kubelet has told of: it pulls for one container after the other.
func lastPull(p *fact.View) []pulling {
	if len(p.Pulls) == 0 {
		return nil
	}
	t := pulling{pull: &p.Pulls[len(p.Pulls)-1]}
	for i := range p.Node.Containerd.Downloads {
		switch d := &p.Node.Containerd.Downloads[i]; {
		case d.Total > 0 && d.Offset >= d.Total:
			t.complete, t.completed = t.complete+1, fact.Latest(t.completed, d.Updated)
		case d.Updated.After(p.Node.Time.Add(fact.ClockSkew)): // by another clock
		case t.last == nil || d.Updated.After(t.last.Updated):
			t.last = d
		}
	}
	return []pulling{t}
}

func awaitsPull(p *fact.View) bool { return fact.Pull(p) != nil }

func pullLasts(p *fact.View, t pulling) diagnose.Holding {
	lasts := diagnose.Lasted(p, t.pull.Since.Add(p.Time.Sub(p.Node.Time)), fact.Download.With(p), diagnose.Slow)
	return diagnose.Or(unlessMoves(p, t, lasts.Yes()), lasts)
}

// clockKept does not wait for a clock that may be set again and again.
func clockKept(p *fact.View, t pulling) diagnose.Holding {
	n := &p.Node
	return orSoon(p, t, n.ClockSet.IsZero() || n.Time.Sub(n.ClockSet) >= fact.Download.With(p), diagnose.Slow)
}

// writesFreely answers whether no thread of containerd is blocked. The disk may be what does not take the data.
func writesFreely(p *fact.View, t pulling) diagnose.Holding {
	blocked := slices.ContainsFunc(p.Node.Blocked, func(t evidence.Task) bool { return t.Owner == "containerd" })
	return orSoon(p, t, !blocked, diagnose.Slow)
}

func allWritten(p *fact.View, t pulling) diagnose.Holding {
	return orSoon(p, t, t.complete == 0 || p.Node.Time.Sub(t.completed) >= fact.DownloadGivenUp, diagnose.Moves)
}

func downloads(p *fact.View, t pulling) bool { return t.last != nil || !pullMoved(p).IsZero() }

// still answers whether no download has moved for long.
func still(p *fact.View, t pulling) diagnose.Holding {
	if t.last != nil && p.Node.Time.Sub(t.last.Updated) >= fact.Download.With(p) {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(moving(p))
}

// fileOpen answers whether a download is open: one that is not was left by a pull that has ended.
func fileOpen(p *fact.View, t pulling) diagnose.Holding {
	c := p.Node.Containerd.Content
	return unlessMoves(p, t, c == nil || c.Ingests > t.complete)
}

func unpacksNone(p *fact.View, t pulling) diagnose.Holding {
	c := p.Node.Containerd.Content
	return orSoon(p, t, c == nil || c.Blobs == 0, diagnose.Moves)
}

func notGivenUp(p *fact.View, t pulling) diagnose.Holding {
	return unlessMoves(p, t, p.Node.Containerd.Content != nil || t.last == nil || t.last.Offset == 0 ||
		t.pull.Since.Sub(t.last.Updated) < fact.DownloadGivenUp)
}

// notLeft answers whether a download without data may be of a pull that goes on. One that is older than the connection to containerd may be left from
// before a restart of containerd: its lease is kept for a day.
func notLeft(p *fact.View, t pulling) diagnose.Holding {
	c := &p.Node.Containerd
	return unlessMoves(p, t, c.Content != nil || t.last == nil || t.last.Offset > 0 ||
		!t.last.Updated.Before(t.pull.Since) || !t.last.Updated.Before(c.ConnectedSince))
}

// unlessMoves is Is, but not yet while a download has moved lately: what is not so then may be so when it has ended. Until when, still says.
func unlessMoves(p *fact.View, t pulling, is bool) diagnose.Holding {
	o := moving(p)
	switch {
	case is || o.Since.IsZero():
		return diagnose.Is(is)
	case !still(p, t).Yes():
		o = diagnose.Open{}
	}
	return diagnose.NotYet(o)
}

// orSoon is unlessMoves for what the next reading may show.
func orSoon(p *fact.View, t pulling, is bool, why diagnose.Why) diagnose.Holding {
	return diagnose.Or(unlessMoves(p, t, is), diagnose.NotYet(diagnose.Seen(p, why)))
}

// moving returns what is open while a download moves, or has moved lately.
func moving(p *fact.View) diagnose.Open {
	if since := stuckBesideOthers(p); !since.IsZero() {
		return diagnose.Waits(since, diagnose.LastWait, diagnose.Slow)
	}
	return diagnose.Waits(pullMoved(p), fact.Download.Pressed, diagnose.Moves)
}

func tellPull(_ *fact.View, t pulling) diagnose.Finding {
	f := diagnose.Finding{Container: t.pull.Container, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
		Image: t.pull.Image, Since: t.pull.Since, Until: t.last.Updated,
	}}
	if t.pull.Container == "" {
		f.Variants = append(f.Variants, forVolume)
	}
	if t.last.Started.Before(t.pull.Since.Add(-eventsExact)) {
		f.Variants = append(f.Variants, another)
	}
	return f
}

// pullMoved returns when a download last moved, or was complete and not yet on the disk, while the kubelet waits for an image. The pod then starts,
// and ends, by itself. It is zero when that was long ago, or when the kubelet waits for no image. A time in the future is from a clock that has
// been set since.
func pullMoved(p *fact.View) time.Time {
	var last time.Time
	if fact.Pull(p) == nil {
		return last
	}
	for _, d := range p.Node.Containerd.Downloads {
		if ago := p.Node.Time.Sub(d.Updated); ago >= -fact.ClockSkew && ago < fact.Download.Pressed {
			last = fact.Latest(last, d.Updated)
		}
	}
	return last
}

// stuckBesideOthers returns since when a download that may be of the pull has not moved while others do. Which of them is the pod's is not known. It
// is zero if a download that began no later moves: containerd fetches three layers of an image at a time (max_concurrent_downloads), and the
// others wait for these.
func stuckBesideOthers(p *fact.View) (since time.Time) {
	pull, all := fact.Pull(p), p.Node.Containerd.Downloads
	if pull == nil || pullMoved(p).IsZero() {
		return since
	}
	still := func(d evidence.Download) bool { return p.Node.Time.Sub(d.Updated) >= fact.Download.With(p) }
	for _, d := range all {
		queued := slices.ContainsFunc(all, func(o evidence.Download) bool {
			return !still(o) && !o.Started.Before(pull.Since.Add(-eventsExact)) && !o.Started.After(d.Started.Add(eventsExact))
		})
		incomplete := d.Total == 0 || d.Offset < d.Total
		if incomplete && still(d) && !queued && !d.Updated.Before(pull.Since) && (since.IsZero() || d.Updated.Before(since)) {
			since = d.Updated
		}
	}
	return since
}
