// Package cause holds the causes that are recognised, one file for each in the
// package of its layer, and the one table of their order and of what explains
// what.
package cause

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/api"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/kernel"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/kubelet"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/network"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/runtime"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/signal"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause/storage"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// table holds every cause that is recognised, in order of precedence: of two
// findings that do not explain each other, the one further up is the verdict.
// What holds up the whole node comes before what holds up one pod, the kernel
// before the runtime, and signals, which end by themselves at the deadline,
// last. Unknown is not in it: it is what remains when none of these speaks.
//
// PIDNamespaceReapWait is a symptom of whatever keeps a member of the namespace
// from ending: its init waits for the last one.
var table = diagnose.Table{
	{Rule: kubelet.KubeletDown},
	{Rule: kubelet.KubeletDisconnected},
	{Rule: kubelet.KubeletSyncLoopStalled, Explains: []*diagnose.Rule{kubelet.KubeletLate}},
	{Rule: runtime.ContainerdDown},
	{Rule: runtime.ContainerdHung},
	{Rule: kubelet.PLEGUnhealthy},
	// What containerd and the shim cannot do for want of a process or a file is no fault of a plugin, or of runc.
	{Rule: runtime.NodeResourceExhausted, Explains: []*diagnose.Rule{runtime.ContainerdHung},
		// The next try may succeed, when there is room again.
		Holds: []*diagnose.Rule{runtime.RuntimeCommandFailing, runtime.ExitEventLost, runtime.SandboxStopFailing, network.CNIDelFailing, network.CNINotInitialized}},
	// What it cannot write it fails at with each driver and plugin.
	{Rule: kubelet.KubeletResourceExhausted, Explains: []*diagnose.Rule{
		kubelet.DRAUnprepareFailing, storage.VolumeDirTeardownFailed, storage.SubPathCleanupFailed, storage.CSINodeUnpublishFailing,
	}},
	{Rule: kernel.ContainerFrozen},
	// The shim, and containerd, wait for a command that may not be executed, or opens files.
	{Rule: kernel.FileScannerNotAnswering, Explains: []*diagnose.Rule{runtime.ExitEventLost, runtime.SandboxStopFailing},
		Holds: []*diagnose.Rule{runtime.ShimHung, runtime.RuntimeCommandHanging, network.CNIDelHanging}},
	// A driver that unmounts by itself fails, or hangs, with the same mount.
	{Rule: storage.NetworkFilesystemUnreachable, Explains: []*diagnose.Rule{storage.CSINodeUnpublishHanging}},
	{Rule: storage.VolumeUnmountHanging, Explains: []*diagnose.Rule{storage.CSINodeUnpublishHanging}},
	{Rule: storage.CSIVolumeRecordLost},
	{Rule: storage.VolumeUnmountBusy, Explains: []*diagnose.Rule{storage.CSINodeUnpublishFailing, storage.SubPathCleanupFailed}},
	{Rule: storage.ImageVolumeUnmountBusy, Explains: []*diagnose.Rule{runtime.SandboxStopFailing}},
	{Rule: storage.BlockVolumeUnmapFailed, Explains: []*diagnose.Rule{storage.CSINodeUnpublishFailing}},
	{Rule: storage.SubPathCleanupFailed},
	{Rule: storage.VolumeDirTeardownFailed},
	{Rule: storage.CSIDriverNotRegistered},
	{Rule: storage.CSINodeUnpublishHanging},
	{Rule: storage.CSINodeUnpublishFailing},
	{Rule: storage.VolumeLeftMounted},
	{Rule: kubelet.DRAUnprepareFailing},
	{Rule: kernel.ThreadStuckBehindZombieLeader, Explains: []*diagnose.Rule{kernel.PIDNamespaceReapWait}},
	// The runtime reads /proc/PID/stat of such a process, which can block as well.
	{Rule: kernel.StuckInExec, Explains: []*diagnose.Rule{runtime.ShimHung, kernel.PIDNamespaceReapWait}},
	{Rule: kernel.UninterruptibleSleep, Explains: []*diagnose.Rule{kernel.PIDNamespaceReapWait}},
	{Rule: kernel.StuckInExit, Explains: []*diagnose.Rule{kernel.PIDNamespaceReapWait}},
	{Rule: kernel.ZombieHeldByTracer, Explains: []*diagnose.Rule{kernel.PIDNamespaceReapWait}},
	{Rule: kernel.PIDNamespaceReapWait},
	// What asks it to end a container waits without a limit, and so do the shim's answers.
	{Rule: runtime.SandboxRuntimeStuck, Explains: []*diagnose.Rule{runtime.ShimHung}},
	// The shim holds its lock meanwhile, and takes no note of the end of a container.
	{Rule: runtime.RuntimeCommandHanging, Explains: []*diagnose.Rule{runtime.ShimHung, runtime.ExitEventLost}},
	{Rule: runtime.ShimHung},
	{Rule: runtime.ShimDead},
	{Rule: runtime.RuntimeCommandFailing},
	{Rule: runtime.ZombieLeaderNotKilled},
	{Rule: runtime.ExecHoldsInitExit},
	// Of a process of a container with shared PIDs it is known where it comes from.
	{Rule: runtime.HostPIDLeftover, Explains: []*diagnose.Rule{runtime.StdioHeldOpen}},
	{Rule: runtime.StdioHeldOpen},
	{Rule: runtime.RootfsUnmountBusy, Explains: []*diagnose.Rule{runtime.ExitEventLost}},
	{Rule: runtime.ExitEventLost},
	{Rule: runtime.SandboxStopFailing},
	{Rule: network.CNIAddHanging},
	{Rule: kubelet.ImagePullHanging},
	// Each try to stop the sandbox begins with the network.
	{Rule: network.CNIDelHanging, Holds: []*diagnose.Rule{runtime.SandboxStopFailing, storage.ImageVolumeUnmountBusy}},
	{Rule: network.CNINotInitialized},
	{Rule: network.CNIDelFailing},
	{Rule: api.MirrorPodDeleted},
	{Rule: api.FinalDeleteRejected},
	{Rule: api.StatusUpdateRejected},
	{Rule: api.FinalizersPending},
	{Rule: signal.ProcessTraced, Explains: []*diagnose.Rule{kernel.PIDNamespaceReapWait}},
	{Rule: signal.ProcessStopped},
	{Rule: signal.StopSignalMismatch},
	{Rule: signal.ShellPID1NoTrap},
	{Rule: signal.SignalDroppedByPID1},
	{Rule: signal.StopSignalIgnored},
	{Rule: signal.StopSignalBlocked},
	{Rule: signal.ShellPID1TrapDeferred},
	{Rule: signal.ChildIgnoresForwardedSignal},
	{Rule: kernel.CoreDumpInProgress},
	{Rule: kubelet.PostStartHookRunning},
	{Rule: kubelet.PreStopHookRunning},
	{Rule: signal.ShutdownThrottled},
	{Rule: signal.SlowShutdown},
	// Whatever else is found may be why it has not begun.
	{Rule: kubelet.KubeletLate},
}

// Diagnose looks for every cause.
func Diagnose(p *evidence.Pod) diagnose.Diagnosis { return diagnose.Run(p, table) }

// Table returns the causes in order of precedence and what they explain.
func Table() diagnose.Table { return table }

// Who returns who acts on each cause, as its page says: what a finding says is that of its family.
func Who() map[string]diagnose.Who {
	out := make(map[string]diagnose.Who)
	for _, r := range All() {
		out[r.Cause] = r.Doc.Who
	}
	return out
}

// All returns the rules in order of precedence and, last, Unrecognised.
func All() []*diagnose.Rule {
	var all []*diagnose.Rule
	for _, row := range table {
		all = append(all, row.Rule)
	}
	return append(all, diagnose.Unrecognised)
}
