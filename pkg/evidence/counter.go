package evidence

import "time"

// A Counter is how often the kubelet has done something, by one of its metrics, since it was started. It tells no pod.
type Counter struct {
	Count uint64 `json:"count"`
	// Rose is the time of the reading before the last one that showed more of them: no
	// sooner were they counted. RoseBefore is the same of the rise before that one. They
	// are zero when there was none. The reading before may be an hour old, because the kubelet is asked only while a pod is late.
	Rose       time.Time `json:"rose,omitzero"`
	RoseBefore time.Time `json:"roseBefore,omitzero"`
}

// since carries over when it rose. before was read at that time. One that is smaller than before is of a kubelet that was started after that,
// which has counted all of it since then; and what the one before it has counted is over.
func (c *Counter) since(before Counter, read time.Time) {
	switch {
	case c.Count == before.Count:
		c.Rose, c.RoseBefore = before.Rose, before.RoseBefore
	case c.Count < before.Count:
		c.Rose, c.RoseBefore = time.Time{}, time.Time{}
		if c.Count > 0 {
			c.Rose = read
		}
	default:
		c.Rose, c.RoseBefore = read, before.Rose
	}
}

// countersSince carries over when each of some counters rose.
func countersSince[T any, P interface {
	*T
	counter() (string, *Counter)
}](now, before []T, read time.Time) {
	was := make(map[string]Counter, len(before))
	for i := range before {
		counts, c := P(&before[i]).counter()
		was[counts] = *c
	}
	for i := range now {
		counts, c := P(&now[i]).counter()
		c.since(was[counts], read)
	}
}
