package api

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// controllerLatency is how long a controller may take to remove its finalizer, once
// nothing else is left of the pod, before the pod is said to wait for it. Controllers
// collect what is to be done for a second or some, and try again later what failed.
const controllerLatency = 15 * time.Second

// The variants of FinalizersPending: whose finalizer it is, or that there are
// several.
const (
	jobTracking        = "JobTracking"
	foregroundDeletion = "ForegroundDeletion"
	several            = "Several"
)

// FinalizersPending is a pod of which only the API object is left.
var FinalizersPending = &diagnose.Rule{
	Cause:  "FinalizersPending",
	Phases: []diagnose.Phase{diagnose.Finalizers},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Cgroups, evidence.Containers, evidence.Volumes},
	Doc: diagnose.Doc{
		Layer:   "api",
		Title:   "only the API object is left, because of a finalizer",
		Message: "nothing of the pod is left on the node; the API object stays because of {finalizers}, which {owner} {has} to remove",
		Phrases: map[string][]diagnose.Choice{
			"owner": {
				{Variant: jobTracking, Text: "the Job controller"},
				{Variant: foregroundDeletion, Text: "the garbage collector"},
				{Variant: several, Text: "their controllers"},
				{Text: "the controller that owns {domain}"},
			},
			"has":   {{Variant: several, Text: "have"}, {Text: "has"}},
			"does":  {{Variant: several, Text: "do"}, {Text: "does"}},
			"whose": {{Variant: several, Text: "their"}, {Text: "its"}},
			"look":  {{Variant: several, Text: "are they running, do their logs name this pod"}, {Text: "is it running, does its log name this pod"}},
		},
		Meaning: "The kubelet has finished its work. " +
			"The API server keeps the object until every finalizer has been removed by the controller that put it there, and one has not been.",
		Evidence: "metadata.finalizers is not empty, status.phase is terminal, deletionGracePeriodSeconds is 0, and the node has had no mount, no directory of a volume, no cgroup and no running container of the pod for fifteen seconds. " +
			"With anything left on the node a finalizer is not what the pod waits for: finalizers never delay the kubelet.",
		Remedy: "Find why {owner} {does} not remove {finalizers}: {look}, does an admission webhook refuse {whose} update?",
		Danger: "Removing a finalizer by hand skips the clean-up it stands for: leaked addresses, load balancer targets or counts.",
		Families: []diagnose.Family{
			{
				Name:    jobTracking,
				Meaning: "batch.kubernetes.io/job-tracking: the Job controller has not counted the pod yet.",
				Remedy:  "See whether kube-controller-manager runs and whether the pod's Job still exists; the Job controller removes {finalizers} when it has counted the pod.",
				Danger:  "Removing the finalizer by hand makes the Job lose count of the pod, and run it again.",
			},
			{
				Name:    foregroundDeletion,
				Meaning: "foregroundDeletion or orphan: the garbage collector waits for the pod's dependents.",
				Remedy:  "See whether kube-controller-manager runs, and which objects name this pod as an owner with blockOwnerDeletion: the garbage collector deletes them first.",
				Danger:  "Removing the finalizer by hand leaves the dependents behind.",
			},
		},
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		// Until the first reading that showed only the finalizer, the node was at work.
		if p.UnchangedSince.IsZero() || p.Time.Sub(p.UnchangedSince) < controllerLatency || len(p.Tasks) > 0 || len(p.Volumes) > 0 {
			return nil
		}
		for _, c := range p.Containers {
			if c.State == evidence.StateRunning || c.State == evidence.StateUnknown {
				return nil
			}
		}
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Finalizers: p.Finalizers}}
		switch {
		case len(p.Finalizers) > 1:
			f.Variants = []string{several}
		case p.Finalizers[0] == "batch.kubernetes.io/job-tracking":
			f.Family = jobTracking
		case p.Finalizers[0] == "foregroundDeletion", p.Finalizers[0] == "orphan":
			f.Family = foregroundDeletion
		}
		return []diagnose.Finding{f}
	},
}
