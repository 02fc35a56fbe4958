package diagnose

import (
	"fmt"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Outlook says in a sentence that a pod is not stuck, as far as a reading shows: that it is
// inside its grace period, and what may hold it beyond; "" for a pod that is past its
// deadline, or of which a cause was found.
func Outlook(p *evidence.Pod, d *Diagnosis) string {
	if _, found := d.Verdict(); found || p.Overdue() >= -p.ClockDoubt() || p.GracePeriodSeconds == 0 && len(p.Finalizers) > 0 {
		return ""
	}
	left := p.Deadline.Sub(p.Time).Round(time.Second)
	ends := fmt.Sprintf("the grace period ends in %s, at %s", left, dated(p.Deadline, p.Time))
	if p.DeadlineUnsure {
		ends = fmt.Sprintf("the grace period ends in %s at the latest, at %s", left, dated(p.Deadline, p.Time))
	}
	var beyond []string
	if len(p.Finalizers) > 0 {
		beyond = append(beyond, string(finalizers(p.Finalizers)))
	}
	switch {
	case p.ContainersEnded() && (len(p.Mounts) > 0 || len(p.Volumes) > 0):
		beyond = append(beyond, "volumes that are still mounted")
	case p.ContainersEnded() && len(beyond) == 0:
		return "not overdue: all containers have exited, and the kubelet still cleans up; " + ends
	}
	if len(beyond) > 0 {
		return "not overdue, but " + strings.Join(beyond, " and ") + " will keep it after its containers exit; " + ends
	}
	return "not stuck: " + ends
}
