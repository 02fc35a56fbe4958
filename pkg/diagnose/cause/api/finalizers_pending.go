package api

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// controllerLatency is how long a controller may take to remove its finalizer, once
// nothing else is left of the pod, before the cause is reported. Controllers collect
// their work for some seconds, and retry later what failed.
const controllerLatency = 15 * time.Second

// batchLatency is that of the controllers that have many pods at once to count: the Job controller and Kueue. kube-controller-manager
// sends 20 requests a second by default (clientConnection.qps), and a Job may have thousands of pods.
const batchLatency = 2 * time.Minute

// The variants of FinalizersPending: which controller's finalizer it is, or that
// there are several.
const (
	jobTracking        = "JobTracking"
	foregroundDeletion = "ForegroundDeletion"
	argoWorkflows      = "ArgoWorkflows"
	kueue              = "Kueue"
	actionsRunner      = "ActionsRunner"
	juiceFS            = "JuiceFS"
	several            = "Several"
	// directoriesUnread may come with one of the others: the pod's volume directories could not be read.
	directoriesUnread = "DirectoriesUnread"
)

// knownFinalizers are the families of finalizers that belong to one known controller:
// in Kubernetes JobTrackingFinalizer (k8s.io/api/batch/v1) and
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

// FinalizersPending is a pod whose API object is all that is left of it.
//
// No node sees who refuses the removal of a finalizer: the API server answers the controller, which logs it. So a
// refusal has no cause of its own. What has refused nodeagent's own update of the same pod's status is named as what
// may refuse the removal too.
var FinalizersPending = &diagnose.Rule{
	Cause:  "FinalizersPending",
	Phases: []diagnose.Phase{diagnose.Finalizers},
	Doc: diagnose.Doc{
		Layer:   "api",
		Title:   "a finalizer keeps the API object; nothing else is left",
		Who:     diagnose.ByController,
		Message: "{finalizers}{by} {keeps} the API object; {owner} {has} not removed {it}. {nothing}",
		Seen: []string{
			"The node has had no mount, {directory}cgroup or running container of the pod for at least 15 seconds",
			"The client that set it calls itself {manager}",
			"{manager} last changed the pod at {changed}",
			"The API server does not accept nodeagent's own update of this pod's status, because of {refuser}; it may not accept the removal either",
		},
		First: "{first}",
		Avoid: "removing a finalizer by hand ({harm})",
		Phrases: map[string][]diagnose.Choice{
			"owner": {
				{Variant: jobTracking, Text: "the Job controller"},
				{Variant: foregroundDeletion, Text: "the garbage collector"},
				{Variant: argoWorkflows, Text: "the workflow-controller of Argo Workflows"},
				{Variant: kueue, Text: "kueue-controller-manager"},
				{Variant: actionsRunner, Text: "actions-runner-controller"},
				{Variant: juiceFS, Text: "the JuiceFS CSI driver"},
				{Variant: several, Text: "their controllers"},
				{Text: "the controller of {domain}"},
			},
			// The controller of a known finalizer is named anyway.
			"by": {
				{Variant: jobTracking, Text: ""}, {Variant: foregroundDeletion, Text: ""}, {Variant: argoWorkflows, Text: ""},
				{Variant: kueue, Text: ""}, {Variant: actionsRunner, Text: ""}, {Variant: juiceFS, Text: ""},
				{Text: " (set by {manager})"}, {Text: ""},
			},
			"nothing": {
				{Variant: directoriesUnread, Text: "No process, mount or cgroup of the pod is left on the node; its volume directories could not be read"},
				{Text: "Nothing of the pod is left on the node"},
			},
			"directory": {{Variant: directoriesUnread, Text: ""}, {Text: "volume directory, "}},
			"keeps":     {{Variant: several, Text: "keep"}, {Text: "keeps"}},
			"has":       {{Variant: several, Text: "have"}, {Text: "has"}},
			"it":        {{Variant: several, Text: "them"}, {Text: "it"}},
			"run":       {{Variant: several, Text: "run"}, {Text: "runs"}},
			"log":       {{Variant: several, Text: "their logs"}, {Text: "its log"}},
			"named":     {{Text: "pod {podname}"}, {Text: "this pod"}},
			"first": {
				{Variant: diagnose.Uncalled, Text: "ask the owner of {refuser} to get its pods Ready: the API server cannot call it, " +
					"and may not accept the removal until then"},
				{Text: "search the log of {owner} for {refuser} (it rejects nodeagent's update). " +
					"If found: ask its owner to allow the removal"},
				{Variant: jobTracking, Text: "ask the cluster admin to search kube-controller-manager's log for 'tracking finalizer'. If no line: use Fix"},
				{Variant: foregroundDeletion, Text: "in {podnamespace}, find the object whose ownerReferences name this pod (blockOwnerDeletion). " +
					"Ask its owner. If none: ask the cluster admin"},
				{Variant: argoWorkflows, Text: "search the workflow-controller's log for {named}. " +
					"If the Workflow is gone (kubectl -n {podnamespace} get workflows): use Fix"},
				{Variant: kueue, Text: "kubectl -n {podnamespace} get workloads -o yaml: if WaitingForReplacementPods is True, create that pod. " +
					"If not: search Kueue's log"},
				{Variant: actionsRunner, Text: "search the log of actions-runner-controller for {named} (token, rate limit, busy runner). " +
					"If no line: see whether its pod is Ready"},
				{Variant: juiceFS, Text: "search the log of this node's juicefs-csi-node pod for {named} (cluster rights). " +
					"If no line or no pod: ask the driver's owner"},
				{Text: "search the log of {owner} for {named}. If uninstalled: ask the former owner, then use Fix"},
			},
			"harm": {
				{Variant: jobTracking, Text: "the Job loses count, reruns the pod"},
				{Variant: foregroundDeletion, Text: "deletes the dependents"},
				{Variant: argoWorkflows, Text: "loses this step's result"},
				{Variant: kueue, Text: "Kueue loses count of its quota"},
				{Variant: actionsRunner, Text: "GitHub may give the runner a job"},
				{Variant: juiceFS, Text: "leaves a dead mount"},
				{Text: "skips the cleanup"},
			},
			"ask": {
				{Text: "Test whether the removal is rejected, which changes nothing: " +
					`kubectl patch --dry-run=server -n {podnamespace} pod {podname} --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`},
				{Text: "Test whether the removal is rejected, which changes nothing, with a kubectl patch of the pod and --dry-run=server"},
			},
		},
		Meaning: "The kubelet has finished its work. " +
			"The API server keeps the object until each finalizer is removed by the controller that set it, and at least one is left. " +
			"The API server may reject the controller's update: only the controller's log shows that, or a try with --dry-run=server. " +
			"A controller can be rejected where an administrator is not: with --as=system:serviceaccount:NAMESPACE:NAME, kubectl sends its request as the controller. " +
			"If the answer is that the pod is invalid, a webhook or an admission plugin changes a field that must not change.",
		Remedy: "Check that {owner} {run}, and look for {named} in {log}. {ask}. " +
			"A controller can be rejected where an administrator is not: only its own log shows the error. " +
			"If the controller was removed for good, and its owner confirms that the cleanup is done, remove only this finalizer: " +
			"kubectl edit -n {podnamespace} pod {podname}.",
		Danger: "Removing a finalizer by hand skips the cleanup that it stands for: leaked addresses, load balancer targets or counts.",
		Families: []diagnose.Family{
			{
				Name:    jobTracking,
				Meaning: "batch.kubernetes.io/job-tracking: the Job controller has not counted the pod yet.",
				Remedy: "Check that kube-controller-manager runs and that the pod's Job still exists: kubectl -n {podnamespace} get jobs. The " +
					"Job controller removes {finalizers} after it has counted the pod. " +
					"Kubernetes 1.35 to 1.37 may give up after an error (kubernetes#141329): a restarted kube-controller-manager checks all pods again. {ask}.",
				Danger: "If you remove the finalizer by hand, the Job loses count of the pod and runs it again.",
			},
			{
				Name:    foregroundDeletion,
				Meaning: "foregroundDeletion or orphan: the garbage collector waits for the pod's dependents.",
				Remedy: "Check that kube-controller-manager runs. Find the objects that name this pod as an owner with blockOwnerDeletion. " +
					"For foregroundDeletion the garbage collector deletes them first; for orphan it removes their owner reference. {ask}.",
				Danger: "If you remove the finalizer by hand, the garbage collector deletes the dependents after the pod. That includes those that orphan was to keep.",
			},
			{
				Name: argoWorkflows,
				Meaning: "workflows.argoproj.io/status: the workflow-controller of Argo Workflows has not captured how the pod ended. It sets " +
					"this finalizer with ARGO_POD_STATUS_CAPTURE_FINALIZER.",
				Remedy: "Check that the workflow-controller runs, and look for {named} in its log. Check that the pod's Workflow still exists: " +
					"kubectl -n {podnamespace} get workflows. " +
					"If the Workflow is gone, no controller captures the status. {ask}.",
				Danger: "If you remove the finalizer by hand, the Workflow loses the result of this step.",
			},
			{
				Name:    kueue,
				Meaning: "kueue.x-k8s.io/managed: Kueue has not noted that the pod has ended. It keeps the pods of a group until the group has ended or is replaced.",
				Remedy: "Check that kueue-controller-manager runs, and read the pod's Workload: kubectl -n {podnamespace} get workloads. A " +
					"group that waits for a replacement pod keeps its failed pods. {ask}.",
				Danger: "If you remove the finalizer by hand, Kueue loses count of the pod and of the quota it used.",
			},
			{
				Name:    actionsRunner,
				Meaning: "actions.summerwind.dev/runner-pod: actions-runner-controller has not removed the runner's registration from GitHub.",
				Remedy: "Look for {named} in the log of actions-runner-controller. Most often GitHub rejects its token, rate-limits its " +
					"requests, or still reports the runner as busy. {ask}.",
				Danger: "If you remove the finalizer by hand, the runner stays registered with GitHub, which may still assign it a job.",
			},
			{
				Name:    juiceFS,
				Who:     diagnose.ByStorage,
				Meaning: "juicefs.com/finalizer: the node plugin of the JuiceFS CSI driver has not cleaned up after this mount pod.",
				Remedy: "Check that the driver's pod on this node (juicefs-csi-node) runs, and look for {named} in its log. The driver " +
					"removes {finalizers}, and re-creates the mount while volumes use it. {ask}.",
				Danger: "If you remove the finalizer by hand, a dead mount stays on the node for the pods that use the volume.",
			},
		},
	},
	By: diagnose.By[diagnose.ThePod]{
		Facts: []diagnose.Fact[diagnose.ThePod]{
			{
				Says: "metadata.finalizers is not empty, status.phase is terminal, and metadata.deletionGracePeriodSeconds is 0.",
				Pod:  diagnose.IfPod(hasFinalizers),
			},
			// The kubelet deletes with grace period 0 when the pod's directories are gone (SyncTerminatedPod, pkg/kubelet/kubelet.go).
			// A force delete does that too, but directories that are left then do not keep the object either.
			{
				Says: "The node has no process, mount, volume directory or cgroup of the pod. Finalizers never delay the kubelet.",
				Pod:  diagnose.IfPod(nothingOnNode), From: []evidence.Source{evidence.Mounts, evidence.Cgroups},
			},
			{Says: "No container of the pod runs.", Pod: diagnose.IfPod(noneRuns), From: []evidence.Source{evidence.Containers}},
			{
				Says: "This has been so for fifteen seconds. " +
					"For two minutes, if a finalizer is that of the Job controller or of Kueue, which count many pods together.",
				Pod: controllersHadTime,
			},
			{Says: "It is inferred if the volume directories could not be read."},
			{Says: "A single finalizer was set by the manager in metadata.managedFields: a name that any client may give itself."},
			{Says: "If something has rejected nodeagent's own update of the pod's status since only the finalizer was left, it is named. " +
				"Many rules cover all updates of pods, but this one may not check those of the controller."},
			{Says: "The node does not see how the API server answers a controller."},
		},
		Tell: diagnose.OfPod(tellFinalizers),
	},
}

