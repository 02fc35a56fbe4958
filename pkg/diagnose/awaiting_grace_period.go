package diagnose

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// AwaitingGracePeriod is a pod that has time left. It is never reported.
var AwaitingGracePeriod = &Rule{
	Cause:  "AwaitingGracePeriod",
	Silent: true,
	Doc: Doc{
		Layer:   "api",
		Title:   "the pod has time left",
		Message: "the pod is inside its grace period, which ends at {deadline}",
		Meaning: "The pod has been asked to stop and has time left to do so. This is normal, and nodeagent writes nothing about it. " +
			"Only a cause that is proven to use up the whole grace period, such as SignalDroppedByPID1, is told before it ends.",
		Evidence: "The time is before metadata.deletionTimestamp, which already includes the grace period.",
		Remedy:   "Wait until {deadline}, or delete the pod again with a shorter --grace-period.",
		Danger:   "A force delete takes away the time that the program needs to finish its work, and hides the pod while it still runs.",
	},
	Check: func(p *evidence.Pod) []Finding {
		if p.Overdue() >= 0 {
			return nil
		}
		return []Finding{{Confidence: Proved, Values: map[string]string{"deadline": clock(p.Deadline)}}}
	},
}
