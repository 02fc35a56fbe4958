package probe

import "bytes"

// parseWchan gives the kernel function that a task sleeps in, without what the
// compiler appends to its name. "0" stands for a task that runs and for a reader
// without permission alike (fs/proc/base.c, proc_pid_wchan), so it is unknown.
func parseWchan(b []byte) string {
	b = bytes.TrimRight(b, "\n\x00")
	if string(b) == "0" {
		return ""
	}
	return function(b)
}
