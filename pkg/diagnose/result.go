package diagnose

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// An Open is what is neither found nor ruled out yet. A verdict of before that has one of its causes is neither confirmed
// nor refuted, and before the time has come it is not said that no known cause matches.
type Open struct {
	// Causes are those that are open, which the rule need not say; none for what takes its time whatever the cause is, or though the
	// cause is not there.
	Causes []string `json:"causes,omitempty"`
	// Container is the name of the one that it is about, "" for the pod.
	Container string `json:"container,omitempty"`
	// Since is the last sign of progress, or of what is waited for, and Until when it is known at the latest, if there is no
	// other one until then. It may have passed: then nothing is waited for, and the cause is not ruled out all the same.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Why is what is waited for.
	Why Why `json:"why"`
	// By is the cause that holds this one back, or the source that could not be read.
	By string `json:"by,omitempty"`
	// Known is when it is known at the latest, though it is not waited for; zero where that is not said.
	Known time.Time `json:"-"`
	// Timed says that only time decides: what is seen has not lasted for long enough since then.
	Timed bool `json:"-"`
}

// passes reports whether the cause is not there by this reading, though a later one may show it.
func (o Open) passes() bool { return o.Why == Moves || o.Why == Next }

// A Why is what an Open waits for.
type Why string

// What is waited for.
const (
	Slow       Why = "Slow"       // it may be slow and not hang
	Retry      Why = "Retry"      // who has failed tries again
	Next       Why = "Next"       // what was in the way is gone, and the next try tells whether anything else is: the cause is not there
	Restarting Why = "Restarting" // somebody has been started anew, or may be
	Moves      Why = "Moves"      // what is under way moves: the cause is not there
	Unread     Why = "Unread"     // a source could not be read
	HeldBack   Why = "HeldBack"   // another cause, which is found or open, would have the same effect
	Late       Why = "Late"       // the stop signal or SIGKILL may be late
)

// longestOpen is for how long a cause may be open without a sign of progress: what is open without an end would mute a pod for ever.
const longestOpen = 15 * time.Minute

// LastWait is for how long a rule waits for what may come and go again and again, or may be of another pod: until shortly before that.
const LastWait = longestOpen - time.Minute

// Waits returns the Open of what has been waited for since a time, and is for so long. A zero time is for nothing: it is left out.
func Waits(since time.Time, long time.Duration, why Why) Open {
	if since.IsZero() {
		return Open{}
	}
	return Open{Since: since, Until: since.Add(min(long, longestOpen)), Why: why}
}

// Seen returns the Open of what is seen at this moment and may be over at the next one: nothing is waited for.
func Seen(p *fact.View, why Why) Open { return Open{Since: p.Time, Until: p.Time, Why: why} }
