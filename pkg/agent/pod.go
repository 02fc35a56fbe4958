package agent

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// Trim drops from a pod all that the agent does not look at, before it goes
// into the cache: memory, and privacy. It is a cache.TransformFunc; objects of
// other types pass through.
func Trim(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	out := &corev1.Pod{
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,

			NodeName:              short(p.Spec.NodeName),
			HostPID:               p.Spec.HostPID,
			HostNetwork:           p.Spec.HostNetwork,
			ShareProcessNamespace: p.Spec.ShareProcessNamespace,
		},
		Status: corev1.PodStatus{Phase: short(p.Status.Phase), ObservedGeneration: p.Status.ObservedGeneration},
	}
	out.Name, out.Namespace, out.UID = short(p.Name), short(p.Namespace), short(p.UID)
	out.ResourceVersion, out.Generation = short(p.ResourceVersion), p.Generation
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = p.DeletionTimestamp, p.DeletionGracePeriodSeconds
	for i := range p.Spec.Volumes {
		if name := driverDir(&p.Spec.Volumes[i]); name != "" {
			out.Spec.Volumes = append(out.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path.Join("plugins", name)}}})
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady {
					out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: short(c.Status)})
				}
			}
			break
		}
	}
	if uid, mirror := runtimeUID(p); mirror {
		out.Annotations = map[string]string{verdict.MirrorAnnotation: "", verdict.HashAnnotation: uid}
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		looked := c.Type == verdict.ConditionType || c.Type == corev1.PodReady && p.Spec.HostNetwork
		if looked && len(out.Status.Conditions) < fewConditions {
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{
				Type: short(c.Type), Status: short(c.Status), Reason: short(c.Reason), Message: cut(c.Message, maxCondition),
				ObservedGeneration: c.ObservedGeneration, LastProbeTime: c.LastProbeTime, LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	out.Spec.ResourceClaims = make([]corev1.PodResourceClaim, len(kept(p.Spec.ResourceClaims))) // they are counted
	if p.Status.ExtendedResourceClaimStatus != nil {
		out.Status.ExtendedResourceClaimStatus = new(corev1.PodExtendedResourceClaimStatus)
	}
	if claims(p) > 0 {
		out.Status.ContainerStatuses = trimStatuses(p.Status.ContainerStatuses)
	}
	if p.DeletionTimestamp == nil {
		// Nothing else of a pod that is not asked to go is looked at.
		return out, nil
	}
	for _, f := range kept(p.Finalizers) {
		out.Finalizers = append(out.Finalizers, cut(f, maxFinalizer))
	}
	if i := controller(p); i >= 0 {
		// An owner of which something is longer than what the API server takes for a name is none.
		o, controls := &p.OwnerReferences[i], true
		kept := metav1.OwnerReference{APIVersion: short(o.APIVersion), Kind: short(o.Kind), Name: short(o.Name), UID: short(o.UID), Controller: &controls}
		if kept.APIVersion == o.APIVersion && kept.Kind == o.Kind && kept.Name == o.Name && kept.UID == o.UID {
			out.OwnerReferences = []metav1.OwnerReference{kept}
		}
		if hash, ok := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; ok {
			out.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: short(hash)}
		}
	}
	for _, v := range specified(p) {
		volume := corev1.Volume{Name: short(v.Name)}
		if claim := short(v.Claim); claim != "" {
			volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		}
		out.Spec.Volumes = append(out.Spec.Volumes, volume)
	}
	alone := !asksOtherwise(p)
	for i := range kept(p.Spec.Containers) {
		out.Spec.Containers = append(out.Spec.Containers, trimContainer(&p.Spec.Containers[i], alone))
	}
	for i := range kept(p.Spec.InitContainers) {
		out.Spec.InitContainers = append(out.Spec.InitContainers, trimContainer(&p.Spec.InitContainers[i], alone))
	}
	for _, v := range specified(p) {
		for _, at := range v.At {
			keepMount(out, v.Name, at)
		}
		if v.Block && len(out.Spec.Containers) > 0 {
			// That a container has it is enough, and said once.
			c := &out.Spec.Containers[0]
			c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: short(v.Name)})
		}
	}
	for i := range kept(p.Spec.EphemeralContainers) {
		out.Spec.EphemeralContainers = append(out.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: short(p.Spec.EphemeralContainers[i].Name)},
		})
	}
	out.Status.ContainerStatuses = trimStatuses(p.Status.ContainerStatuses)
	out.Status.InitContainerStatuses = trimStatuses(p.Status.InitContainerStatuses)
	out.Status.EphemeralContainerStatuses = trimStatuses(p.Status.EphemeralContainerStatuses)
	return out, nil
}

