// Package proc reads the kernel's view of a pod into evidence: the tasks in its
// control groups, their parents, the mounts of its volumes, and what a task that
// does not get on waits for.
//
// Reading /proc can hang, and the reader then hangs as long as what it looks at.
// So this package opens no file. Package kernfile opens those that no experiment
// ever made hang; their list is closed. All others wait for a lock that somebody
// else may never give back: stat, wchan, stack, syscall, maps, cmdline, the links and
// the memory for one that a task stuck inside execve holds, or one that sleeps with
// its memory map locked; fdinfo for that of an epoll instance whose file does not
// say whether it is ready. Only package probe knows them, and reads them in a
// process that can be thrown away.
//
// Nothing here opens, stats or follows a path below a pod's volume or root, not
// through /proc/PID/{root,cwd,fd} either: that would make the agent the next
// task that hangs on the dead file system.
package proc
