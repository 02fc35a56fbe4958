package api

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The kubelet asks the API server again after ten seconds for what was refused
// (syncPeriod, pkg/kubelet/status/status_manager.go), and is asked for its counts every
// ten seconds or, by an agent under pressure, some more. What has not been counted for
// refusalLasts has ended. Trouble of the API server is remembered for longer: it comes and
// goes.
const (
	refusalLasts = time.Minute
	troubleLasts = 2 * time.Minute
)

// requests returns the kubelet's counts of requests of a method, one for each code.
func requests(method string) func(*fact.View) []*evidence.APICall {
	return func(p *fact.View) (out []*evidence.APICall) {
		for i := range p.Node.Kubelet.APICalls {
			if c := &p.Node.Kubelet.APICalls[i]; c.Method == method {
				out = append(out, c)
			}
		}
		return out
	}
}

// The facts about such a count.
var (
	ofKubelet = []evidence.Source{evidence.Kubelet}

	counted = diagnose.Fact[*evidence.APICall]{
		Says: "Since then, the kubelet has counted such a response at least twice (rest_client_requests_total of the kubelet).", Is: roseTwice,
	}
	lately = diagnose.Fact[*evidence.APICall]{Says: "The last one was counted less than a minute ago.", Is: diagnose.If(roseLately)}
	// k3s and MicroK8s run controllers in the same process.
	ownProgram = diagnose.Fact[*evidence.APICall]{
		Says: "The kubelet is a program of its own, and no part of another one as in K3s and MicroK8s.",
		Pod:  diagnose.IfPod(kubeletIsAlone), Partly: ofKubelet,
	}
	answers = diagnose.Fact[*evidence.APICall]{
		Says: "For two minutes, no request of the kubelet has met trouble of the API server itself: no answer, or code 401, 408, 429 or 5xx.",
		Is:   diagnose.If(noTrouble),
	}
)

func kubeletIsAlone(p *fact.View) bool {
	t := p.Node.Kubelet.Process
	return t != nil && t.Comm == "kubelet"
}

// roseTwice answers whether a count has risen twice since the pod is at its present stage.
func roseTwice(p *fact.View, c *evidence.APICall) diagnose.Holding {
	switch {
	case !c.Rose.After(p.UnchangedSince):
		return diagnose.Is(false)
	case !c.RoseBefore.After(p.UnchangedSince):
		return diagnose.NotYet(diagnose.Waits(c.Rose, refusalLasts, diagnose.Retry))
	}
	return diagnose.Is(true)
}

func roseLately(p *fact.View, c *evidence.APICall) bool {
	return p.Node.Time.Sub(c.Rose) < refusalLasts
}

// noTrouble reports whether the API server was not in trouble: what fails then comes to an end with that. What a webhook stops that the API
// server cannot call, is of the webhook.
func noTrouble(p *fact.View, c *evidence.APICall) bool {
	return !slices.ContainsFunc(p.Node.Kubelet.APICalls, func(o evidence.APICall) bool {
		return o.Trouble() && o.Code != c.Code && o.Rose.After(p.UnchangedSince) && p.Node.Time.Sub(o.Rose) < troubleLasts
	})
}

// lastCounted makes a Tell of a function about the request that was counted last.
func lastCounted(tell func(*fact.View, *evidence.APICall) diagnose.Finding) func(*fact.View, []*evidence.APICall) []diagnose.Finding {
	return func(p *fact.View, found []*evidence.APICall) []diagnose.Finding {
		last := slices.MaxFunc(found, func(a, b *evidence.APICall) int { return a.Rose.Compare(b.Rose) })
		return []diagnose.Finding{tell(p, last)}
	}
}

// ofRequest describes a request of the kubelet about a pod.
func ofRequest(p *fact.View, c *evidence.APICall) diagnose.Objects {
	return diagnose.Objects{Pod: p.Namespace + "/" + p.Name, Node: p.Node.Name, Code: c.Code}
}