// mostKept bounds the finalizers, claims, and containers of a kind, that are kept of a pod: anybody may give it a hundred
// thousand, and hardly anybody more than ten.
const mostKept = 128

// Bounds of the strings that are kept of a pod, in bytes. The API server takes up to maxName for the name of an object, and
// maxFinalizer for a finalizer (IsQualifiedName, k8s.io/apimachinery/pkg/util/validation); maxCondition is what the agent writes
// itself. It bounds none of an owner's, a claim's, or a hook's program, and none of the status.
const (
	maxName      = 253
	maxFinalizer = 253 + 1 + 63
	maxCondition = condition.Max
)

// short returns a string that is to be kept; "" for one that is too long for a name. What was left out is not known: nothing has
// a part of it for its name.
func short[T ~string](s T) T { return cut(s, maxName) }

// cut is short for another length. The copy is not a part of the object that the API server sent.
func cut[T ~string](s T, most int) T {
	if len(s) > most {
		return ""
	}
	return T(strings.Clone(string(s)))
}

// fewConditions is more than there are of those that are looked at.
const fewConditions = 4

// kept returns those of a list that are kept.
func kept[T any](all []T) []T { return all[:min(len(all), mostKept)] }

func trimContainer(c *corev1.Container, alone bool) corev1.Container {
	out := corev1.Container{Name: short(c.Name)}
	if c.RestartPolicy != nil {
		policy := short(*c.RestartPolicy)
		out.RestartPolicy = &policy
	}
	if l := c.Lifecycle; l != nil && (l.PreStop != nil || l.PostStart != nil) {
		out.Lifecycle = &corev1.Lifecycle{PreStop: trimHook(l.PreStop, hookPort(c, l.PreStop, alone)), PostStart: trimHook(l.PostStart,
			hookPort(c, l.PostStart, alone))}
	}
	return out
}

// keepMount keeps where a container has a volume mounted.
func keepMount(p *corev1.Pod, volume string, at evidence.SpecMount) {
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			if c := &all[i]; c.Name == at.Container {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: short(volume), MountPath: cut(at.Path, maxPlace)})
			}
		}
	}
}

// acting returns a hook, nil for one that takes no time (Run, pkg/kubelet/lifecycle/handlers.go): a sleep of no seconds, as who overrides a default
// writes, and one that would open a port, which no kubelet does.
func acting(h *corev1.LifecycleHandler) *corev1.LifecycleHandler {
	if h == nil || h.TCPSocket != nil || h.Sleep != nil && h.Sleep.Seconds <= 0 {
		return nil
	}
	return h
}

// trimHook keeps that there is a hook, the program that it executes, whether that only sleeps, for how long the kubelet sleeps, and
// the port that it asks.
func trimHook(h *corev1.LifecycleHandler, port int) *corev1.LifecycleHandler {
	if h = acting(h); h == nil {
		return nil
	}
	out := &corev1.LifecycleHandler{}
	if name := short(hookProgram(h)); name != "" {
		out.Exec = &corev1.ExecAction{Command: []string{name}}
		if hookOnlySleeps(h) {
			out.Exec.Command = []string{name, "-c", "sleep 1"}
		}
	}
	if n := hookSleep(h); n != 0 {
		out.Sleep = &corev1.SleepAction{Seconds: n}
	}
	if port != 0 {
		out.HTTPGet = &corev1.HTTPGetAction{Port: intstr.FromInt(port)}
	}
	return out
}

// trimStatuses keeps how containers ended, and which run or wait to run.
func trimStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range kept(all) {
		s := corev1.ContainerStatus{Name: short(all[i].Name), ContainerID: short(all[i].ContainerID)}
		switch t := all[i].State.Terminated; {
		case t != nil:
			s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, Reason: short(t.Reason), StartedAt: t.StartedAt, FinishedAt: t.FinishedAt}
		case all[i].State.Running != nil:
			s.State.Running = new(corev1.ContainerStateRunning)
		case all[i].State.Waiting != nil:
			s.State.Waiting = new(corev1.ContainerStateWaiting)
			if w := all[i].State.Waiting; backedOff(w) {
				s.State.Waiting.Reason = w.Reason
			}
		default:
			continue
		}
		out = append(out, s)
	}
	return out
}

