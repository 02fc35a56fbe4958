// Package report publishes diagnoses: as a condition and an Event on the pod,
// and as metrics. client-go and client_golang stay behind it.
//
// Nothing is written about a pod that terminates in time, and afterwards only
// what has changed. What has been said is taken back when it is not true any
// more. Everything that the package remembers can be found again after a
// restart: the condition stands on the pod, and an Event's name follows from
// the pod and the cause.
package report
