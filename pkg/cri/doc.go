// Package cri reads from containerd what a pod's verdict needs to know of its
// containers: which ones there are and in what state (from the CRI plugin's
// own memory), what they run and which signal stops them (from containerd's
// records), and what their shims answer about their tasks.
//
// Both a containerd and a shim can hang, and a question to a hung one leaves
// something behind in it, so three things hold for all of them. Each question
// has a deadline and is about one container. One that was not answered is put
// again only after a while, and how long it has gone without an answer is
// remembered. And nothing here starts, signals, executes or deletes anything.
//
// CRI-O and other runtimes are told apart from containerd, and are not read.
package cri
