package evidence

import "time"

// A Skew is how far the API server's clock is ahead of the node's, in milliseconds:
// at least and at most, by the Date of its answers.
type Skew struct {
	LeastMillis int64 `json:"leastMillis"`
	MostMillis  int64 `json:"mostMillis"`
}

// unmeasured is how far clocks may differ that nobody has compared.
const unmeasured = 3 * time.Second

// whole is how far the API server's clock is ahead in whole seconds, in which it
// writes its times; 0 where the clocks may agree.
func (s *Skew) whole() time.Duration {
	if s == nil || s.LeastMillis <= 0 && s.MostMillis >= 0 {
		return 0
	}
	return (time.Duration(s.LeastMillis+s.MostMillis) * time.Millisecond / 2).Round(time.Second)
}

// SetSkew takes the times that the API server wrote to the node's clock. It is called
// once.
func (p *Pod) SetSkew(least, most time.Duration) {
	p.Skew = &Skew{LeastMillis: least.Milliseconds(), MostMillis: most.Milliseconds()}
	ahead := p.Skew.whole()
	for _, t := range []*time.Time{&p.Deadline, &p.DeletionRequested} {
		if !t.IsZero() {
			*t = t.Add(-ahead)
		}
	}
}

// NodeTime takes a time that the API server wrote, or who writes there, to the node's clock.
func (p *Pod) NodeTime(t time.Time) time.Time { return t.Add(-p.Skew.whole()) }

// ClockDoubt returns by how much Deadline and DeletionRequested may be wrong because
// the clocks differ.
func (p *Pod) ClockDoubt() time.Duration {
	s := p.Skew
	if s == nil {
		return unmeasured
	}
	ahead := s.whole()
	return max(time.Duration(s.MostMillis)*time.Millisecond-ahead, ahead-time.Duration(s.LeastMillis)*time.Millisecond)
}
