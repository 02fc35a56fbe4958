// Package report publishes verdicts: as a condition and an Event on the pod, and
// as metrics. client-go and client_golang stay behind it. When something is due
// the Case says; what is written, and what the API server's answer means, stands
// here.
package report
