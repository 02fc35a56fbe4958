// Package kernfile reads those files of the kernel that have never been seen to
// hang their reader, and is the only place in this process that opens any: the
// list of them is closed (File). All others are opened by package probe, in a
// process that can be thrown away.
//
// None of them takes a lock that a task holds while it waits for a file system or
// for memory: a test of package proc reads those of tasks that are stuck in execve,
// in exit, in a read and in an epoll instance. Some wait for a lock of the whole
// kernel, cgroup before Linux 6.8 (cgroup_mutex), mountinfo and mountstats
// (namespace_sem). Who keeps one of these has stopped the kubelet and containerd too.
package kernfile
