package evidence

import (
	"testing"
	"time"
)

// Since when most connections have had no answer is carried over as long as that is so, and they are not fewer than half.
func TestSinceConnections(t *testing.T) {
	t0 := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	var last *Pod
	for i, tc := range []struct {
		connections *Connections
		want        time.Time
	}{
		{nil, time.Time{}},
		{&Connections{All: 2}, time.Time{}},
		{&Connections{All: 2, Unanswered: 1}, time.Time{}},
		{&Connections{All: 2, Unanswered: 2}, t0.Add(31 * time.Second)},
		{&Connections{All: 4, Unanswered: 3}, t0.Add(31 * time.Second)},
		{&Connections{All: 1, Unanswered: 1}, t0.Add(51 * time.Second)},
		{&Connections{All: 2}, time.Time{}},
		{&Connections{All: 1, Unanswered: 1}, t0.Add(71 * time.Second)},
	} {
		at := t0.Add(time.Duration(i) * 10 * time.Second)
		p := &Pod{UID: "u", Time: at, TasksRead: at.Add(time.Second), Connections: tc.connections}
		p.Since(last)
		if c := p.Connections; c != nil && !c.Since.Equal(tc.want) {
			t.Errorf("reading %d: since %s, want %s", i, c.Since, tc.want)
		}
		last = p
	}
}
