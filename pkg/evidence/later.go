package evidence

import (
	"strings"
	"time"
)

// laterStep is how far apart the readings are that Later carries over: less than what any of them calls long (Young, CallsPause).
const laterStep = 25 * time.Second

// Later returns the pod as a reading would show it that is so much later, if each one until then shows the same. Who has
// not answered is asked again, and does not answer.
func (p *Pod) Later(by time.Duration) *Pod {
	for by > 0 {
		step := min(by, laterStep)
		next := p.next(step)
		next.Node.Since(&p.Node)
		next.Since(p)
		p, by = next, by-step
	}
	return p
}

// next returns the reading again that much later, before anything is carried over.
func (p *Pod) next(step time.Duration) *Pod {
	out := withTimes(p, func(field string, t time.Time) time.Time {
		// A baseline was read before the deletion.
		if (field == "Time" || field == "Asked" || field == "Said" || strings.HasSuffix(field, "Read")) && t.After(p.DeletionRequested) {
			return t.Add(step)
		}
		return t
	})
	n := &out.Node
	k, c := &n.Kubelet, &n.Containerd
	if k.Process != nil && !k.LastSeen.IsZero() {
		k.LastSeen = k.LastSeen.Add(step)
	}
	if u := n.Processors; u != nil {
		moved := *u
		moved.Since, moved.Until = u.Since.Add(step), u.Until.Add(step)
		n.Processors = &moved
	}
	k.YoungSince, k.Starts, k.StartSeen, k.LastStart = time.Time{}, 0, time.Time{}, time.Time{}
	c.AnsweringSince, c.Ends, c.FirstEnd = time.Time{}, 0, time.Time{}
	again := func(attempts *int) {
		if *attempts > 0 {
			*attempts++
		}
	}
	again(&c.Attempts)
	for i := range c.Lists {
		again(&c.Lists[i].Attempts)
	}
	for i := range out.Containers {
		again(&out.Containers[i].Task.Attempts)
	}
	return out
}