func hasFinalizers(p *fact.View) bool { return len(p.Finalizers) > 0 }

func nothingOnNode(p *fact.View) bool {
	return len(p.Tasks)+len(p.Leftovers)+len(p.Plugins)+len(p.Volumes)+len(p.Devices) == 0
}

func noneRuns(p *fact.View) bool {
	return !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.State == evidence.StateRunning || c.State == evidence.StateUnknown
	})
}

// controllersHadTime answers whether the controllers have had their time since the first reading that showed only the finalizers: until then,
// the node had work left.
func controllersHadTime(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.UnchangedSince, latency(p.Finalizers), diagnose.Slow)
}

func tellFinalizers(p *fact.View) diagnose.Finding {
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
	if fact.Missing(p, evidence.Volumes) {
		f.Confidence, f.Variants = diagnose.Inferred, append(f.Variants, directoriesUnread)
	}
	if r := fact.OwnRefusal(p); r != nil && r.At.After(p.UnchangedSince) {
		f.RefusedBy(r)
	}
	return f
}

// latency is for how long the controllers of some finalizers may take.
func latency(finalizers []string) time.Duration {
	for _, f := range finalizers {
		if known := knownFinalizers[f]; known == jobTracking || known == kueue {
			return batchLatency
		}
	}
	return controllerLatency
}
