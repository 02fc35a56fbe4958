package kubelet

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// another is the variant of ImagePullHanging in which the download that does not move had begun before
// the pod's pull.
const another = "Another"

// forVolume is the variant of ImagePullHanging in which the image is for a volume.
const forVolume = "ForVolume"

// eventsExact is how exact the times of the kubelet's Events are.
const eventsExact = time.Second

// ImagePullHanging is a pull of an image that does not move: the pod is deleted meanwhile, and the
// kubelet completes the pull before it turns to the deletion.
var ImagePullHanging = &diagnose.Rule{
	Cause:  "ImagePullHanging",
	Phases: []diagnose.Phase{diagnose.Startup},
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers, evidence.Pulls},
	Doc: diagnose.Doc{
		Layer: "kubelet",
		Title: "the pull of an image does not move",
		Message: "{what} since {since}, and containerd has stored nothing of any download since {until}{whose}. " +
			"The kubelet completes the pull before it stops the pod, without a time limit of its own",
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: forVolume, Text: "the kubelet has been pulling the image {image} for a volume"},
				{Variant: forVolume, Text: "the kubelet has been pulling the image for a volume"},
				{Text: "container {container}: the kubelet has been pulling its image {image}"},
				{Text: "container {container}: the kubelet has been pulling its image"},
			},
			"whose": {
				{Variant: another, Text: ". The download that does not move had begun before: this pull probably waits for its turn, for another pod's pull of the same image, or takes up an earlier try"},
				{Text: ""},
			},
		},
		Meaning: "The kubelet completes the start of a container before it turns to the deletion, and the pull of its image is part of that. The deletion does not cancel it. " +
			"containerd gives a pull up of which data came and nothing more for five minutes (image_pull_progress_timeout); the pod then terminates. " +
			"A pull of which not even the first MiB of a layer has come is not given up by containerd 2.4, unless use_local_image_pull is set. It may hang without end. " +
			"With serializeImagePulls, which is the default, the kubelet pulls one image after the other: " +
			"a pod then also waits for the pulls of other pods before it.",
		Evidence: "The kubelet has told of the pull in an Event, and has told nothing of that container since, nor that it stops one. It has run since then, and gets through to the API server. " +
			"The pod's sandbox runs, the container is yet to be created, and nothing else of the start is under way; containers before it may run. " +
			"For " + fact.Download.String() + ", the pull has lasted and containerd has stored nothing of any image, nor has the node's clock been set for that long. " +
			"containerd has at least one download that is not complete, and has its file open (ingest in its content store), but none of the parts of images that it has (blobs), as it would to unpack one; and none of its threads is blocked, as by a disk. " +
			"It stores a MiB at a time: less than 12 KiB in a second look the same. " +
			"It is inferred: Events can be written by others, and which download is for which image is not known: the pod may wait for something else, as for the kubelet's credential provider, while the download of another image hangs. " +
			"Where containerd's open files cannot be read, a download counts of which nothing has come, unless it is from before the pull and before nodeagent's connection to containerd, or one which moved less than five minutes before the pull began, or since. " +
			"A pull that hangs before its first download, as one whose registry does not send the manifest, is not found. " +
			"Nor is one that hangs beside another that moves, or of a container that has run before.",
		Remedy: "Find out why the registry does not send: its load, a proxy or a mirror in between, the node's network. " +
			"The pod terminates when the pull ends or fails. Without the registry: restart the kubelet on the node (systemctl restart kubelet), which ends no container; the new one stops the pod. " +
			"journalctl -u containerd shows which images it gives up. " +
			"serializeImagePulls: false in the kubelet's configuration keeps one pull from holding up the others.",
		Danger: "Do not remove anything below /var/lib/containerd. A force delete does not end the pull, and the kubelet may still create the container when it has.",
	},
	Check: func(p *fact.View) diagnose.Result {
		pull, download := fact.HangingPull(p)
		if pull == nil {
			if since := fact.StuckBesideOthers(p); !since.IsZero() {
				return diagnose.Undecided(diagnose.Waits(since, fact.Retries+fact.Download.Pressed, diagnose.Slow))
			}
			return diagnose.Undecided(diagnose.Waits(fact.PullMoved(p), fact.Download.Pressed, diagnose.Moves))
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
