// Package kernfile reads those files of the kernel that have never been seen to
// hang their reader, and is the only place in this process that opens any: the
// list of them is closed (File). All others are opened by package probe, in a
// process that can be thrown away.
//
// A status, comm, cgroup, children, mountinfo, mountstats or net/tcp file takes no
// lock that a task holds while it waits for a file system or for memory. A test of
// package proc reads them of tasks that are stuck in execve, in exit, in a read and
// in an epoll instance.
package kernfile