// oomKilled is containerd's reason for the end of a container in which the kernel
// has killed a process because memory ran out (internal/cri/server/helpers.go).
const oomKilled = "OOMKilled"

// exit returns how a container ended, nil while it has not.
func exit(statuses []corev1.ContainerStatus, name string) *evidence.Exit {
	for i := range statuses {
		if t := statuses[i].State.Terminated; t != nil && statuses[i].Name == name {
			return &evidence.Exit{Code: int(t.ExitCode), Started: t.StartedAt.Time, At: t.FinishedAt.Time, OutOfMemory: t.Reason == oomKilled}
		}
	}
	return nil
}

// waits reports whether the kubelet says of a container that it is yet to run.
func waits(statuses []corev1.ContainerStatus, name string) bool {
	return slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name && s.State.Waiting != nil })
}

// runs reports whether the kubelet says of a container that it runs.
func runs(statuses []corev1.ContainerStatus, name string) bool {
	return slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name && s.State.Running != nil })
}

// triedLater are the kubelet's reasons for a container that does not run of which it does nothing before it tries again,
// after ten seconds or more (pkg/kubelet/container/sync_result.go, pkg/kubelet/images/types.go,
// pkg/kubelet/kuberuntime/kuberuntime_container.go). A pull that has failed, ErrImagePull and what is like it, is not
// among them: that is written when the next try begins, which pulls again.
var triedLater = map[string]bool{
	"CrashLoopBackOff": true, "ImagePullBackOff": true,
	"ErrImageNeverPull": true, "InvalidImageName": true, "ImageInspectError": true,
	"CreateContainerConfigError": true, "PreCreateHookError": true, "CreateContainerError": true, "PreStartHookError": true, "RunContainerError": true,
}

// backedOff reports whether the kubelet waits before it tries again.
func backedOff(w *corev1.ContainerStateWaiting) bool { return w != nil && triedLater[w.Reason] }

// isBackedOff reports whether the kubelet says so of a container.
func isBackedOff(statuses []corev1.ContainerStatus, name string) bool {
	return slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name && backedOff(s.State.Waiting) })
}

// subject is the pod as a verdict needs it.
func subject(p *corev1.Pod) verdict.Subject {
	s := verdict.Subject{Kind: verdict.Pod, Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Generation: p.Generation}
	if uid, mirror := runtimeUID(p); mirror && uid != s.UID {
		s.EventUID = uid
	}
	if i := controller(p); i >= 0 {
		s.Owner = string(p.OwnerReferences[i].UID)
	}
	s.Workload = workload(p)
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == verdict.ConditionType {
			s.Condition = &verdict.Condition{
				Blocked: c.Status == corev1.ConditionTrue, Reason: c.Reason, Message: c.Message,
				Generation: c.ObservedGeneration, Since: c.LastTransitionTime.Time,
			}
		}
	}
	return s
}

// subject is the same, without a condition whose reason or advice the agent does not give: whoever may write
// the pod's status can write any. One with the cause that stands was written by this agent, or taken over.
func (a *Agent) subject(p *corev1.Pod) verdict.Subject {
	s := subject(p)
	c := s.Condition
	if c == nil {
		return s
	}
	if known := a.Cases.Get(s.UID); known != nil && c.Reason != "" && known.Standing().Cause == c.Reason {
		return s
	}
	m, _ := condition.Parse(c.Message)
	if a.Reasons != nil && !slices.Contains(a.Reasons, c.Reason) || a.Wrote != nil && !a.Wrote(p, c.Reason, m) {
		s.Condition = nil
	}
	return s
}

// workload returns what the pod belongs to. Whoever may create pods may name any owner: what is no kind or no name
// of an object counts as a pod without one.
func workload(p *corev1.Pod) verdict.Workload {
	i := controller(p)
	if i < 0 {
		return verdict.Workload{Name: p.Name, Type: "barepod"}
	}
	o := &p.OwnerReferences[i]
	switch {
	case o.Kind == "Node":
		return verdict.Workload{Name: p.Name, Type: "staticpod"}
	case len(validation.IsDNS1123Subdomain(o.Name)) > 0 || len(validation.IsDNS1035Label(strings.ToLower(o.Kind))) > 0:
		return verdict.Workload{Name: p.Name, Type: "barepod"}
	case o.Kind == "ReplicaSet":
		if name, ok := strings.CutSuffix(o.Name, "-"+p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]); ok && name != "" {
			return verdict.Workload{Name: name, Type: "deployment"}
		}
	}
	return verdict.Workload{Name: o.Name, Type: strings.ToLower(o.Kind)}
}

