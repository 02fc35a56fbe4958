// Package verdict keeps what stands about each terminating pod from one look at
// it to the next: what was found, since when it stands, what has been told, and
// when to look again. A single look may miss a cause that is still there, so a
// diagnosis is not yet a verdict: Case.Judge weighs it against what stands.
//
// Nothing is told about a pod that terminates in time, and afterwards only what
// has changed. What has been told is taken back when it is not true any more.
//
// The package is pure: its time is that of the evidence. Everything in a Case
// can be found again after a restart: the condition stands on the pod, and an
// Event's name follows from the pod and the cause.
package verdict
