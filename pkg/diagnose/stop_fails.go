package diagnose

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StopFails are the facts by which a stop of the pod's sandbox fails each time, as the kubelet reports it in Events. of returns the report about a
// candidate, nil for none, and from are the sources that it reads beside those of the candidates.
func StopFails[T any](of func(*fact.View, T) *fact.SandboxFailure, from ...evidence.Source) []Fact[T] {
	return []Fact[T]{
		{
			Says: "The last report is at most six minutes old.", From: from,
			Is: ofReport(of, func(p *fact.View, f *fact.SandboxFailure) Holding { return Is(f.IsFresh(p)) }),
		},
		{
			Says: "The kubelet has reported it at least twice since the deletion, over eight seconds or more.", From: from,
			Is: ofReport(of, func(p *fact.View, f *fact.SandboxFailure) Holding { return IsOr(f.CameBack(), Seen(p, Retry)) }),
		},
		{
			Says: "The kubelet that reported it still runs.", From: from,
			Is: ofReport(of, func(p *fact.View, f *fact.SandboxFailure) Holding { return IsOr(f.StillTries(p), Seen(p, Restarting)) }),
		},
	}
}

// BeforeClaims is the fact that the kubelet has not come further than to the stop of the sandbox: it releases resource claims next.
func BeforeClaims[T any](of func(*fact.View, T) *fact.SandboxFailure, from ...evidence.Source) Fact[T] {
	return Fact[T]{
		Says: "If the pod has resource claims, the last report is at most 45 seconds old. Claims are released next, and a driver that hangs looks the same.",
		From: from,
		Is:   ofReport(of, func(p *fact.View, f *fact.SandboxFailure) Holding { return IsOr(f.BeforeClaims(p), Seen(p, Next)) }),
	}
}

func ofReport[T any](of func(*fact.View, T) *fact.SandboxFailure, is func(*fact.View, *fact.SandboxFailure) Holding) func(*fact.View, T) Holding {
	return func(p *fact.View, t T) Holding {
		if f := of(p, t); f != nil {
			return is(p, f)
		}
		return Is(false)
	}
}
