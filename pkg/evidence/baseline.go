package evidence

import "time"

// A Baseline is what the first processes of a pod's containers did with signals
// while nobody had asked them to end. A handler may change the dispositions of its
// process, so that what is read after the signal need not be what the signal met.
type Baseline struct {
	// Read is when the last of Tasks had been read, by the node's clock.
	Read time.Time `json:"read"`
	// Tasks are the leaders of the first few processes of each container, in the
	// order in which its control group lists them: the first process, and what it has
	// started first. Only their status was read, so none has a Probe.
	Tasks []Task `json:"tasks,omitempty"`
}

// BaselineMargin is how long before the request for deletion a Baseline must have
// been read to be of a time before it: the node's clock may differ from the API
// server's, which writes whole seconds.
const BaselineMargin = 3 * time.Second

// Since carries over from an earlier Baseline of the same pod since when what is
// unchanged has been so, as Pod.Since does, and what has been removed. A nil earlier one means
// that this is the first.
func (b *Baseline) Since(earlier *Baseline) {
	var before []Task
	if earlier != nil {
		before = earlier.Tasks
	}
	since(b.Tasks, before, b.Read)
	for i := range b.Tasks {
		for j := range before {
			if t, e := &b.Tasks[i], &before[j]; t.PID == e.PID && t.TID == e.TID && t.Comm == e.Comm {
				t.Removed = (e.Caught | e.Removed) &^ t.Caught
			}
		}
	}
}

// Precedes reports whether the Baseline is of a time before a deletion that was
// requested at that time. It is false for nil.
func (b *Baseline) Precedes(requested time.Time) bool {
	return b != nil && !b.Read.After(requested.Add(-BaselineMargin))
}
