package evidence

import "time"

// Connections are the TCP connections of the pod's network namespace that a process has open, and that can send, as
// one reading of it shows. Those that the namespace has with itself are among them.
type Connections struct {
	// All counts them, and Unanswered those which have sent the same again so often that nothing has come back for six
	// seconds or more.
	All        int `json:"all,omitempty"`
	Unanswered int `json:"unanswered,omitempty"`
	// Since is when the first of the readings in a row had ended that showed one that is Unanswered; zero when this
	// one does not.
	Since time.Time `json:"since,omitzero"`
}

// since carries over since when there have been connections without an answer.
func (c *Connections) since(e *Connections, t time.Time) {
	if c == nil || c.Unanswered == 0 {
		return
	}
	if c.Since = t; e != nil {
		c.Since = firstOf(e.Since, t)
	}
}
