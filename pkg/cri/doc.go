// Package cri reads from containerd what a pod's verdict needs to know of its
// containers: which ones there are and in what state (from the CRI plugin's
// own memory), what they run and which signal stops them (from containerd's
// records), and what their shims answer about their tasks.
//
// Both containerd and a shim can hang, and a request to a hung one leaves
// something behind in it, so three things hold for all requests. Each has a
// deadline and is about one container. One that was not answered is repeated
// only after a pause, and the package remembers since when there has been no
// answer. Nothing here starts, signals, executes or deletes anything: what is
// not in the list of requests that read (reads.go) does not leave.
//
// CRI-O and other runtimes are recognised as not containerd, and are not read.
package cri
