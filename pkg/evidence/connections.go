package evidence

import "time"

// Connections are the TCP connections of the pod's network namespace that a process has open, and that can send, as
// one reading of it shows. Those that the namespace has with itself are left out.
type Connections struct {
	// All counts them, and Unanswered those which have sent the same again so often that nothing has come back for six
	// seconds or more.
	All        int `json:"all,omitempty"`
	Unanswered int `json:"unanswered,omitempty"`
	// Since is when the first of the readings in a row had ended that showed most of them as Unanswered; zero when this
	// one does not.
	Since time.Time `json:"since,omitzero"`
}

// since carries over since when there have been connections without an answer.
func (c *Connections) since(e *Connections, t time.Time) {
	if c == nil || c.Unanswered*2 <= c.All {
		return
	}
	// Connections that have gone in good order have been answered.
	if c.Since = t; e != nil && c.All >= e.All/2 {
		c.Since = firstOf(e.Since, t)
	}
}
