package kubelet

import (
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
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers, evidence.Pulls},
	Partly: []evidence.Source{evidence.Kubelet, evidence.NodeObject},
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
		Evidence: []string{
			"The kubelet has reported the pull in an Event. Since then it has reported nothing about that container, nor that it stops " +
				"a container.",
			"The kubelet has run since then, and reaches the API server.",
			"The pod's sandbox runs, the container is not created yet, and nothing else of the start is in progress. Containers before " +
				"it may run.",
			"The pull has lasted for " + fact.Download.String() + ", and containerd has stored nothing of any image in that time. " +
				"The node's clock was not set in that time, either.",
			"containerd stores a MiB at a time, so a download of less than 12 KiB in a second looks the same.",
			"containerd has at least one incomplete download, and has its file open (ingest in its content store). It has no part of an " +
				"image open (blobs), as it would to unpack one.",
			"No thread of containerd is blocked, as by a disk.",
			"If containerd's open files cannot be read: a download with data counts if it moved less than five minutes before the pull " +
				"began, or since. One without data does not count if it is older than the pull and older than nodeagent's connection to " +
				"containerd.",
			"It is inferred. Events can be written by others. Which download is for which image is not known: the pod may wait for " +
				"something else, such as the kubelet's credential provider, while another image's download hangs.",
			"Not found: a pull that hangs before its first download (the registry does not send the manifest) or beside a download that " +
				"moves, and a pull for a container that has run before.",
		},
		Remedy: "On the node: {curl} shows whether the registry responds (HTTP 401 is fine). Do the same for a mirror. " +
			"Check its load, a proxy or mirror in between, and the node's network. The kubelet stops the pod when the pull ends or fails; " +
			"the pull has no time limit of the kubelet's own. " +
			"journalctl -u containerd shows which images containerd gives up. " +
			"If the registry cannot be repaired, on the node: systemctl restart kubelet, which ends no container. The restarted kubelet stops the pod. " +
			"For the future: serializeImagePulls: false in the kubelet's configuration keeps one pull from holding up the others.",
		Danger: "Do not remove anything below /var/lib/containerd: it holds the images of all pods. " +
			"A force delete does not end the pull, and the kubelet may still create the container afterwards.",
	},
	Check: func(p *fact.View) diagnose.Result {
		pull, download := hangingPull(p)
		if pull == nil {
			if since := stuckBesideOthers(p); !since.IsZero() {
				return diagnose.Undecided(diagnose.Waits(since, diagnose.LastWait, diagnose.Slow))
			}
			return diagnose.Undecided(diagnose.Waits(pullMoved(p), fact.Download.Pressed, diagnose.Moves))
		}
		f := diagnose.Finding{Container: pull.Container, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
			Image: pull.Image, Since: pull.Since, Until: download.Updated,
		}}
		if pull.Container == "" {
			f.Variants = append(f.Variants, forVolume)
		}
		if download.Started.Before(pull.Since.Add(-eventsExact)) {
			f.Variants = append(f.Variants, another)
		}
		return diagnose.Found(f)
	},
}

// hangingPull returns the pull of an image that the kubelet waits for, and the incomplete download that was updated last, when no download moves;
// nil when one moves, or that is not known.
func hangingPull(p *fact.View) (*evidence.Pull, *evidence.Download) {
	n := &p.Node
	pull, patience, read := fact.Pull(p), fact.Download.With(p), n.Time
	// If the clock was set lately, what is new may look old.
	if pull == nil || read.Sub(pull.Since) < patience || !n.ClockSet.IsZero() && read.Sub(n.ClockSet) < patience ||
		storesBlocked(n) {
		return nil, nil
	}
	var last *evidence.Download
	complete := 0
	for i := range n.Containerd.Downloads {
		switch d := &n.Containerd.Downloads[i]; {
		case d.Total > 0 && d.Offset >= d.Total:
			if complete++; read.Sub(d.Updated) < fact.DownloadGivenUp {
				return nil, nil // it is being written to the disk
			}
		case d.Updated.After(read.Add(fact.ClockSkew)): // by another clock
		case last == nil || d.Updated.After(last.Updated):
			last = d
		}
	}
	if last == nil || read.Sub(last.Updated) < patience {
		return nil, nil
	}
	if c := n.Containerd.Content; c != nil {
		// A download that is not open was left by a pull that has ended. A part of an image that is read is being unpacked, and may be the pod's.
		if c.Ingests <= complete || c.Blobs > 0 {
			return nil, nil
		}
		return pull, last
	}
	// A download without data that is older than the connection to containerd may be left from before a restart of containerd: its lease is kept for
	// a day.
	if last.Offset == 0 && last.Updated.Before(pull.Since) && last.Updated.Before(n.Containerd.ConnectedSince) ||
		last.Offset > 0 && pull.Since.Sub(last.Updated) >= fact.DownloadGivenUp {
		return nil, nil
	}
	return pull, last
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

// storesBlocked reports whether a thread of containerd is blocked. The disk may be what does not take the data.
func storesBlocked(n *evidence.Node) bool {
	return slices.ContainsFunc(n.Blocked, func(t evidence.Task) bool { return t.Owner == "containerd" })
}