// controller returns which owner of the pod is its controller; -1 for none.
func controller(p *corev1.Pod) int {
	for i := range p.OwnerReferences {
		if is := p.OwnerReferences[i].Controller; is != nil && *is {
			return i
		}
	}
	return -1
}

// Ask starts what a round is asked for with what the pods of the node tell: their
// names by the UID in their control groups, and whose volumes the kubelet takes down. now is by the API
// server's clock.
func Ask(pods []*corev1.Pod, now time.Time) node.Ask {
	ask := node.Ask{Names: make(map[string]string, len(pods))}
	waiting := make(map[string]bool)
	for _, p := range pods {
		uid, _ := runtimeUID(p)
		name := p.Namespace + "/" + p.Name
		if _, other := ask.Names[uid]; other {
			name = "" // one of them is not what its annotations say
		}
		ask.Names[uid] = name
		for i := range p.Spec.Volumes {
			if dir := driverDir(&p.Spec.Volumes[i]); dir != "" {
				if ask.Drivers == nil {
					ask.Drivers = make(map[string]node.Driver)
				}
				d := node.Driver{Pod: p.Namespace + "/" + p.Name, State: driverState(p)}
				if _, other := ask.Drivers[dir]; other {
					d = node.Driver{} // a helper of the driver, or anybody with a hostPath of that name
				}
				ask.Drivers[dir] = d
				break // as Trim does
			}
		}
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			ask.Unmounting++
			ask.Unmounts = ask.Unmounts || p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(now)
		}
		if mayUnprepare(p) {
			ask.Unpreparing++
		}
		ask.Unprepares = ask.Unprepares || claims(p) > 0 && p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(now)
		if _, awaited := stop(p); awaited && p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(now) {
			waiting[p.Namespace] = true
		}
		ask.Pulls = ask.Pulls || p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(now) && mayPull(p)
		if mayBeDeleted(p) {
			ask.Deletable++
		}
	}
	ask.Awaiting = len(waiting)
	return ask
}

// claims counts the resource claims of a pod: those of its specification, and the one that the
// scheduler makes for its extended resources.
func claims(p *corev1.Pod) int {
	n := len(p.Spec.ResourceClaims)
	if p.Status.ExtendedResourceClaimStatus != nil {
		n++
	}
	return n
}

// mayPull reports whether the kubelet may be pulling an image for a container of the pod: one waits,
// and not for the end of a back-off. Each try to create a container may begin with a pull.
func mayPull(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && !strings.HasSuffix(s.State.Waiting.Reason, "BackOff")
	})
}

// mayUnprepare reports whether the kubelet may be having the claims of a pod unprepared: it
// terminates, or no container of it runs. When that is done the phase is a terminal one
// (SyncTerminatingPod, pkg/kubelet/kubelet.go).
func mayUnprepare(p *corev1.Pod) bool {
	if claims(p) == 0 || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return p.DeletionTimestamp != nil || !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// mayBeDeleted reports whether the kubelet may ask the API server to delete a pod:
// one that terminates and has ended (canBeDeleted, pkg/kubelet/status/status_manager.go), or
// a mirror pod that terminates, or differs from its manifest, which is not seen
// (tryReconcileMirrorPods, pkg/kubelet/kubelet.go).
func mayBeDeleted(p *corev1.Pod) bool {
	_, mirror := p.Annotations[verdict.MirrorAnnotation]
	return mirror || p.DeletionTimestamp != nil && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed)
}

// driverDir returns the name of the directory below the kubelet's plugins that a volume
// of a CSI or DRA driver's pod is, "" for other volumes. By convention it is the driver's name.
func driverDir(v *corev1.Volume) string {
	if v.HostPath == nil {
		return ""
	}
	if dir, name := path.Split(path.Clean(v.HostPath.Path)); path.Base(dir) == "plugins" && len(name) <= maxDriver {
		return strings.Clone(name)
	}
	return ""
}

