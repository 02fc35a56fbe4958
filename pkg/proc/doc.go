// Package proc reads the kernel's view of a pod into evidence: the tasks in its
// control groups, their parents, the mounts of its volumes, and what a task that
// does not get on waits for.
//
// Reading /proc can hang, and the reader then hangs as long as what it looks at.
// The files are therefore of two kinds. Those that no experiment ever made hang
// (status, comm, cgroup, children, mountinfo, mountstats, net/tcp, the listing of
// task, the files of control groups and of FUSE connections) are read in the
// process itself. All others wait for a lock that somebody else may never give
// back: stat, wchan, stack, syscall, maps, cmdline, the links and the memory for
// one that a task stuck inside execve holds, or one that sleeps with its memory
// map locked; fdinfo for that of an epoll instance whose file does not say whether
// it is ready. Only a Prober reads them, in a process that can be thrown away.
//
// Nothing here opens, stats or follows a path below a pod's volume or root, not
// through /proc/PID/{root,cwd,fd} either: that would make the agent the next
// task that hangs on the dead file system.
//
// There is one file for each kernel file, named as the kernel names it, and in
// it ReadX or readX opens and parseX takes bytes.
package proc
