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

// An Alone is whether one pod of the node only can have raised a Counter.
type Alone struct {
	// Pods counts those that can, 0 where that is not known. Until is the time of the last reading that did not show a single one.
	Pods  int
	Until time.Time
}

// Since reports whether no other pod can have raised what has risen after a time.
func (a Alone) Since(t time.Time) bool { return a.Pods == 1 && t.After(a.Until) }

// until carries over Until to a reading that shows so many pods.
func (a Alone) until(pods int, read time.Time) time.Time {
	if pods == 1 {
		return a.Until
	}
	return read
}

// Unmounts is about the kubelet's work on volumes, Deletes about its requests for the final delete, and Unprepares about resource claims.
func (n *Node) Unmounts() Alone { return Alone{n.Unmounting, n.UnmountingUntil} }

// Deletes is as Unmounts.
func (n *Node) Deletes() Alone { return Alone{n.Deletable, n.DeletablesUntil} }

// Unprepares is as Unmounts.
func (n *Node) Unprepares() Alone { return Alone{n.Unpreparing, n.UnpreparingUntil} }
