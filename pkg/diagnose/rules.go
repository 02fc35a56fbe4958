package diagnose

// Rules lists every cause that is recognised, in order of precedence: of two
// findings that do not explain each other, the one further up is the verdict.
// What holds up the whole node comes before what holds up one pod, the kernel
// before the runtime, and signals, which end by themselves at the deadline,
// last. Unknown is no rule: it is what remains when none of these speaks.
func Rules() []*Rule {
	return []*Rule{
		ContainerdHung,
		ContainerFrozen,
		NetworkFilesystemUnreachable,
		ThreadStuckBehindZombieLeader,
		StuckInExec,
		UninterruptibleSleep,
		StuckInExit,
		ZombieHeldByTracer,
		PIDNamespaceReapWait,
		ShimHung,
		ZombieLeaderNotKilled,
		HostPIDLeftover,
		FinalizersPending,
		ProcessTraced,
		ProcessStopped,
		StopSignalMismatch,
		ShellPID1NoTrap,
		SignalDroppedByPID1,
		StopSignalIgnored,
		StopSignalBlocked,
		ShellPID1TrapDeferred,
		ChildIgnoresForwardedSignal,
		CoreDumpInProgress,
		ShutdownThrottled,
		SlowShutdown,
		AwaitingGracePeriod,
	}
}

// Causes lists the rules and, last, the Doc of Unknown: everything that
// `nodeagent explain` knows and that has a runbook page.
func Causes() []*Rule { return append(Rules(), Unrecognised) }
