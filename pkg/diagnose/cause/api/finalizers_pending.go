package api

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
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
	argoWorkflows      = "ArgoWorkflows"
	kueue              = "Kueue"
	actionsRunner      = "ActionsRunner"
	juiceFS            = "JuiceFS"
	several            = "Several"
)

// knownFinalizers are the families by the finalizer, where that is known to be of one
// controller: in Kubernetes JobTrackingFinalizer (k8s.io/api/batch/v1) and
// FinalizerDeleteDependents, FinalizerOrphanDependents (apimachinery), FinalizerPodStatus of
// Argo Workflows, PodFinalizer of Kueue, runnerPodFinalizerName of
// actions-runner-controller, Finalizer of the CSI driver of JuiceFS.
var knownFinalizers = map[string]string{
	"batch.kubernetes.io/job-tracking":  jobTracking,
	"foregroundDeletion":                foregroundDeletion,
	"orphan":                            foregroundDeletion,
	"workflows.argoproj.io/status":      argoWorkflows,
	"kueue.x-k8s.io/managed":            kueue,
	"actions.summerwind.dev/runner-pod": actionsRunner,
	"juicefs.com/finalizer":             juiceFS,
}

// FinalizersPending is a pod of which only the API object is left.
var FinalizersPending = &diagnose.Rule{
	Cause:  "FinalizersPending",
	Phases: []diagnose.Phase{diagnose.Finalizers},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Cgroups, evidence.Containers, evidence.Volumes},
	Doc: diagnose.Doc{
		Layer:   "api",
		Title:   "only the API object is left, because of a finalizer",
		Message: "nothing of the pod is left on the node; the API object stays because of {finalizers}, which {owner} {has} to remove{setter}{refuses}",
		Phrases: map[string][]diagnose.Choice{
			"setter": {
				{Text: ". The client that put it there calls itself {manager} (its last change of the pod: {changed})"},
				{Text: ". The client that put it there calls itself {manager}"}, {Text: ""},
			},
			"owner": {
				{Variant: jobTracking, Text: "the Job controller"},
				{Variant: foregroundDeletion, Text: "the garbage collector"},
				{Variant: argoWorkflows, Text: "the workflow-controller of Argo Workflows"},
				{Variant: kueue, Text: "kueue-controller-manager"},
				{Variant: actionsRunner, Text: "actions-runner-controller"},
				{Variant: juiceFS, Text: "the JuiceFS CSI driver"},
				{Variant: several, Text: "their controllers"},
				{Text: "the controller that owns {domain}"},
			},
			"has":  {{Variant: several, Text: "have"}, {Text: "has"}},
			"does": {{Variant: several, Text: "do"}, {Text: "does"}},
			"look": {{Variant: several, Text: "are they running, do their logs name this pod"}, {Text: "is it running, does its log name this pod"}},
			"refuses": {
				{Variant: diagnose.Uncalled, Text: ". The API server cannot call {refuser}, and therefore does not take nodeagent's own update of this pod's status. It may not take the removal either"},
				{Text: ". nodeagent's own update of this pod's status is refused by {refuser}, which may refuse the removal as well"},
				{Text: ""},
			},
			"ask": {
				{Text: "Ask, without effect, whether the removal is refused: " +
					`kubectl patch --dry-run=server -n {podnamespace} pod {podname} --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`},
				{Text: "Ask, without effect, whether the removal is refused, by a kubectl patch of the pod with --dry-run=server"},
			},
		},
		Meaning: "The kubelet has finished its work. " +
			"The API server keeps the object until every finalizer has been removed by the controller that put it there, and one has not been. " +
			"The controller's update may be refused, which only its own log tells, and a try with --dry-run=server. " +
			"A controller may be refused what an administrator is not: kubectl asks as it does with --as=system:serviceaccount:NAMESPACE:NAME. " +
			"The answer that the pod is invalid comes of a webhook, or an admission plugin, that changes what may not be changed.",
		Evidence: "metadata.finalizers is not empty, status.phase is terminal, deletionGracePeriodSeconds is 0, and the node has had no mount, no directory of a volume, no cgroup and no running container of the pod for fifteen seconds. " +
			"With anything left on the node a finalizer is not what the pod waits for: finalizers never delay the kubelet. " +
			"Who put a single finalizer there is what metadata.managedFields says: a name that any client may give itself. " +
			"What a controller is answered nobody on the node sees. What has refused nodeagent's own update of the pod's status since only the finalizer is left is named, because many rules are about all updates of pods: " +
			"it need not look at the controller's.",
		Remedy: "Find why {owner} {does} not: {look}? {ask}.",
		Danger: "Removing a finalizer by hand skips the clean-up it stands for: leaked addresses, load balancer targets or counts.",
		Families: []diagnose.Family{
			{
				Name:    jobTracking,
				Meaning: "batch.kubernetes.io/job-tracking: the Job controller has not counted the pod yet.",
				Remedy: "See whether kube-controller-manager runs and whether the pod's Job still exists; the Job controller removes {finalizers} when it has counted the pod. " +
					"Some versions give up after an error (kubernetes#141329, of 1.35 to 1.37): one that is started anew looks at all pods again. {ask}.",
				Danger: "Removing the finalizer by hand makes the Job lose count of the pod, and run it again.",
			},
			{
				Name:    foregroundDeletion,
				Meaning: "foregroundDeletion or orphan: the garbage collector waits for the pod's dependents.",
				Remedy:  "See whether kube-controller-manager runs, and which objects name this pod as an owner with blockOwnerDeletion: of foregroundDeletion the garbage collector deletes them first, of orphan it lets go of them. {ask}.",
				Danger:  "With the finalizer removed by hand the garbage collector deletes the dependents when the pod is gone, of orphan too, which was to keep them.",
			},
			{
				Name:    argoWorkflows,
				Meaning: "workflows.argoproj.io/status: the workflow-controller of Argo Workflows has not captured how the pod ended. It sets this finalizer with ARGO_POD_STATUS_CAPTURE_FINALIZER.",
				Remedy:  "See whether the workflow-controller runs, whether its log names this pod, and whether the pod's Workflow still exists: of one that is gone nobody captures the status. {ask}.",
				Danger:  "Removing the finalizer by hand makes the Workflow lose the result of this step.",
			},
			{
				Name:    kueue,
				Meaning: "kueue.x-k8s.io/managed: Kueue has not taken note of the pod's end. It keeps the pods of a group until the group has ended or is replaced.",
				Remedy:  "See whether kueue-controller-manager runs, and what the pod's Workload says (kubectl get workloads in its namespace). A group that waits for a replacement pod keeps its failed ones. {ask}.",
				Danger:  "Removing the finalizer by hand makes Kueue lose count of the pod and of the quota that it used.",
			},
			{
				Name:    actionsRunner,
				Meaning: "actions.summerwind.dev/runner-pod: actions-runner-controller has not removed the runner's registration from GitHub.",
				Remedy:  "Read the log of actions-runner-controller for this pod: most often GitHub refuses its token, limits its requests, or still takes the runner for busy. {ask}.",
				Danger:  "Removing the finalizer by hand leaves the runner registered with GitHub, which may still give it a job.",
			},
			{
				Name:    juiceFS,
				Meaning: "juicefs.com/finalizer: the node plugin of the JuiceFS CSI driver has not cleaned up after this mount pod.",
				Remedy:  "See whether the driver's pod on this node (juicefs-csi-node) runs, and whether its log names this pod: it removes {finalizers}, and makes the mount anew while volumes use it. {ask}.",
				Danger:  "Removing the finalizer by hand leaves a dead mount on the node for the pods that use the volume.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		// Until the first reading that showed only the finalizer, the node was at work.
		if len(p.Finalizers) == 0 || p.UnchangedSince.IsZero() || p.Time.Sub(p.UnchangedSince) < controllerLatency ||
			len(p.Tasks)+len(p.Leftovers)+len(p.Plugins)+len(p.Volumes)+len(p.Devices) > 0 {
			return diagnose.Result{}
		}
		for _, c := range p.Containers {
			if c.State == evidence.StateRunning || c.State == evidence.StateUnknown {
				return diagnose.Result{}
			}
		}
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Pod: p.Namespace + "/" + p.Name, Finalizers: p.Finalizers}}
		if len(p.Finalizers) > 1 {
			f.Variants = []string{several}
		} else {
			f.Family = knownFinalizers[p.Finalizers[0]]
			for _, s := range p.FinalizerSetters {
				if s.Finalizer == p.Finalizers[0] {
					f.Objects.Manager, f.Objects.Changed = s.Manager, s.Changed
				}
			}
		}
		if r := fact.OwnRefusal(p); r != nil && r.At.After(p.UnchangedSince) {
			f.RefusedBy(r)
		}
		return diagnose.Found(f)
	},
}