// maxSpecified bounds the volumes of a pod of which the names are kept.
const maxSpecified = 64

// specified returns the volumes of the pod's specification, if there is one behind a
// PersistentVolumeClaim and there are not too many. A static pod has no claims, and the kubelet
// calls a volume that it translates to CSI as its driver likes. A volume without a name is of Trim.
func specified(p *corev1.Pod) []evidence.SpecVolume {
	if _, mirror := runtimeUID(p); mirror {
		return nil
	}
	var out []evidence.SpecVolume
	claimed := false
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Name == "" {
			continue
		}
		if translated(v) || len(out) == maxSpecified {
			return nil
		}
		s := evidence.SpecVolume{Name: v.Name, Claim: claimOf(p, v), Block: isDevice(p, v.Name)}
		if s.Claim != "" {
			claimed, s.At = true, mountsOf(p, v.Name)
		}
		out = append(out, s)
	}
	if !claimed {
		return nil
	}
	return out
}

// translated reports whether the kubelet may make a volume of a CSI driver of one that is written
// into the specification itself. Its directory has a name of that translation's own
// (TranslateInTreeInlineVolumeToCSI, k8s.io/csi-translation-lib/plugins).
func translated(v *corev1.Volume) bool {
	return v.AWSElasticBlockStore != nil || v.AzureDisk != nil || v.AzureFile != nil || v.Cinder != nil ||
		v.GCEPersistentDisk != nil || v.PortworxVolume != nil || v.RBD != nil || v.VsphereVolume != nil
}

// claimOf returns the name of the PersistentVolumeClaim of a volume, "" for one of another
// kind. That of an ephemeral volume is made of the pod's name and its own (VolumeClaimName,
// k8s.io/component-helpers/storage/ephemeral).
func claimOf(p *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}

// Bounds of the places in containers that are kept of a volume: how many, and how long each, in
// bytes. The API server bounds neither.
const (
	maxMounts = 4
	maxPlace  = 256
)

// mountsOf returns where containers have a volume mounted.
func mountsOf(p *corev1.Pod, volume string) []evidence.SpecMount {
	var out []evidence.SpecMount
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			for _, m := range all[i].VolumeMounts {
				if m.Name == volume && len(out) < maxMounts && len(m.MountPath) < maxPlace {
					out = append(out, evidence.SpecMount{Container: all[i].Name, Path: path.Clean("/" + m.MountPath)})
				}
			}
		}
	}
	return out
}

// isDevice reports whether a container has the volume as a device.
func isDevice(p *corev1.Pod, volume string) bool {
	has := func(all []corev1.VolumeDevice) bool {
		return slices.ContainsFunc(all, func(d corev1.VolumeDevice) bool { return d.Name == volume })
	}
	of := func(c corev1.Container) bool { return has(c.VolumeDevices) }
	return slices.ContainsFunc(p.Spec.Containers, of) || slices.ContainsFunc(p.Spec.InitContainers, of) ||
		slices.ContainsFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return has(c.VolumeDevices) })
}

// maxDriver is how long a CSI driver's name may be, in bytes (GetPluginInfoResponse in
// the CSI specification).
const maxDriver = 63

// driverState says in a word how a driver's pod is.
func driverState(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return evidence.DriverTerminating
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.Status.Phase == corev1.PodRunning {
			return evidence.DriverRunning
		}
	}
	return evidence.DriverNotReady
}

// runtimeUID returns the UID under which the node knows a pod (verdict.NodeUID).
func runtimeUID(p *corev1.Pod) (uid string, mirror bool) {
	uid, mirror = verdict.NodeUID(string(p.UID), p.Annotations)
	if uid != string(p.UID) {
		uid = strings.Clone(uid) // the annotations are not kept
	}
	return uid, mirror
}

