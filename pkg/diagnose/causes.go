package diagnose

// table holds every cause that is recognised, in order of precedence: of two
// findings that do not explain each other, the one further up is the verdict.
// What holds up the whole node comes before what holds up one pod, the kernel
// before the runtime, and signals, which end by themselves at the deadline,
// last. Unknown is not in it: it is what remains when none of these speaks.
//
// PIDNamespaceReapWait is a symptom of whatever keeps a member of the namespace
// from ending: its init waits for the last one.
var table = Table{
	{Rule: ContainerdHung},
	{Rule: ContainerFrozen},
	{Rule: NetworkFilesystemUnreachable},
	{Rule: ThreadStuckBehindZombieLeader, Explains: []*Rule{PIDNamespaceReapWait}},
	// The runtime reads /proc/PID/stat of such a process, which can block as well.
	{Rule: StuckInExec, Explains: []*Rule{ShimHung, PIDNamespaceReapWait}},
	{Rule: UninterruptibleSleep, Explains: []*Rule{PIDNamespaceReapWait}},
	{Rule: StuckInExit, Explains: []*Rule{PIDNamespaceReapWait}},
	{Rule: ZombieHeldByTracer, Explains: []*Rule{PIDNamespaceReapWait}},
	{Rule: PIDNamespaceReapWait},
	{Rule: ShimHung},
	{Rule: ZombieLeaderNotKilled},
	{Rule: HostPIDLeftover},
	{Rule: FinalizersPending},
	{Rule: ProcessTraced, Explains: []*Rule{PIDNamespaceReapWait}},
	{Rule: ProcessStopped},
	{Rule: StopSignalMismatch},
	{Rule: ShellPID1NoTrap},
	{Rule: SignalDroppedByPID1},
	{Rule: StopSignalIgnored},
	{Rule: StopSignalBlocked},
	{Rule: ShellPID1TrapDeferred},
	{Rule: ChildIgnoresForwardedSignal},
	{Rule: CoreDumpInProgress},
	{Rule: ShutdownThrottled},
	{Rule: SlowShutdown},
}

// Rules returns the table of causes.
func Rules() Table { return table }

// Causes returns the rules in order of precedence and, last, Unrecognised:
// everything that `nodeagent explain` knows and that has a runbook page.
func Causes() []*Rule {
	var all []*Rule
	for _, row := range table {
		all = append(all, row.Rule)
	}
	return append(all, Unrecognised)
}
