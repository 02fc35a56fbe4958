// Package fact answers what more than one rule asks of the evidence: which is the
// first process of a container and what becomes of its stop signal, who holds
// whom, which tasks are stuck in the kernel and on what, whether a server is
// silent, which control group is frozen. It is pure, knows no causes and holds no
// words that a user reads.
package fact