// Seed starts the evidence about a pod with what its API object says. The
// condition of an agent that ran before tells that the pod was being deleted at
// that time.
func Seed(p *corev1.Pod) *evidence.Pod {
	e := &evidence.Pod{
		Namespace:      p.Namespace,
		Name:           p.Name,
		UID:            string(p.UID),
		HostPID:        p.Spec.HostPID,
		HostNetwork:    p.Spec.HostNetwork,
		ResourceClaims: claims(p),
		Phase:          string(p.Status.Phase),
		Finalizers:     p.Finalizers,
		Specified:      specified(p),
	}
	if s := p.Spec.ShareProcessNamespace; s != nil {
		e.ShareProcessNamespace = *s
	}
	if e.RuntimeUID, e.Mirror = runtimeUID(p); e.Mirror && e.RuntimeUID == e.UID {
		for _, s := range []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Mounts, evidence.Volumes, evidence.Containers, evidence.Shims} {
			e.Lack(s, "the annotations of this mirror pod do not tell by which UID the node knows its static pod")
		}
	}
	if i := controller(p); i >= 0 {
		// Whoever may create pods may name any owner.
		e.StatefulSet = p.OwnerReferences[i].Kind == "StatefulSet" && strings.HasPrefix(p.OwnerReferences[i].APIVersion, "apps/")
	}
	if g := p.Spec.TerminationGracePeriodSeconds; e.Mirror && g != nil {
		e.ManifestGraceSeconds = *g
	}
	if t := p.DeletionTimestamp; t != nil {
		e.StopBegun, e.StopAwaited = stop(p)
		e.Deadline, e.DeletionRequested = t.Time, t.Time
		if g := p.DeletionGracePeriodSeconds; g != nil {
			e.GracePeriodSeconds = *g
			e.DeletionRequested = t.Add(-time.Duration(*g) * time.Second)
		}
		if g := p.Spec.TerminationGracePeriodSeconds; g != nil && *g > e.GracePeriodSeconds && !e.Mirror {
			e.SpecifiedGraceSeconds = *g
		}
		if c := subject(p).Condition; c != nil && !c.Since.IsZero() && c.Since.Before(e.DeletionRequested) {
			e.DeletionRequested = c.Since
		}
	}
	alone := !asksOtherwise(p)
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		kind := evidence.Init
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = evidence.Sidecar
		}
		e.Containers = append(e.Containers, asSpecified(c, kind, p.Status.InitContainerStatuses, alone))
	}
	for i := range p.Spec.Containers {
		e.Containers = append(e.Containers, asSpecified(&p.Spec.Containers[i], evidence.App, p.Status.ContainerStatuses, alone))
	}
	for i := range p.Spec.EphemeralContainers {
		name := p.Spec.EphemeralContainers[i].Name
		e.Containers = append(e.Containers, evidence.Container{
			Name: name, Kind: evidence.Ephemeral, SaidID: saidID(p.Status.EphemeralContainerStatuses, name), Exit: exit(p.Status.EphemeralContainerStatuses, name),
		})
	}
	return e
}

// stop reports whether the kubelet has begun to stop a deleted pod, or not; neither where its status does not tell.
func stop(p *corev1.Pod) (begun, awaited bool) {
	seen := p.Status.ObservedGeneration
	if _, mirror := runtimeUID(p); mirror || seen == 0 || p.Generation == 0 {
		return false, false
	}
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	return seen >= p.Generation, seen < p.Generation && !ended
}

// asSpecified is a container as the specification has it, and what the kubelet says of it.
func asSpecified(c *corev1.Container, kind evidence.ContainerKind, statuses []corev1.ContainerStatus, alone bool) evidence.Container {
	var hooks corev1.Lifecycle
	if c.Lifecycle != nil {
		hooks.PreStop, hooks.PostStart = acting(c.Lifecycle.PreStop), acting(c.Lifecycle.PostStart)
	}
	return evidence.Container{
		Name: c.Name, Kind: kind,
		PreStop: hooks.PreStop != nil, PreStopProgram: hookProgram(hooks.PreStop),
		PostStart: hooks.PostStart != nil, PostStartProgram: hookProgram(hooks.PostStart),
		PreStopSleep: hookSleep(hooks.PreStop), PostStartSleep: hookSleep(hooks.PostStart), PreStopOnlySleeps: hookOnlySleeps(hooks.PreStop),
		PreStopPort: hookPort(c, hooks.PreStop, alone), PostStartPort: hookPort(c, hooks.PostStart, alone),
		SaidID:  saidID(statuses, c.Name),
		Running: runs(statuses, c.Name), Waiting: waits(statuses, c.Name), BackedOff: isBackedOff(statuses, c.Name), Exit: exit(statuses, c.Name),
	}
}

// saidID returns the ID of a container in containerd, by its status; "" when it has none there.
func saidID(statuses []corev1.ContainerStatus, name string) string {
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return ""
	}
	id, ok := strings.CutPrefix(statuses[i].ContainerID, "containerd://")
	if !ok {
		return ""
	}
	return id
}

