// Package probe reads those files of a task that can hang their reader for as long
// as somebody else likes: stat, wchan, stack, syscall, maps, cmdline, fdinfo, the
// links and the memory. Their names are known here only. A Prober asks a helper
// process, this program started again, whose work is Main: it says which file it
// opens next, and is killed and replaced when it does not come back.
package probe