// hookProgram returns the base name of what a hook executes in the container: what it
// is called with is nobody's business.
func hookProgram(h *corev1.LifecycleHandler) string {
	if h == nil || h.Exec == nil || len(h.Exec.Command) == 0 {
		return ""
	}
	return path.Base(h.Exec.Command[0])
}

// sleepScript is a script that sleeps and does nothing else: sleep 15, exec sleep 15, sleep $DRAIN; exit 0.
var sleepScript = regexp.MustCompile(`^\s*(exec\s+)?(/bin/|/usr/bin/)?sleep\s+[\w.${}:"-]+\s*(;\s*(true|exit 0)\s*)?;?\s*$`)

// hookOnlySleeps reports whether a hook executes sleep(1), by itself or in a shell, and nothing else.
func hookOnlySleeps(h *corev1.LifecycleHandler) bool {
	if h == nil || h.Exec == nil {
		return false
	}
	command := h.Exec.Command
	if n := len(command); hookProgram(h) == "sleep" && n == 2 {
		return true
	}
	return len(command) == 3 && command[1] == "-c" && sleepScript.MatchString(command[2])
}

// maxSleep bounds what is kept of how long a hook sleeps, in seconds. The API server allows as much
// as the grace period, which it does not bound.
const maxSleep = 365 * 24 * 60 * 60

// hookSleep returns for how many seconds the kubelet sleeps as a hook; 0 for one of another kind.
func hookSleep(h *corev1.LifecycleHandler) int64 {
	if h == nil || h.Sleep == nil {
		return 0
	}
	return max(0, min(h.Sleep.Seconds, maxSleep))
}

// hookPort returns the number of the pod's port to which the kubelet sends the request of a
// container's hook (ResolveContainerPort, pkg/probe/util.go); 0 when there is none, it is sent to a host of
// another name, or it is not alone: something else may look the same (asksOtherwise).
func hookPort(c *corev1.Container, h *corev1.LifecycleHandler, alone bool) int {
	if h == nil || h.HTTPGet == nil || h.HTTPGet.Host != "" || !alone {
		return 0
	}
	port := h.HTTPGet.Port
	n := port.IntValue() // 0 of a name
	if i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal }); port.Type == intstr.String && i >= 0 {
		n = int(c.Ports[i].ContainerPort)
	}
	if n < 1 || n > math.MaxUint16 {
		return 0
	}
	return n
}

// slowProbe is a timeout of a probe, in seconds, from which on the probe's request may look like that
// of a hook (fact.PreStopRequest, fact.PostStartRequest).
const slowProbe = 5

// asksOtherwise reports whether the kubelet may ask a port of the pod, for as long and without an answer,
// what no hook of now asks: for a probe of any container, or for a preStop hook of a container that was
// started anew since. The kubelet gives such a hook up at the end of the grace period, and its
// connection stays open when another container has taken it.
func asksOtherwise(p *corev1.Pod) bool {
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			c := &all[i]
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if probe != nil && probe.TimeoutSeconds >= slowProbe {
					return true
				}
			}
			if l := c.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.HTTPGet != nil && startedAnew(p, c.Name) {
				return true
			}
		}
	}
	return false
}

// startedAnew reports whether the kubelet has started a container more than once.
func startedAnew(p *corev1.Pod, name string) bool {
	again := func(s corev1.ContainerStatus) bool { return s.Name == name && s.RestartCount > 0 }
	return slices.ContainsFunc(p.Status.ContainerStatuses, again) || slices.ContainsFunc(p.Status.InitContainerStatuses, again)
}

// DoubtDeadline is for a pod that was being deleted already when it was first seen. A
// grace period other than its specification's may have come with a second deletion,
// and the kubelet keeps to the first one's (syncTerminatingPod, pkg/kubelet/kubelet.go).
// With containers that have ended there is nothing to wait for.
func DoubtDeadline(e *evidence.Pod, p *corev1.Pod) {
	g := p.Spec.TerminationGracePeriodSeconds
	if g == nil || *g == e.GracePeriodSeconds || e.Phase == string(corev1.PodSucceeded) || e.Phase == string(corev1.PodFailed) {
		return
	}
	e.DeadlineUnsure = true
	if first := e.DeletionRequested.Add(time.Duration(*g) * time.Second); first.After(e.Deadline) {
		e.Deadline = first
	}
}
